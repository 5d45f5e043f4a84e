//! A running client: from a membership to a tunnel that carries, and what follows from links, names
//! and requests while it does.
//!
//! The order: everything that can be wrong is found before anything is touched; the kill switch
//! stands before the first datagram leaves; routes and DNS come with the lease. At the end all is
//! taken back but the kill switch, which only `rove down` removes.

mod addresses;
mod gateway_addresses;
mod hidden;
mod lease;
mod link_order;
mod lookups;
mod news;
mod order;
mod portal;
mod rehearsal;
mod requests;
mod saving;
mod troubles;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use rove_api::{Answer, Done};
use rove_host::control::{Listener, Reply};
use rove_host::data::{Handle, News, Order, Setup};
use rove_host::home::{Home, Role};
use rove_host::invite::Invite;
use rove_host::message::MESSAGES_MAX;
use rove_host::owed::Owed;
use rove_host::problems::Finding;
use rove_host::reconcile::Host;
use rove_host::resolve::Resolver;
use rove_host::signals::Signal;
use rove_host::start::{take_over, watch_all};
use rove_host::values::{Endpoint, Networks};
use rove_host::{confine, inner};
use rove_os::lock::Lock;
use rove_os::plan::{Applier, MARK, Places, Plan};
use rove_os::tun::{Tun, TunOptions};
use rove_os::watch::Area;
use rove_proto::codec::SavingConfig;
use rove_proto::crypto::Token;
use rove_proto::error::CloseCode;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, PeerConfig, SideConfig};
use rove_proto::wire::control::Lease;

use crate::config::{Config, TransportChoice};
use crate::discovery::Discovery;
use crate::membership::Membership;
use crate::message::{Message, Own};
use crate::portals::Portals;
use crate::refusal::refusal;
use crate::shared_since::SharedSince;
use crate::streams::{self, ResolvedProxy};
use crate::{leftovers, node, plan};
use gateway_addresses::GatewayAddresses;
use link_order::LinkOrder;
use lookups::Lookups;
use rehearsal::Rehearsal;
use troubles::{Trouble, not_carried};

/// What a client is to do, and whom it tells.
pub struct Wishes<'a> {
    /// The configuration, from the file and the command line; asked again for a reload.
    pub configure: &'a dyn Fn() -> Result<Config>,
    /// The invite, if one was given.
    pub invite: Option<&'a Invite>,
    /// Called once, when the first round trip through the tunnel is done.
    pub carries: &'a mut dyn FnMut(&Carries) -> Result<()>,
}

/// The tunnel carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carries {
    /// One line that says so, with addresses and interface.
    pub line: String,
    /// What does not work all the same, a line for each, with the cure.
    pub warnings: Vec<String>,
}

/// Runs the client until it is told to end. An error before [`Wishes::carries`] was called says why
/// the tunnel does not carry; an end without either was asked for by `rove down`.
pub fn run(home: &Home, wishes: Wishes<'_>) -> Result<()> {
    let config = (wishes.configure)()?;
    let deadline = Instant::now() + config.timeout.duration();
    let state = home.state(Role::Client);
    rove_host::files::make_directory(&state)?;
    let _lock = take_lock(&state)?;
    let membership = Membership::open(home, wishes.invite)?;
    config.saving.verify(membership.operator())?;
    let record = membership.gateway.record().clone();
    let tun = open_tun(&config)?;
    let owed = Owed::open(&state)?;
    let listener = Listener::bind(&home.socket(Role::Client)?)?;
    let places = Places::usual(&state);
    let mut applier = take_over(&places)?;
    let gateway_at = GatewayAddresses::new(membership);
    let (inbox, messages) = sync_channel(MESSAGES_MAX);
    let start = || -> Result<_> {
        // Sweeps what a crash left, too: none of it is wanted before there is a lease.
        applier.apply(&plan::client_before(&config, gateway_at.remotes()))?;
        confine::with_resolver(&[home.dir()], &places.resolver_files())?;
        let config = node::config(&gateway_at.membership.key, &config);
        let setup = Setup { config, tun, mark: Some(MARK) };
        let data = Handle::start(setup, inbox.clone(), Message::News)?;
        let links = watch_all(&inbox, &places)?;
        let server = listener.serve(inbox.clone(), Message::Asked)?;
        Ok((data, links, server))
    };
    let (data, links, server) =
        start().or_else(|error| applier.undo().map_err(Into::into).and(Err(error)))?;
    let mut client = Client {
        gateway: record.key,
        networks: record.networks,
        resolver: Resolver::new(inbox.clone()),
        discovery: Discovery::new(inbox.clone()),
        is_up: false,
        lookups: Lookups::new(Instant::now()),
        lease: None,
        reachable: Vec::new(),
        troubles: Vec::new(),
        noted: Noted::default(),
        shared: SharedSince::open(&state),
        progress: Progress::Asking,
        deadline,
        leaving: None,
        links: LinkOrder::new(links, &state, &inbox),
        portals: Portals::default(),
        inbox,
        configure: wishes.configure,
        config,
        gateway_at,
        proxy: None,
        applier,
        host: Host::default(),
        data,
        rehearsal: None,
        owed,
    };
    let ended = client.live(&messages, wishes.carries);
    drop(server);
    ended
}

