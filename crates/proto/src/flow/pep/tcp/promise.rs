//! What this node acknowledged in the remote side's place, and whether that is written down.
//!
//! A record is written before anything is acknowledged, so that a restarted node can break off what
//! it cannot deliver. It is struck out as soon as nothing is owed. This part decides neither when
//! to acknowledge nor what: it says only which records are to be written and struck out.

use crate::wire::tcp::Seq;

/// What is owed to the local side of one connection.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::flow) struct Promise {
    /// Up to where the local side was told that its bytes arrived, by this node and nobody else
    /// yet: what lies before is owed.
    to: Option<Seq>,
    record: Record,
}

/// The record that something is owed, or will be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Record {
    #[default]
    None,
    /// To be asked for.
    Wanted,
    /// Asked for.
    Asked,
    Written,
    /// To be struck out.
    Obsolete,
}

/// What is to be done with the record of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::flow) enum Task {
    Write,
    Strike,
}

impl Promise {
    /// A promise of an earlier process, of which nothing but its record is known.
    pub(super) const fn of_the_dead() -> Self {
        Self { to: None, record: Record::Written }
    }

    /// Up to where it goes, if something is owed.
    pub(super) const fn to(&self) -> Option<Seq> {
        self.to
    }

    /// Whether there is neither a record nor one to come.
    pub(super) fn has_no_record(&self) -> bool {
        self.record == Record::None
    }

    /// Whether the record is still to be written.
    pub(super) const fn is_awaited(&self) -> bool {
        matches!(self.record, Record::Wanted | Record::Asked)
    }

    /// Whether the record is written: bytes may be acknowledged.
    pub(super) fn is_recorded(&self) -> bool {
        self.record == Record::Written
    }

    /// Whether the record is to be struck out, and nobody was told so.
    pub(super) fn is_obsolete(&self) -> bool {
        self.record == Record::Obsolete
    }

    /// Something will be owed: that is to be written down.
    pub(super) const fn announce(&mut self) {
        self.record = Record::Wanted;
    }

    /// It is written down. Returns whether that was asked for, and is still needed.
    pub(super) fn recorded(&mut self) -> bool {
        let is_needed = self.is_awaited() || self.is_recorded();
        if is_needed {
            self.record = Record::Written;
        }
        is_needed
    }

    /// Everything before `to` is acknowledged here.
    pub(super) const fn give(&mut self, to: Seq) {
        self.to = Some(to);
    }

    /// The remote side has everything before `acked`. Returns whether that was all that was owed.
    pub(super) fn delivered(&mut self, acked: Seq) -> bool {
        self.to.take_if(|to| !acked.is_before(*to)).is_some()
    }

    /// What was owed will not be delivered. The record stays until both ends know.
    pub(super) const fn forget(&mut self) {
        self.to = None;
    }

    /// Nothing will be owed any more, unless something is: the record is not needed then.
    pub(super) fn settle(&mut self) {
        if self.to.is_none() {
            let is_written = self.is_recorded() || self.is_obsolete();
            self.record = if is_written { Record::Obsolete } else { Record::None };
        }
    }

    /// Nothing is owed any more, whatever was.
    pub(super) fn end(&mut self) {
        self.forget();
        self.settle();
    }

    /// What is to be done with the record; says so once.
    pub(super) const fn take_task(&mut self) -> Option<Task> {
        match self.record {
            Record::Wanted => {
                self.record = Record::Asked;
                Some(Task::Write)
            }
            Record::Obsolete => {
                self.record = Record::None;
                Some(Task::Strike)
            }
            Record::None | Record::Asked | Record::Written => None,
        }
    }
}
