//! What the tunnel does about links that police UDP: it measures the paths there, and carries out
//! what `policing` decides (docs/spec/wire.md#streams).

use super::candidate::Candidate;
use super::policing::{Burst, Carried, Direction, Step, Trial};
use super::wishes::FLIGHT_SIZE;
use super::{PathManager, Side, Wish};
use crate::context::Context;
use crate::id::Transport;
use crate::path::{Path, PathId};

impl PathManager {
    /// Client: the path `id` is policed in this direction, if it is one of UDP.
    pub(crate) fn doubt_udp(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        direction: Direction,
        kbps: u32,
    ) {
        let is_there = |path: &&Path| path.has_share() && path.transport() == Transport::Udp;
        let path = self.list.get(id).filter(is_there);
        let of = path.and_then(|path| path.link.zip(path.route.local));
        let (Some(of), Side::Client(connector)) = (of, &mut self.side) else { return };
        let may_be =
            |stream: &Candidate| stream.link == of.0 && !connector.failed_lately(cx.now, *stream);
        let stream = connector.candidates.streams().find(may_be);
        if connector.policing.note(cx.now, of, (direction, kbps), stream) {
            self.stand_by(cx);
        }
    }

    /// Client: does what is due about links that police UDP.
    pub(crate) fn judge_udp(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.side else { return };
        if let Some(trial) = connector.policing.trial_due(cx.now) {
            self.judge_trial(cx, trial);
        } else if let Some(path) = connector.policing.train_due(cx.now) {
            self.drive_train(cx, path);
        } else if let Some(of) = connector.policing.asks_again(cx.now) {
            // A stream took the place of UDP by that link: whether UDP is free again.
            let is_of = |candidate: &Candidate| (candidate.link, candidate.local) == of;
            let udp = connector.candidates.udp().find(is_of);
            let Some(udp) = udp.filter(|_| self.list.has_room()) else { return };
            let there = self.plan().path_by(udp).map(|path| path.id);
            let Some(path) = there.or_else(|| self.open_path(cx, udp)) else { return };
            self.ask(cx.now, path);
            if let Some(connector) = self.side.client_mut() {
                connector.policing.begin_train(cx.now, of, path);
            }
        }
    }

    fn judge_trial(&mut self, cx: &mut Context<'_>, trial: Trial) {
        let rate = |path: &Path| match trial.direction() {
            Direction::Up => path.rates.0.at(cx.now),
            Direction::Down => path.rates.1.at(cx.now),
        };
        let is_beside = |path: &&Path| {
            let is_udp = path.transport() == Transport::Udp;
            is_udp && path.link == Some(trial.link()) && path.has_share()
        };
        let plan = self.plan();
        let path = plan.path_by(trial.candidate()).filter(|path| path.is_able());
        let carried = Carried {
            stream: path.map(|path| rate(path).unwrap_or(0.0)),
            udp: self.list.iter().filter(is_beside).filter_map(rate).sum(),
        };
        let Side::Client(connector) = &mut self.side else { return };
        let streams = connector.candidates.streams();
        let next = streams.filter(|other| other.link == trial.link()).nth(trial.tried());
        let step = connector.policing.look(cx.now, trial, carried, next);
        if step == Step::Wait {
            return;
        }
        self.take_better(cx);
        self.stand_by(cx);
        let left = self.plan().path_by(trial.candidate()).map(|path| path.id);
        if let Some(left) = left.filter(|_| step == Step::End) {
            self.remove_spare(cx, left);
        }
    }

    fn drive_train(&mut self, cx: &mut Context<'_>, path: PathId) {
        let path = self.list.get(path).filter(|path| path.is_able());
        let came = path.map(|path| path.counts().received);
        let Side::Client(connector) = &mut self.side else { return };
        match connector.policing.burst(cx.now, came, FLIGHT_SIZE) {
            Some(Burst::Send(path, count)) => {
                for _ in 0..count {
                    self.wishes.push(Wish::Challenge(path, FLIGHT_SIZE));
                }
            }
            Some(Burst::Free) => {
                self.take_better(cx);
                self.stand_by(cx);
            }
            Some(Burst::Policed(path)) => self.remove_spare(cx, path),
            None => {}
        }
    }
}