fn open_tun(config: &Config) -> Result<Tun> {
    let name = config.interface.as_str();
    Ok(Tun::open(TunOptions { name, persistent: false, offload: true })?)
}

/// The control thread's belongings.
struct Client<'a> {
    configure: &'a dyn Fn() -> Result<Config>,
    config: Config,
    gateway: PeerKey,
    /// Where it may be.
    gateway_at: GatewayAddresses,
    /// What the operator signed: no lease may leave them.
    networks: Networks,
    /// The proxy of this network, once it is known where it is.
    proxy: Option<ResolvedProxy>,
    resolver: Resolver<Own>,
    discovery: Discovery,
    /// Whether a proven path carries, as the core said last.
    is_up: bool,
    /// When the name is to be resolved next, if nobody answers until then.
    lookups: Lookups,
    links: LinkOrder,
    portals: Portals,
    lease: Option<Lease>,
    /// The private networks that the gateway says it leads to.
    reachable: Vec<IpNet>,
    applier: Applier,
    /// Faults beside a working tunnel, as last reported.
    troubles: Vec<Trouble>,
    noted: Noted,
    /// Since when another host uses this client's key.
    shared: SharedSince,
    /// The state of the host around the tunnel.
    host: Host,
    data: Handle,
    /// The rehearsal that is under way, or was the last.
    rehearsal: Option<Rehearsal>,
    /// The connections for which bytes are owed.
    owed: Owed,
    inbox: SyncSender<Message>,
    progress: Progress,
    /// When the tunnel must carry.
    deadline: Instant,
    /// Who waits to hear that everything is taken down.
    leaving: Option<SyncSender<Reply<Answer>>>,
}

/// What is remembered of problems, and of what the core was told.
#[derive(Default)]
struct Noted {
    /// Since when a stream carries in place of UDP, in seconds since 1970.
    by_stream: Option<u64>,
    /// The log says that name servers cannot be restored. That does not end by itself.
    is_stuck_told: bool,
    /// How bytes are saved, as the core was told last.
    saving: Option<SavingConfig>,
}

/// How far the way to a tunnel that carries is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No keys, or no lease.
    Asking,
    /// Addresses and routes are in place, and a ping is under way.
    Proving,
    /// The first round trip is done; nobody was told yet.
    Proven,
    /// It was told.
    Told,
}

/// Whether the control thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Turn,
    End,
}

