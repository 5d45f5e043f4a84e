//! The radios of Wi-Fi links, asked every second while somebody wants to know, by a thread of their
//! own: a driver may ask its card and take its time.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::asker::{Again, Asker, begin};
use crate::message::{Message, Own};

/// The time between two questions. In it one walks a metre or two, which is a decibel or two near
/// the edge of what an access point reaches.
const EVERY: Duration = Duration::from_secs(1);

/// Asks radios.
pub(crate) struct Radios {
    to: SyncSender<Message>,
    /// By the index of their link.
    asker: Asker<u32>,
}

impl Radios {
    /// Answers go to `to`.
    pub(crate) const fn new(to: SyncSender<Message>) -> Self {
        Self { to, asker: Asker::new() }
    }

    /// Asks these from now on, at once for the first time.
    pub(crate) fn ask(&mut self, links: Vec<u32>) {
        let to = &self.to;
        self.asker.ask(links, || {
            let to = to.clone();
            begin("rove-radio", "the strength of Wi-Fi is not known", move || {
                let mut radio = None;
                move |links: &[u32]| {
                    let told = links.iter().map(|&link| (link, signal(&mut radio, link))).collect();
                    let is_heard = to.send(Message::Own(Own::Signals(told))).is_ok();
                    if is_heard { Again::After(EVERY) } else { Again::End }
                }
            })
        });
    }
}

/// The strength of a link's signal, in dBm; opens the way to the radios if need be.
fn signal(radio: &mut Option<rove_os::wireless::Radio>, link: u32) -> Option<i8> {
    let asked = match radio {
        Some(open) => open.signal(link),
        None => match rove_os::wireless::Radio::open() {
            Ok(opened) => {
                *radio = opened;
                radio.as_mut()?.signal(link)
            }
            Err(error) => Err(error),
        },
    };
    asked.unwrap_or_else(|error| {
        tracing::debug!(%error, "the strength of Wi-Fi is not known");
        // What answers late would answer the next question.
        *radio = None;
        None
    })
}
