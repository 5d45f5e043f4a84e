//! A running gateway: the ledger's decisions become commands for the core, the core's questions are
//! answered from the ledger.
//!
//! The order at start: everything that can be wrong is found before anything is touched. At the end
//! the TUN, NAT and routes stay, so that a restart keeps every connection; `rove gateway run` finds
//! and reconciles them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use rove_os::links::Link;
use rove_os::lock::Lock;
use rove_os::plan::{Applier, MARK, Places, Plan};
use rove_os::udp::{UdpOptions, UdpSocket};
use rove_proto::crypto::Status;
use rove_proto::error::{CloseCode, PeerError};
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, Event, PeerConfig, PeerState, PeerStatus, SideConfig};
use rove_proto::wire::control::Prefix;
use serde_json::{Value, json};

use super::data::{Handle, News, Setup, Snapshot};
use super::message::{MESSAGES_MAX, Message};
use super::signals::{self, Signal};
use super::{confine, links, log, node, plan, status, streams};
use crate::config::{GatewayConfig, LogFormat};
use crate::control::{Asked, Listener, Reply, Request};
use crate::encoding;
use crate::files;
use crate::gateway::{Effect, Gateway};
use crate::home::{Home, Role};
use crate::invite::TokenHash;
use crate::ledger::{Enrolment, Peer, Refusal, wall_clock};
use crate::values::Lease;

/// How long the core has to answer that it noticed a revocation.
const EXPEL_WITHIN: Duration = Duration::from_secs(1);
/// Somebody who was heard for so long is there. Behind a NAT even an idle client speaks every 25 s.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// Runs the gateway in `home` until a signal ends it. `ready` is called once when clients can
/// connect.
pub fn run(home: &Home, format: Option<LogFormat>, ready: impl FnOnce()) -> Result<()> {
    let (state, socket) = (home.state(Role::Gateway), home.socket(Role::Gateway)?);
    Gateway::find(home)?;
    files::make_directory(&state)?;
    let _lock = Lock::take(&state)?;
    let gateway = Gateway::open_to_run(home)?;
    log::start(gateway.config.log, format);
    let own = gateway.lease()?;
    let mut applier = Applier::open(Places::usual(&state))?;
    let mut present = rove_os::links::snapshot()?;
    // Under another name this gateway's own interface would be in its own way.
    present.retain(|link| !applier.holds(&link.name));
    let plan = plan::gateway(&gateway.config, &own, gateway.ledger.registry(), &present);
    plan.check(&present)?;
    let listening = listen(&gateway.config)?;
    let streams = streams::listen(&gateway.config)?;
    let listener = Listener::bind(&socket)?;
    let took_over = applier.has_leftovers();
    let tun = applier.open_device(&plan)?;
    if let Err(error) = applier.apply(&plan) {
        // What an earlier gateway left carries its clients' connections, and stays.
        if !took_over {
            applier.undo()?;
        }
        return Err(error.into());
    }
    confine::to(&[home.dir(), &gateway.store_directory()])?;

    let (inbox, messages) = sync_channel(MESSAGES_MAX);
    signals::watch(inbox.clone())?;
    let config = node::config(&gateway.identity.key);
    let setup = Setup { config, tun, listening, streams, mark: Some(MARK) };
    let data = Handle::start(setup, inbox.clone(), Message::News)?;
    let links = links::watch(inbox.clone())?;
    let advertised = BTreeMap::new();
    let mut daemon = Daemon { gateway, own, links, applier, plan, data, advertised };
    daemon.warn_of_subnets();
    daemon.introduce_everybody();
    let server = listener.serve(inbox, Message::Asked)?;
    tracing::info!("the gateway runs");
    ready();
    let ended = daemon.serve(&messages);
    daemon.say_goodbye();
    drop(server);
    tracing::info!("the gateway has ended");
    ended
}

/// The control thread's belongings.
struct Daemon {
    gateway: Gateway,
    own: Lease,
    links: Vec<Link>,
    applier: Applier,
    /// As it was applied last.
    plan: Plan,
    data: Handle,
    /// What peers said last that lies behind them, granted or not. A peer that never said anything
    /// since this process began has no entry.
    advertised: BTreeMap<PeerKey, Vec<IpNet>>,
}

impl Daemon {
    /// Tells the core what the ledger knows.
    fn introduce_everybody(&self) {
        self.data.command(Command::SetLocals(self.locals()));
        for peer in self.gateway.ledger.registry().peers() {
            if peer.is_enrolled() {
                self.admit(peer);
            } else {
                self.data.command(Command::RevokePeer(peer.key.into()));
            }
        }
    }