impl Client<'_> {
    /// From the first handshake to the last change taken back.
    fn live(
        &mut self,
        messages: &Receiver<Message>,
        carries: &mut dyn FnMut(&Carries) -> Result<()>,
    ) -> Result<()> {
        self.connect();
        let ended = self.serve(messages, carries);
        let undone = self.end();
        ended.and(undone)
    }

    fn connect(&mut self) {
        self.note_links();
        let token = self.gateway_at.membership.token().and_then(|token| Token::new(&token.0));
        let side = SideConfig::Gateway {
            remotes: self.gateway_at.reached(),
            counter: self.gateway_at.membership.counter(),
            token,
            advertise: self.config.advertise.iter().map(|&net| inner::prefix(net)).collect(),
        };
        let key = self.gateway;
        let access = lease::access(&self.config, None);
        let peer = PeerConfig { key, psk: None, access, side };
        self.data.command(Command::SetEarly(self.config.qos.early()));
        self.data.command(Command::SetPriorities(self.config.qos.priorities()));
        self.data.command(Command::SetOverrides(self.config.rules.core()));
        self.data.command(Command::AddPeer(Box::new(peer)));
        for break_off in self.owed.inherited(|peer| peer == key) {
            self.data.command(break_off);
        }
        self.set_streams();
        self.find_proxy();
        self.prepare_subflows();
        self.tell_links();
        self.suspect_portals();
        self.data.command(Command::Connect(key));
    }

    /// With MPTCP: its first stream has its subflows from the beginning, if this kernel has any.
    fn prepare_subflows(&mut self) {
        if self.config.paths.transport != TransportChoice::Mptcp {
            return;
        }
        if !rove_os::mptcp::is_available() {
            tracing::warn!(
                "this kernel has no MPTCP, or net.mptcp.enabled is 0: one TCP connection carries"
            );
        }
        self.apply_subflows();
    }

    /// The links have changed, or what is made of them: so do MPTCP's subflows.
    fn apply_subflows(&mut self) {
        if self.config.paths.transport == TransportChoice::Mptcp
            && let Err(error) = self.apply()
        {
            tracing::error!("the subflows of MPTCP cannot be changed: {error:#}");
        }
    }

    /// Tells the core by which streams the gateway may be reached.
    fn set_streams(&self) {
        let ways = if self.config.streams {
            let transport = self.config.paths.transport;
            let entrances = self.gateway_at.entrances(self.links.all());
            streams::ways(self.gateway_at.endpoints(), &entrances, self.proxy.as_ref(), transport)
        } else {
            Vec::new()
        };
        let alone = !self.config.paths.transport.has_udp();
        self.data.set_streams(self.gateway, ways, alone);
    }

    /// Asks where the proxy is, if there is one.
    fn find_proxy(&self) {
        if self.config.streams
            && self.config.paths.transport.has_streams()
            && let Some(proxy) = streams::proxy(&self.config.proxy)
        {
            self.discovery.ask_proxy(proxy, self.applier.outside_servers());
        }
    }

    fn serve(
        &mut self,
        messages: &Receiver<Message>,
        carries: &mut dyn FnMut(&Carries) -> Result<()>,
    ) -> Result<()> {
        loop {
            self.look_for_servers();
            self.resolve_when_due();
            match messages.recv_timeout(self.patience()) {
                Ok(message) => {
                    if self.take(message)? == Next::End {
                        self.owed.wind_up(self.config.persistence.rules(), &self.data);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.owed.write_due(Instant::now(), &self.data);
            if self.owed.is_wound_up() {
                return Ok(());
            }
            self.rerank_when_due();
            self.keep_host_when_due();
            self.look_for_portals();
            self.go_on_rehearsing();
            self.advance(carries)?;
        }
    }

    /// How long nothing is due but messages.
    fn patience(&self) -> Duration {
        let due = match self.progress {
            Progress::Asking | Progress::Proving | Progress::Proven => {
                self.deadline.min(self.lookups.due())
            }
            Progress::Told => self.lookups.due(),
        };
        let rehearsal = self.rehearsal.as_ref().and_then(Rehearsal::due);
        let (links, portals) = (self.links.due(), self.portals.due());
        let (owed, host) = (self.owed.due(), self.host.due());
        let due = [links, self.lookups.look_due(), portals, owed, host, rehearsal]
            .into_iter()
            .flatten()
            .fold(due, Instant::min);
        due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    fn take(&mut self, message: Message) -> Result<Next> {
        match message {
            Message::Asked(asked) => return Ok(self.answer(asked)),
            Message::News(News::Event(event)) => self.note(event)?,
            Message::News(News::Ended(why)) => {
                return Err(anyhow!(why)).context("the data thread has ended");
            }
            Message::Links(links) => self.relink(links),
            Message::Host(changes) => {
                if changes.iter().any(|change| change.area == Area::Resolver) && !self.is_up {
                    // The network's name server often appears after its address.
                    self.lookups.hurry(Instant::now());
                }
                self.host.owe(changes);
            }
            Message::Own(Own::Signals(signals)) => {
                self.links.take_signals(signals);
                self.rerank();
            }
            Message::Own(Own::Tariffs(known)) => {
                self.links.take_tariffs(known);
                self.rerank();
                let Self { noted, config, data, gateway, links, .. } = &mut *self;
                saving::tell(&mut noted.saving, config, (data, *gateway), links);
            }
            Message::Signal(Signal::Reload) => {
                if let Err(error) = self.reload() {
                    tracing::error!("the configuration is not taken: {error:#}");
                }
            }
            Message::Signal(Signal::End) if self.progress == Progress::Told => {
                return Ok(Next::End);
            }
            Message::Signal(Signal::End) => {
                return Err(anyhow!("interrupted before the tunnel carried"));
            }
            Message::Resolved(resolved) => self.readdress(resolved),
            Message::Own(Own::Portal { link, answer }) => self.take_portal(link, answer),
            Message::Own(Own::Nat64 { network, prefixes }) => self.take_nat64(&network, prefixes),
            Message::Own(Own::Proxy(proxy)) => {
                self.proxy = Some(proxy);
                self.set_streams();
            }
            Message::Own(Own::Answered) => {
                if self.progress == Progress::Proving {
                    self.progress = Progress::Proven;
                }
            }
        }
        Ok(Next::Turn)
    }

    /// Says that the tunnel carries when it is proven, and gives up at the deadline.
    fn advance(&mut self, carries: &mut dyn FnMut(&Carries) -> Result<()>) -> Result<()> {
        match self.progress {
            Progress::Proven => {
                self.progress = Progress::Told;
                let inner = self.lease.iter().flat_map(|lease| &lease.addresses);
                let inner: Vec<String> = inner.map(|net| net.address.to_string()).collect();
                let mut line = format!("up: {} on {}", inner.join(" and "), self.config.interface);
                if let ended @ 1.. = self.applier.ended() {
                    let (connections, end) =
                        if ended == 1 { ("connection", "ends") } else { ("connections", "end") };
                    line.push_str(&format!("; {ended} {connections} from before {end}"));
                }
                self.troubles = self.find_troubles();
                let troubles = self.troubles.iter().map(|(_, line)| line.clone());
                let unasked = self.lease.iter().find_map(|it| lease::unasked(&self.config, it));
                let unasked = unasked.map(str::to_owned);
                let warnings = troubles.chain(self.config.idle()).chain(unasked);
                let families = not_carried(&self.config, self.lease.as_ref(), &self.links);
                let warnings = warnings.chain(families).collect();
                carries(&Carries { line, warnings })
            }
            Progress::Asking | Progress::Proving if Instant::now() >= self.deadline => {
                Err(self.why_not())
            }
            Progress::Asking | Progress::Proving | Progress::Told => Ok(()),
        }
    }

    /// Faults beside a working tunnel.
    fn find_troubles(&self) -> Vec<Trouble> {
        let Self { config, lease, reachable, applier, links, .. } = self;
        let found = lease.as_ref().map(|it| troubles::find(config, it, reachable, applier, links));
        found.unwrap_or_default()
    }

    /// Logs new faults.
    fn tell_troubles(&mut self) {
        if self.progress != Progress::Told {
            return;
        }
        let found = self.find_troubles();
        for new in found.iter().filter(|trouble| !self.troubles.contains(trouble)) {
            tracing::warn!("{}", new.1);
        }
        self.troubles = found;
    }

    /// Why nothing carries at the deadline.
    fn why_not(&self) -> anyhow::Error {
        let within = self.config.timeout;
        if let Some(unused) = self.links.unused().first().filter(|_| self.links.ranked().is_empty())
        {
            return anyhow!(
                "no link is to be used: {} is not, by [[link]] in the configuration or its cap",
                unused.link.name
            );
        }
        if self.links.ranked().is_empty() {
            return anyhow!("no network: connect this host to one and try again");
        }
        let asked: Vec<String> =
            self.gateway_at.endpoints().iter().map(Endpoint::to_string).collect();
        let asked = asked.join(" or ");
        if self.gateway_at.remotes().is_empty() {
            // The resolver said so, or is still waiting for its servers.
            let name = self.gateway_at.unresolved().unwrap_or(&asked);
            return anyhow!("{name} does not resolve: check the name, and this host's DNS");
        }
        if self.progress == Progress::Proving {
            return anyhow!(
                "{asked} answers, but no ping came back through the tunnel within {within}: let \
                 the gateway's firewall answer pings from its tunnel"
            );
        }
        if let Some(portal) = self.portals_told().first() {
            let again = if self.keeps_browsers_in() { "run `rove down`, then" } else { "then" };
            return anyhow!("{portal}, {again} connect again");
        }
        let snapshot = self.data.status(Some(vec![self.gateway]));
        let session = snapshot.as_ref().and_then(|snapshot| snapshot.peers.first());
        let links = self.links.ranked().iter().map(|ranked| &ranked.link);
        let want = self.gateway_at.want_of_family(links);
        let forbidden = snapshot.as_ref().and_then(|snapshot| snapshot.forbidden);
        let is_forbidden = forbidden.is_some_and(|found| found.lasts());
        match (session.and_then(|session| session.refused), want) {
            (Some(status), _) => anyhow!(refusal(status)),
            (None, Some(want)) => anyhow!("no answer from {asked} within {within}: {want}"),
            (None, None) if is_forbidden => anyhow!(
                "no answer from {asked} within {within}: a packet filter of this host drops UDP to \
                 it (the kernel answers EPERM): let it out (`nft list ruleset`, output hook)"
            ),
            (None, None) => anyhow!(
                "no answer from {asked} within {within}: check that the gateway runs and that \
                 nothing on the way blocks UDP, and TCP, to it"
            ),
        }
    }

    /// Takes everything back but the kill switch, and that too when asked to leave.
    fn end(&mut self) -> Result<()> {
        // The tunnel carries until new packets leave beside it. Until then the guard stands.
        let opened = match self.leaving {
            Some(_) => self.applier.remove_kill_switch(),
            None => Ok(()),
        };
        let released = self.applier.release();
        let (peer, code) = (self.gateway, CloseCode::Requested);
        self.data.command(Command::Close { peer, code });
        self.data.stop();
        self.links.write_counts();
        if let Err(error) = self.gateway_at.membership.settle() {
            tracing::warn!("where the gateway is cannot be stored: {error:#}");
        }
        let undone = match self.leaving {
            Some(_) => self.applier.leave().map(leftovers::tell_blocked),
            None => self.applier.undo(),
        };
        let undone = undone.and(released);
        if let Some(why) = self.applier.unwritten() {
            tracing::warn!("everything is taken back, but the record of it stays: {why}");
        }
        let Some(leaving) = self.leaving.take() else { return Ok(undone?) };
        // Even if something else resisted: whoever asks to leave wants the network back.
        let ended = undone.and(opened);
        let reply = match &ended {
            Ok(()) => Reply::Ok(Done {}.into()),
            Err(error) => Reply::Error(error.to_string()),
        };
        // An asker that gave up waiting is no loss.
        let _ = leaving.try_send(reply);
        Ok(ended?)
    }

    fn apply(&mut self) -> Result<()> {
        self.applier.apply(&self.plan())?;
        self.tell_troubles();
        Ok(())
    }

    fn plan(&self) -> Plan {
        let plan = match &self.lease {
            Some(lease) => {
                plan::client(&self.config, lease, &self.reachable, self.gateway_at.remotes())
            }
            None => plan::client_before(&self.config, self.gateway_at.remotes()),
        };
        let subflows = plan::subflows(&self.config.paths, self.there());
        Plan { subflows, ..plan }
    }

    /// Checks the host, and applies a new plan, when that is due.
    fn keep_host_when_due(&mut self) {
        let Some(owed) = self.host.take_due(Instant::now()) else { return };
        let plan = self.plan();
        if let Some(tun) = self.host.keep(&mut self.applier, owed.scope, &plan) {
            self.data.order(Order::Device(tun));
        }
        let stuck = troubles::stuck_resolver(&self.applier).filter(|_| !self.noted.is_stuck_told);
        if let Some(Finding { what, cause, cure, .. }) = stuck {
            self.noted.is_stuck_told = true;
            tracing::error!("{what}: {cause}. Cure: {cure}");
        }
        // Another program's tunnel may have other networks now, or this host has guests.
        let is_elsewhere = || self.applier.is_elsewhere(&plan).unwrap_or(false);
        if (owed.replan || (self.lease.is_some() && is_elsewhere()))
            && let Err(error) = self.apply()
        {
            tracing::error!("the settings of links cannot be changed: {error:#}");
        }
    }
}

/// Of a client people know that it is up, not which process it is.
fn take_lock(state: &Path) -> Result<Lock> {
    let taken = Lock::take(state);
    if let Err(rove_os::error::Error::SecondInstance { pid, .. }) = &taken {
        bail!("already up (process {pid}): see `rove status`, or `rove down` first");
    }
    Ok(taken?)
}
