//! A running gateway: the ledger's decisions become commands for the core, the core's questions are
//! answered from the ledger.
//!
//! The order at start: everything that can be wrong is found before anything is touched. Clients
//! are answered when the firewall stands. At the end the TUN, NAT and routes stay, so that a
//! restart keeps every connection. `rove gateway run` finds and reconciles them. If it finds its
//! own firewall, whole and unchanged, it answers clients first.

mod admission;
mod ends;
mod entrances;
mod hop;
mod journal;
mod listening;
mod moves;
mod plan;
mod sessions;
mod surroundings;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipnet::IpNet;
use rove_api::{Answer, Flows, Node, Reloaded};
use rove_host::config::{LogFormat, Persistence, Saving};
use rove_host::control::{Asked, Listener, Reply, Request};
use rove_host::data::{Handle, News, Order, Setup};
use rove_host::flows::{self, Whose};
use rove_host::home::{Home, Role};
use rove_host::invite::TokenHash;
use rove_host::message::{self, MESSAGES_MAX};
use rove_host::owed::Owed;
use rove_host::reconcile::Host;
use rove_host::resolve::Resolver;
use rove_host::signals::Signal;
use rove_host::start::{take_over, watch_all};
use rove_host::time::wall_clock;
use rove_host::values::Lease;
use rove_host::{confine, encoding, files, log, node};
use rove_os::conntrack;
use rove_os::links::Link;
use rove_os::lock::Lock;
use rove_os::plan::{Applier, Firewall, MARK, Places, Plan, Scope};
use rove_proto::error::CloseCode;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, Config as CoreConfig, Event};

use crate::config::Config;
use crate::gateway::desk::Effect;
use crate::gateway::{Gateway, store_directory};
use entrances::Entrances;
use hop::Hop;
use journal::{Journal, Recalls};
use listening::Listening;
use moves::Announcer;

/// A gateway receives no messages beyond those that every node receives.
type Message = message::Message<Infallible>;

/// How long the core has to answer that it noticed a revocation.
const EXPEL_WITHIN: Duration = Duration::from_secs(1);

/// Runs the gateway in `home` until a signal ends it. `ready` is called once when clients can
/// connect.
pub fn run(home: &Home, format: Option<LogFormat>, ready: impl FnOnce()) -> Result<()> {
    let state = home.state(Role::Gateway);
    Gateway::find(home)?;
    let store = confine::as_owner(home, || store_directory(home))??;
    let left = confine::leave_root(home, &[&store], None)?;
    files::make_directory(&state)?;
    let _lock = Lock::take(&state)?;
    run_alone(home.clone(), format, || {
        confine::tell(&left);
        ready();
    })
}

