//! Events of the core that wait until the control thread has room for them.

use std::collections::VecDeque;

use rove_engine::Events;
use rove_proto::node::Event;

use super::report::News;

/// Events kept while the control thread has no room; the core itself bounds as many.
const EVENTS_MAX: usize = 4_096;

/// Events in order, and how many were lost.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    events: VecDeque<Event>,
    lost: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Events for which there was no room so far.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Tells the control thread what happened, as far as it has room.
    pub(super) fn pass(&mut self, tell: &mut impl FnMut(News) -> bool) {
        while let Some(event) = self.events.pop_front() {
            if !tell(News::Event(event.clone())) {
                self.events.push_front(event);
                return;
            }
        }
    }
}

impl Events for Backlog {
    /// Keeps an event. If there is no room, the first to go is a refusal: any stranger can cause
    /// refusals, and nothing waits for them.
    fn tell(&mut self, event: Event) {
        if matches!(event, Event::OpenSocket { .. } | Event::CloseSocket { .. }) {
            return; // the sockets are this thread's
        }
        if self.events.len() >= EVENTS_MAX {
            self.lost += 1;
            let refusal = |event: &Event| matches!(event, Event::PeerRefused { .. });
            match self.events.iter().position(refusal) {
                _ if refusal(&event) => return,
                Some(place) => drop(self.events.remove(place)),
                None => drop(self.events.pop_front()),
            }
        }
        self.events.push_back(event);
    }
}