    /// The addresses that clients may write to.
    fn locals(&self) -> Vec<IpAddr> {
        let tunnel = self.gateway.config.interface.as_str();
        let outside = self.links.iter().filter(|link| link.name != tunnel);
        outside.flat_map(|link| link.addresses.iter().map(ipnet::IpNet::addr)).collect()
    }

    fn admit(&self, peer: &Peer) {
        let Some(lease) = self.gateway.ledger.registry().lease(peer) else {
            tracing::warn!("a peer has no address in the networks any more and is left out");
            return;
        };
        let dns = &self.gateway.config.dns;
        let side = SideConfig::Client { lease: plan::core_lease(&lease, &self.own, dns) };
        let access = self.access(peer, &lease);
        let config = PeerConfig { key: peer.key.into(), psk: None, access, side };
        self.data.command(Command::AddPeer(Box::new(config)));
    }

    fn access(&self, peer: &Peer, lease: &Lease) -> rove_proto::role::Access {
        let none = Vec::new();
        let advertised = self.advertised.get(&peer.key.into()).unwrap_or(&none);
        let behind = plan::behind(&self.gateway.config, peer, advertised, &self.links);
        plan::access(&self.gateway.config, peer, lease, &self.own, &behind, &self.links)
    }

    /// A peer says what lies behind it: as far as its invite grants that, it is routed there.
    fn take_routes(&mut self, key: PeerKey, routes: &[Prefix]) {
        let Some(peer) = self.gateway.ledger.registry().peer(key) else { return };
        let routes: Vec<IpNet> = routes.iter().filter_map(plan::network).collect();
        let granted = |net: &IpNet| peer.subnets.iter().any(|subnet| subnet.contains(net));
        if let Some(net) = routes.iter().find(|net| !granted(net)) {
            let name = &peer.name;
            tracing::warn!(%name, %net, "a peer advertises what no invite of its grants");
        }
        let before = if routes.is_empty() {
            self.advertised.remove(&key).unwrap_or_default()
        } else {
            self.advertised.insert(key, routes.clone()).unwrap_or_default()
        };
        if before != routes {
            self.permit(key);
        }
    }

    /// Tells every client to ask again, so that it need not find out by silence.
    fn say_goodbye(&mut self) {
        for peer in self.gateway.ledger.registry().peers().filter(|peer| peer.is_enrolled()) {
            let (peer, code) = (peer.key.into(), CloseCode::Restarting);
            self.data.command(Command::Close { peer, code });
        }
        self.data.stop();
    }