/// The same, after the change of user and as the only process in `home`.
fn run_alone(home: Home, format: Option<LogFormat>, ready: impl FnOnce()) -> Result<()> {
    let (state, socket) = (home.state(Role::Gateway), home.socket(Role::Gateway)?);
    let gateway = Gateway::open_to_run(&home)?;
    log::start(gateway.config.log, format);
    let (own, places) = (gateway.lease()?, Places::usual(&state));
    let mut applier = take_over(&places)?;
    let mut present = rove_os::links::snapshot()?;
    // Under another name this gateway's own interface would be in its own way.
    present.retain(|link| !applier.holds(&link.name));
    let reaches = gateway.ledger.reaches().unwrap_or_default();
    let hop = gateway.config.hop.as_ref().map(|hop| Hop::begin(hop, &reaches, &present));
    let hop = hop.transpose()?;
    let mut plan = plan::gateway(&gateway.config, &own, gateway.ledger.registry(), &present);
    plan.link_addresses = hop.as_ref().map_or_else(Vec::new, |hop| hop.addresses(&present));
    plan.check(&present)?;
    let mut listening = Listening::default();
    let sockets = listening.open_all(&gateway.config.listen)?;
    let (entrances, streams) = Entrances::begin(&gateway.config)?;
    let listener = Listener::bind(&socket)?;
    let track = gateway.config.firewall && conntrack::is_used_by_others();
    plan.firewall = firewall(&gateway, &present, track, &listening, &entrances);
    let (took_over, stands) = (applier.has_leftovers(), applier.firewall_stands(&plan));
    let tun = applier.open_device(&plan)?;
    confine::to(&[home.dir(), &gateway.store_directory()])?;

    let (inbox, messages) = sync_channel(MESSAGES_MAX);
    let config = core(&gateway);
    let setup = Setup { config, tun, mark: Some(MARK) };
    let data = Handle::start(setup, inbox.clone(), Message::News)?;
    let mut links = watch_all(&inbox, &places)?;
    Hop::leave_out(hop.as_ref(), &mut links);
    let mut daemon = Daemon {
        gateway,
        own,
        links,
        applier,
        host: Host::default(),
        ended: ends::Ended::default(),
        plan: Plan::default(),
        others_track: track,
        data,
        listening,
        entrances,
        advertised: BTreeMap::new(),
        hop,
        announcer: Announcer::new(Resolver::new(inbox.clone())),
        journal: Journal::default(),
        recalls: Recalls::of(reaches, Instant::now()),
        owed: Owed::open(&state)?,
    };
    // What an earlier gateway left carries its clients' connections, so they are answered first.
    if !stands {
        daemon.raise(took_over)?;
    }
    daemon.warn_of_doubts();
    daemon.introduce_everybody();
    daemon.announce();
    // Only now may anybody ask: whom the core does not know it refuses for good.
    for (number, socket) in sockets {
        daemon.data.order(Order::Listen { number, socket });
    }
    if let Some(streams) = streams {
        daemon.data.order(Order::Accept(streams));
    }
    if stands {
        daemon.raise(took_over)?;
    }
    let server = listener.serve(inbox, Message::Asked)?;
    tracing::info!("the gateway runs");
    ready();
    let ended = daemon.serve(&messages);
    daemon.end();
    drop(server);
    tracing::info!("the gateway has ended");
    ended
}

/// The gateway's settings for the host's firewall; `None` if the operator has another firewall.
fn firewall(
    gateway: &Gateway,
    links: &[Link],
    others_track: bool,
    listening: &Listening,
    entrances: &Entrances,
) -> Option<Firewall> {
    let config = &gateway.config;
    let admitted = || plan::admitted(config, gateway.ledger.registry(), links);
    let (udp, tcp) = (listening.places(), entrances.places());
    config.firewall.then(|| plan::firewall(config, admitted(), others_track, udp, tcp))
}

/// The control thread's belongings.
struct Daemon {
    gateway: Gateway,
    own: Lease,
    /// As they are, less the addresses that they have from a hop.
    links: Vec<Link>,
    applier: Applier,
    /// The state of the host around the tunnel.
    host: Host,
    /// Where packets of clients end.
    ended: ends::Ended,
    /// As it was applied last.
    plan: Plan,
    /// Whether other programs on the host need entries of the gateway's own datagrams.
    others_track: bool,
    data: Handle,
    /// What peers said last that lies behind them, granted or not. A peer that never said anything
    /// since this process began has no entry.
    advertised: BTreeMap<PeerKey, Vec<IpNet>>,
    listening: Listening,
    entrances: Entrances,
    hop: Option<Hop>,
    announcer: Announcer,
    journal: Journal,
    recalls: Recalls,
    /// The connections for which bytes are owed.
    owed: Owed,
}

impl Daemon {
    /// The addresses that clients may write to.
    fn locals(&self) -> Vec<IpAddr> {
        let tunnel = self.gateway.config.interface.as_str();
        let outside = self.links.iter().filter(|link| link.name != tunnel);
        let own = outside.flat_map(|link| &link.addresses);
        let given = self.plan.link_addresses.iter().map(|(_, net)| net);
        own.chain(given).map(IpNet::addr).collect()
    }

    /// Writes down whom the next process is to call back, and tells every client to ask again: what
    /// they send until it is there waits in their queues, and is not lost.
    fn end(&mut self) {
        if let Err(error) = self.journal.write(&mut self.gateway.ledger) {
            tracing::warn!(%error, "where clients are reached cannot be stored");
        }
        for peer in self.gateway.ledger.registry().peers().filter(|peer| peer.is_enrolled()) {
            let (peer, code) = (peer.key.into(), CloseCode::Restarting);
            self.data.command(Command::Close { peer, code });
        }
        self.data.stop();
        self.stop_hopping();
    }

