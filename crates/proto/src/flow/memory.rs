//! How much memory the connections of a node may hold, and what of it they do.

use crate::blocks::{BLOCK, Blocks};
use crate::time::Instant;

/// How much memory all connections of a node may hold together, and the blocks that it comes in.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) blocks: Blocks,
    /// Blocks that connections have borrowed.
    lent: usize,
    used: usize,
    max: usize,
    share: usize,
    /// Connections that are known.
    flows: usize,
}

impl Memory {
    /// Of how many of `max` the share of one connection is.
    const SHARES: usize = 8;
    /// Connections that a node knows at most, whatever becomes of them: some 30 MB.
    pub const FLOWS_MAX: usize = 1 << 16;

    /// Blocks beyond those that `max` bytes fill: so many small things may be kept in any case.
    const BLOCKS_MIN: usize = 64;

    /// `max` bytes, of which one connection gets at most an eighth.
    pub fn new(max: usize) -> Self {
        let share = max / Self::SHARES;
        Self { blocks: Blocks::default(), lent: 0, used: 0, max, share, flows: 0 }
    }

    /// Blocks for whatever is kept.
    pub(crate) const fn blocks(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// When [`Self::release`] is to be called again.
    pub const fn due(&self) -> Option<Instant> {
        self.blocks.due()
    }

    /// Gives back to the system what was not needed for a while. To be called now and then, and
    /// when it is due.
    pub fn release(&mut self, now: Instant) {
        self.blocks.release(now);
    }

    /// Bytes held.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether more than half of it is taken: not everybody may get some of the rest.
    pub(super) const fn is_short(&self) -> bool {
        self.used > self.max / 2 || self.lent > self.blocks_max() / 2
    }

    /// Blocks that connections may borrow: a few bytes take a whole one.
    const fn blocks_max(&self) -> usize {
        self.max / BLOCK + Self::BLOCKS_MIN
    }

    /// Connections that are known.
    pub const fn flows(&self) -> usize {
        self.flows
    }

    /// Whether no more connections may be known.
    pub(super) const fn is_crowded(&self) -> bool {
        self.flows >= Self::FLOWS_MAX
    }

    pub(super) const fn one_flow_more(&mut self) {
        self.flows += 1;
    }

    pub(super) const fn flows_less(&mut self, count: usize) {
        self.flows = self.flows.saturating_sub(count);
    }

    /// Bytes that one connection may hold.
    pub(super) const fn share(&self) -> usize {
        self.share
    }

    /// Bytes that may be held.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Borrows so many blocks, if there are as many. Who gives them back says so with
    /// [`Self::returned`].
    pub(super) const fn borrow(&mut self, blocks: usize) -> Result<(), NoRoom> {
        if self.lent + blocks > self.blocks_max() {
            return Err(NoRoom::AtAll);
        }
        self.lent += blocks;
        Ok(())
    }

    /// The same, for what may take more than its bytes do: half of all may be lent so.
    pub(super) const fn borrow_spaciously(&mut self, blocks: usize) -> Result<(), NoRoom> {
        let is_short = self.lent + blocks > self.blocks_max() / 2;
        if is_short { Err(NoRoom::AtAll) } else { self.borrow(blocks) }
    }

    /// So many borrowed blocks went back.
    pub(super) const fn returned(&mut self, blocks: usize) {
        self.lent -= blocks;
    }

    /// Blocks that connections have borrowed.
    #[cfg(test)]
    pub(super) const fn lent(&self) -> usize {
        self.lent
    }

    /// Takes `bytes` for a connection that holds `held`, if its share and the whole allow it, less
    /// one share.
    pub(super) const fn take(&mut self, held: usize, bytes: usize) -> Result<(), NoRoom> {
        if held + bytes > self.share {
            return Err(NoRoom::InShare);
        }
        if self.used + bytes > self.max - self.share {
            return Err(NoRoom::AtAll);
        }
        self.used += bytes;
        Ok(())
    }

    /// The same for the oldest segments of a connection, for which as much as the share of one is
    /// left over: they matter most where there is no memory for more. Returns whether it fits.
    pub(super) const fn take_for_oldest(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes <= self.max;
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(super) const fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// Why something is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// The connection has its share already.
    InShare,
    /// All connections together have all that there is.
    AtAll,
    /// There is little, and others gain more by it.
    ForThis,
}
