//! What the host's network manager knows of links, asked in a thread of its own: a bus and the
//! programs behind it take their time.
//!
//! Asked when the links change, and every minute where there is a bus to ask by: that a modem roams
//! or somebody calls a network metered changes without a change of links.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rove_os::tariff::{self, Tariff};

use crate::asker::{Again, Asker, begin};
use crate::message::{Message, Own};

/// The time between two questions without news.
const EVERY: Duration = Duration::from_secs(60);
/// Links that are asked about.
const LINKS_MAX: usize = 64;

/// Asks what is known of links.
pub(crate) struct Tariffs {
    to: SyncSender<Message>,
    /// By their name.
    asker: Asker<String>,
}

impl Tariffs {
    /// Answers go to `to`.
    pub(crate) const fn new(to: SyncSender<Message>) -> Self {
        Self { to, asker: Asker::new() }
    }

    /// Asks about these from now on, at once for the first time.
    pub(crate) fn ask(&mut self, mut links: Vec<String>) {
        links.truncate(LINKS_MAX);
        let to = &self.to;
        self.asker.ask(links, || {
            let to = to.clone();
            let unknown = "whether links are metered is known from the rules alone";
            begin("rove-tariff", unknown, move || {
                let mut known = BTreeMap::new();
                move |links: &[String]| look(links, &mut known, &to)
            })
        });
    }
}

/// Asks about these, and says so where something is other than was `known`.
fn look(links: &[String], known: &mut BTreeMap<String, Tariff>, to: &SyncSender<Message>) -> Again {
    let told = links.iter().map(|link| (link.clone(), tariff::of(link)));
    let told: BTreeMap<_, _> = told.filter(|(_, tariff)| *tariff != Tariff::default()).collect();
    if told != *known && to.send(Message::Own(Own::Tariffs(told.clone()))).is_err() {
        return Again::End;
    }
    *known = told;
    if tariff::may_be_known() { Again::After(EVERY) } else { Again::Never }
}