    fn serve(&mut self, messages: &Receiver<Message>) -> Result<()> {
        loop {
            let message = match self.due() {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => messages.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Asked(asked)) => self.answer(asked),
                Ok(Message::News(News::Event(event))) => self.note(event),
                Ok(Message::News(News::Ended(why))) => {
                    return Err(anyhow::anyhow!(why)).context("the data thread has ended");
                }
                Ok(Message::Links(links)) => self.relink(links),
                Ok(Message::Host(changes)) => self.host.owe(changes),
                Ok(Message::Signal(Signal::End)) => {
                    self.owed.wind_up(self.gateway.config.persistence.rules(), &self.data);
                }
                Ok(Message::Signal(Signal::Reload)) => {
                    if let Err(error) = self.reload() {
                        tracing::error!("the configuration is not taken: {error:#}");
                    }
                }
                Ok(Message::Resolved(resolved)) => self.resolved(resolved),
                Ok(Message::Own(never)) => match never {},
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.keep_time();
            self.keep_host_when_due();
            if self.owed.is_wound_up() {
                return Ok(());
            }
        }
    }

    /// When there is something to do without a message.
    fn due(&self) -> Option<Instant> {
        let hop = self.hop.as_ref().map(Hop::due);
        let (time, host) = (self.gateway.ledger.time_due(), self.host.due());
        let (journal, recalls) = (self.journal.due(), self.recalls.due());
        [journal, recalls, self.announcer.due(), self.owed.due(), hop, time, host]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    fn keep_time(&mut self) {
        let now = Instant::now();
        self.journal.write_due(&mut self.gateway.ledger, now);
        self.owed.write_due(now, &self.data);
        self.keep_clock();
        self.hop_if_due(now);
        self.resolve_if_due(now);
        for call in self.recalls.calls_due(&self.listening, now) {
            self.data.command(call);
        }
    }

    /// Stores the latest time, by which invites expire.
    fn keep_clock(&mut self) {
        let was_behind = self.gateway.ledger.behind().is_some();
        if let Err(error) = self.gateway.ledger.keep_time(wall_clock()) {
            tracing::warn!(%error, "the latest time cannot be stored");
        }
        if !was_behind && let Some(behind) = self.gateway.ledger.behind() {
            tracing::warn!(
                behind_s = behind.by.as_secs(),
                "the clock is behind the latest time that this gateway saw, by which invites \
                 expire: set it, or run `rove gateway reset-clock` if it is right now"
            );
        }
    }

    fn answer(&mut self, asked: Asked) {
        let reply = match self.carry_out(asked.request) {
            Ok(answer) => Reply::Ok(answer),
            Err(error) => Reply::Error(format!("{error:#}").replace('\n', " ")),
        };
        // An asker that gave up waiting is no loss.
        let _ = asked.reply.try_send(reply);
    }

    fn carry_out(&mut self, request: Request) -> Result<Answer> {
        let replan = matches!(request, Request::Revoke { .. } | Request::Allow { .. });
        if request == Request::Reload {
            return Ok(self.reload()?.into());
        }
        if let Request::Flows { meant, user: _ } = &request {
            return Ok(self.flows(meant)?.into());
        }
        if let Request::PeerPaths { name } = &request {
            return Ok(self.paths(name.as_deref())?.into());
        }
        if let Request::Move { endpoint, record } = &request {
            return Ok(self.relocate(&endpoint.parse()?, record.as_deref())?.into());
        }
        let answer = self.gateway.answer(request, wall_clock())?;
        for effect in &answer.effects {
            self.take_effect(effect);
        }
        if replan {
            self.replan();
        }
        if answer.effects.iter().any(|effect| matches!(effect, Effect::Expel(_))) {
            // The reply says that the session has ended, so it waits until the core has seen to it.
            self.await_core();
        }
        let mut reply = answer.stored().context(
            "it ended now, and is forgotten when the gateway ends, since it cannot be stored: make \
             room and repeat the command",
        )?;
        if let Answer::GatewayStatus(status) = &mut reply {
            if let Some(snapshot) = self.data.status(None) {
                self.add_running(status, &snapshot);
            }
            self.add_host(status);
            self.host.settle(&mut status.problems);
        } else if let Answer::Peers(peers) = &mut reply
            && let Some(snapshot) = self.data.status(None)
        {
            self.add_sessions(peers, &snapshot);
        }
        Ok(reply)
    }

    /// Every flow names its peer.
    fn flows(&self, meant: &[String]) -> Result<Flows> {
        let (registry, config) = (self.gateway.ledger.registry(), &self.gateway.config);
        let settings = (&config.persistence, &config.rules);
        flows::tell(Node::Gateway, &self.data, settings, meant, |key, _| {
            // Who was revoked a moment ago has no name any more.
            let name = registry.peer(key).map(|peer| peer.name.to_string());
            let peer = name.unwrap_or_else(|| encoding::to_text(&key.0));
            Whose { peer, links: BTreeMap::new(), mode: None }
        })
    }

    fn take_effect(&mut self, effect: &Effect) {
        match *effect {
            Effect::Expel(key) => {
                self.advertised.remove(&key);
                self.recalls.settled(key);
                self.journal.left(key);
                self.data.command(Command::RevokePeer(key));
            }
            Effect::Permit(key) => self.permit(key),
        }
    }

    fn await_core(&self) {
        let (reply, replied) = sync_channel(1);
        self.data.order(Order::Status { peers: Some(Vec::new()), reply });
        if replied.recv_timeout(EXPEL_WITHIN).is_err() {
            tracing::warn!("the data thread is slow to answer");
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::EnrolmentRequested { peer, token } => {
                self.enrol(peer, TokenHash::of(token.as_bytes()));
            }
            Event::PeerRefused { peer, status } => self.note_refusal(peer, status),
            Event::State { peer, state } => {
                tracing::debug!(?peer, state = rove_host::sessions::state(state).word(), "session");
            }
            Event::Established { peer, first, .. } => {
                self.recalls.settled(peer);
                tracing::debug!(?peer, first, "fresh keys");
            }
            Event::HandshakeCounter { peer, counter } => self.journal.accepted(peer, counter),
            Event::Reached { peer, route, index } => {
                self.journal.reached(peer, route, index, &self.listening);
            }
            Event::Moved { peer, remote, took } => {
                tracing::debug!(?peer, %remote, ?took, "moved");
            }
            Event::Ended { peer, error } => {
                self.journal.left(peer);
                tracing::debug!(?peer, %error, "session ended");
            }
            Event::Routes { peer, routes } => self.take_routes(peer, &routes),
            Event::KeyIsShared { peer } => self.warn_of_shared_key(peer),
            Event::Owing { peer, tuple } => self.owed.begins(peer, tuple),
            Event::Settled { peer, tuple } => self.owed.ends(peer, tuple),
            Event::Announced { .. }
            | Event::WhoseFlow { .. }
            | Event::OpenSocket { .. }
            | Event::CloseSocket { .. }
            | Event::Refused { .. }
            | Event::Networks { .. }
            | Event::Leased { .. } => {}
        }
    }

    /// The links changed: other addresses to answer from, other networks that are not the Internet.
    fn relink(&mut self, mut links: Vec<Link>) {
        Hop::leave_out(self.hop.as_ref(), &mut links);
        if links == self.links {
            // It was this gateway's own hop, or somebody took that back.
            return self.host.owe(BTreeSet::new());
        }
        self.links = links;
        self.data.command(Command::SetLocals(self.locals()));
        self.announce();
        let registry = self.gateway.ledger.registry();
        for peer in registry.peers().filter(|peer| peer.is_enrolled()) {
            self.permit(peer.key.into());
        }
        self.host.owe_plan();
    }

    /// Checks the host, and applies a new plan, when that is due.
    fn keep_host_when_due(&mut self) {
        let Some(owed) = self.host.take_due(Instant::now()) else { return };
        let replan = self.firewall_is_outdated(owed.scope) || owed.replan;
        if (!replan || self.replan() == Replanned::Same)
            && let Some(tun) = self.host.keep(&mut self.applier, owed.scope, &self.plan)
        {
            self.data.order(Order::Device(tun));
        }
    }

    /// Whether the firewall should be another one after changes of the host. The kernel's table of
    /// connections may exist only since the first firewall, and an operator may change its size.
    fn firewall_is_outdated(&mut self, scope: Scope) -> bool {
        let Some(firewall) = &self.plan.firewall else { return false };
        if scope == Scope::All {
            self.others_track = conntrack::is_used_by_others();
        }
        firewall.share != Some(plan::share()) || firewall.untracked == self.others_track
    }

    /// Makes the host what it should be by now; what resists is told in the log, and tried again
    /// with the next change.
    fn replan(&mut self) -> Replanned {
        self.apply().unwrap_or_else(|error| {
            tracing::error!(%error, "the plan could not be applied");
            Replanned::Other
        })
    }

    /// The first plan. After an error nothing stays, unless an earlier gateway left it.
    fn raise(&mut self, took_over: bool) -> Result<()> {
        if let Err(error) = self.apply() {
            if !took_over {
                self.applier.undo()?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<Replanned, rove_os::error::Error> {
        let registry = self.gateway.ledger.registry();
        let mut plan = plan::gateway(&self.gateway.config, &self.own, registry, &self.links);
        let hop = self.hop.as_ref();
        plan.link_addresses = hop.map_or_else(Vec::new, |hop| hop.addresses(&self.links));
        let (listening, entrances) = (&self.listening, &self.entrances);
        plan.firewall =
            firewall(&self.gateway, &self.links, self.others_track, listening, entrances);
        if plan == self.plan {
            return Ok(Replanned::Same);
        }
        // After an error the host is between two plans, and like none.
        let before = std::mem::take(&mut self.plan);
        self.applier.apply(&plan)?;
        self.plan = plan;
        if self.plan.routes != before.routes {
            self.warn_of_subnets();
        }
        Ok(Replanned::Other)
    }

    fn warn_of_doubts(&self) {
        self.gateway.config.doubts().iter().for_each(|doubt| tracing::warn!("{doubt}"));
        self.warn_of_subnets();
    }

    fn warn_of_subnets(&self) {
        let peers = self.gateway.ledger.registry().peers().filter(|peer| peer.is_enrolled());
        let granted: usize = peers.map(|peer| peer.subnets.len()).sum();
        let left_out = granted.saturating_sub(self.plan.routes.len());
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "subnets behind peers are not routed to them, since this host is itself in these \
                 networks: renumber one of the two"
            );
        }
    }

    /// Takes what can be changed while running: NAT, and what is done for connections that begin
    /// from now on; says whether more has changed.
    fn reload(&mut self) -> Result<Reloaded> {
        let new = Config::load(&self.gateway.home.config(Role::Gateway))?;
        let before = self.gateway.config.clone();
        let Persistence { hold, assist, ref rules, .. } = new.persistence;
        let persistence = before.persistence.clone();
        let persistence = Persistence { hold, assist, rules: rules.clone(), ..persistence };
        let aggregate = new.saving.aggregate;
        let saving = Saving { aggregate, ..before.saving.clone() };
        let (nat, of_flows) = (new.nat, new.rules.clone());
        let taken = Config { nat, rules: of_flows, persistence, saving, ..before.clone() };
        let restart = new != taken;
        if restart {
            tracing::warn!(
                "only nat, what is held, saving.aggregate, rules and devices change while the \
                 gateway runs: restart it for the rest"
            );
        }
        self.gateway.config = taken;
        if let Err(error) = self.apply() {
            self.gateway.config = before;
            self.replan();
            return Err(error.into());
        }
        if self.gateway.config.persistence != before.persistence {
            self.data.command(Command::SetHold(self.gateway.config.persistence.rules()));
        }
        if self.gateway.config.rules != before.rules {
            self.data.command(Command::SetOverrides(self.gateway.config.rules.core()));
        }
        if self.gateway.config.saving != before.saving {
            self.data.command(Command::SetSaving(self.gateway.config.saving.core(false)));
        }
        tracing::info!("configuration read again");
        Ok(Reloaded { restart })
    }
}

/// The settings of the core, from the gateway's configuration.
fn core(gateway: &Gateway) -> CoreConfig {
    let Config { persistence, saving, security, .. } = &gateway.config;
    node::config(&gateway.identity.key, persistence, saving, security)
}

/// Whether the host was to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replanned {
    Same,
    Other,
}