    fn serve(&mut self, messages: &Receiver<Message>) -> Result<()> {
        for message in messages {
            match message {
                Message::Asked(asked) => self.answer(asked),
                Message::News(News::Event(event)) => self.note(event),
                Message::News(News::Ended(why)) => {
                    return Err(anyhow::anyhow!(why)).context("the data thread has ended");
                }
                Message::Links(links) => self.relink(links),
                Message::Signal(Signal::End) => return Ok(()),
                Message::Signal(Signal::Reload) => {
                    if let Err(error) = self.reload() {
                        tracing::error!("the configuration is not taken: {error:#}");
                    }
                }
                Message::Resolved(_) | Message::Proxy(_) | Message::Answered => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, asked: Asked) {
        let reply = match self.carry_out(asked.request) {
            Ok(value) => Reply::Ok(value),
            Err(error) => Reply::Error(format!("{error:#}").replace('\n', " ")),
        };
        // An asker that gave up waiting is no loss.
        let _ = asked.reply.try_send(reply);
    }

    fn carry_out(&mut self, request: Request) -> Result<Value> {
        let live = matches!(request, Request::Status | Request::Peers);
        let replan = matches!(request, Request::Revoke { .. });
        if request == Request::Reload {
            return self.reload();
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
        if live && let Some(snapshot) = self.data.status(None) {
            add_sessions(&mut reply, &snapshot, &self.advertised);
        }
        Ok(reply)
    }

    fn take_effect(&mut self, effect: &Effect) {
        match *effect {
            Effect::Expel(key) => {
                self.advertised.remove(&key);
                self.data.command(Command::RevokePeer(key));
            }
            Effect::Permit(key) => self.permit(key),
        }
    }

    /// Tells the core what a peer may do by now.
    fn permit(&self, key: PeerKey) {
        let registry = self.gateway.ledger.registry();
        let Some(peer) = registry.peer(key) else { return };
        let Some(lease) = registry.lease(peer) else { return };
        let access = self.access(peer, &lease);
        self.data.command(Command::SetAccess { peer: key, access });
    }

    fn await_core(&self) {
        let (reply, replied) = sync_channel(1);
        self.data.order(super::data::Order::Status { peers: Some(Vec::new()), reply });
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
                tracing::debug!(?peer, state = status::state(state), "session");
            }
            Event::Established { peer, first, .. } => {
                tracing::debug!(?peer, first, "fresh keys");
            }
            Event::Moved { peer, remote, took } => {
                tracing::debug!(?peer, %remote, ?took, "moved");
            }
            Event::Ended { peer, error } => {
                let timed_out = matches!(error, PeerError::TimedOut);
                tracing::debug!(?peer, %error, timed_out, "session ended");
            }
            Event::Routes { peer, routes } => self.take_routes(peer, &routes),
            Event::Announced { .. }
            | Event::Reached { .. }
            | Event::OpenSocket { .. }
            | Event::CloseSocket { .. }
            | Event::HandshakeCounter { .. }
            | Event::Refused { .. }
            | Event::Leased { .. } => {}
        }
    }

    /// A stranger with a token: durable first, admitted after.
    fn enrol(&mut self, key: PeerKey, token: TokenHash) {
        let now = wall_clock();
        let refusal = match self.gateway.ledger.registry().enrol(key, Some(token), now) {
            Ok(Enrolment::Known) => None,
            Ok(Enrolment::New(change)) => match self.gateway.ledger.make(change, now) {
                Ok(()) => None,
                Err(error) => {
                    tracing::error!(%error, "an enrolment could not be stored");
                    Some(Status::Busy)
                }
            },
            Err(refusal) => {
                let status = status_of(refusal);
                self.remember_refusal(key, refusal);
                Some(status)
            }
        };
        if let Some(status) = refusal {
            return self.data.command(Command::RefuseEnrolment { peer: key, status });
        }
        if let Some(peer) = self.gateway.ledger.registry().peer(key).cloned() {
            tracing::info!("a peer enrolled");
            self.admit(&peer);
            if !peer.subnets.is_empty() {
                self.replan();
            }
        }
    }

    fn note_refusal(&mut self, key: PeerKey, status: Status) {
        match status {
            Status::NotEnrolled => self.remember_refusal(key, Refusal::NotEnrolled),
            Status::Revoked => self.remember_refusal(key, Refusal::Revoked),
            // What this thread refused itself is written down already.
            Status::Accepted
            | Status::TokenUsed
            | Status::TokenExpired
            | Status::TokenUnknown
            | Status::StaleCounter { .. }
            | Status::Busy
            | Status::Unsupported
            | Status::Other(_) => {}
        }
    }

    fn remember_refusal(&mut self, key: PeerKey, refusal: Refusal) {
        tracing::debug!(peer = ?key, %refusal, "refused");
        if let Err(error) = self.gateway.ledger.note_refusal(key, refusal, wall_clock()) {
            tracing::error!(%error, "a refusal could not be written down");
        }
    }

    /// The links changed: other addresses to answer from, other networks that are not the Internet.
    fn relink(&mut self, links: Vec<Link>) {
        self.links = links;
        self.data.command(Command::SetLocals(self.locals()));
        let registry = self.gateway.ledger.registry();
        for peer in registry.peers().filter(|peer| peer.is_enrolled()) {
            self.permit(peer.key.into());
        }
        if self.replan() == Replanned::Same
            && let Err(error) = self.applier.reassert()
        {
            tracing::error!(%error, "the tunnel's addresses or routes could not be put back");
        }
    }

    /// Makes the host what it should be by now; what resists is told in the log, and tried again
    /// with the next change.
    fn replan(&mut self) -> Replanned {
        self.apply().unwrap_or_else(|error| {
            tracing::error!(%error, "the plan could not be applied");
            Replanned::Other
        })
    }

    fn apply(&mut self) -> Result<Replanned, rove_os::error::Error> {
        let registry = self.gateway.ledger.registry();
        let plan = plan::gateway(&self.gateway.config, &self.own, registry, &self.links);
        if plan == self.plan {
            return Ok(Replanned::Same);
        }
        // After an error the host is between two plans, and like none.
        self.plan = Plan::default();
        self.applier.apply(&plan)?;
        self.plan = plan;
        self.warn_of_subnets();
        Ok(Replanned::Other)
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

    /// Takes what can be changed while running, NAT; says whether more has changed.
    fn reload(&mut self) -> Result<Value> {
        let new = GatewayConfig::load(&self.gateway.home.config(Role::Gateway))?;
        let before = self.gateway.config.clone();
        let taken = GatewayConfig { nat: new.nat, ..before.clone() };
        let restart = new != taken;
        if restart {
            tracing::warn!("only nat changes while the gateway runs: restart it for the rest");
        }
        self.gateway.config = taken;
        if let Err(error) = self.apply() {
            self.gateway.config = before;
            self.replan();
            return Err(error.into());
        }
        tracing::info!("configuration read again");
        Ok(json!({ "restart": restart }))
    }
}

/// Whether the host was to be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replanned {
    Same,
    Other,
}

/// Opens the listening sockets. A host without IPv6 listens on IPv4 only.
fn listen(config: &GatewayConfig) -> Result<Vec<UdpSocket>> {
    let bind = |local: SocketAddr| {
        UdpSocket::bind(UdpOptions { local, ipv6_only: false, interface: None, mark: Some(MARK) })
    };
    let open = |&local: &SocketAddr| match bind(local) {
        Err(rove_os::error::Error::Os { .. }) if local.ip().is_unspecified() => {
            bind((Ipv4Addr::UNSPECIFIED, local.port()).into())
        }
        opened => opened,
    };
    config.listen.iter().map(|local| Ok(open(local)?)).collect()
}

const fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotEnrolled => Status::NotEnrolled,
        Refusal::Used => Status::TokenUsed,
        Refusal::Expired => Status::TokenExpired,
        Refusal::Unknown => Status::TokenUnknown,
        Refusal::Revoked => Status::Revoked,
        Refusal::Full => Status::Busy,
    }
}

/// Adds to a reply what only the running gateway knows.
fn add_sessions(
    reply: &mut Value,
    snapshot: &Snapshot,
    advertised: &BTreeMap<PeerKey, Vec<IpNet>>,
) {
    let heard_ago = |session: &PeerStatus| {
        let heard = session.paths.iter().filter_map(|path| path.heard_at).max();
        heard.map(|at| snapshot.now.saturating_since(at))
    };
    if let Some(running) = reply.get_mut("running") {
        *running = true.into();
        let sessions = snapshot.peers.iter().filter(|peer| has_session(peer.state));
        let lately = |peer: &&PeerStatus| heard_ago(peer).is_some_and(|ago| ago <= HEARD_WITHIN);
        let heard = sessions.clone().filter(lately).count();
        reply["sessions"] = sessions.count().into();
        reply["heard"] = heard.into();
        reply["heard_within_s"] = HEARD_WITHIN.as_secs().into();
        // As earlier versions called it, which counted sessions that nobody had heard of for days.
        reply["connected"] = heard.into();
        let drops = snapshot.drops.iter();
        let drops = drops.map(|&(name, count)| (name.to_owned(), json!(count)));
        reply["drops"] = Value::Object(drops.collect());
    }
    let live = snapshot.peers.iter();
    let live: BTreeMap<String, &PeerStatus> =
        live.map(|session| (encoding::to_text(&session.peer.0), session)).collect();
    let peers = reply.get_mut("peers").and_then(Value::as_array_mut);
    for peer in peers.into_iter().flatten() {
        let key = peer.get("key").and_then(Value::as_str);
        let Some(session) = key.and_then(|key| live.get(key)) else { continue };
        let path = session.paths.first();
        peer["session"] = status::state(session.state).into();
        peer["advertised"] = json!(advertised.get(&session.peer).map_or(&[][..], Vec::as_slice));
        peer["remote"] = path.map(|path| path.route.remote.to_string()).into();
        peer["last_heard_s"] = heard_ago(session).map(|ago| ago.as_secs()).into();
        peer["tx_bytes"] = session.paths.iter().map(|path| path.tx_bytes).sum::<u64>().into();
        peer["rx_bytes"] = session.paths.iter().map(|path| path.rx_bytes).sum::<u64>().into();
    }
}

const fn has_session(state: PeerState) -> bool {
    match state {
        PeerState::Up | PeerState::Moving | PeerState::Suspended => true,
        PeerState::Unestablished | PeerState::Down(_) => false,
    }
}
