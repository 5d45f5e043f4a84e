//! What a client answers on its control socket.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use rove_api::{Answer, Changed, ClientStatus, Done, Flows, Node, RunningClient};
use rove_host::control::{Asked, Reply, Request};
use rove_host::flows::{self, Whose};
use rove_host::inner;
use rove_host::problems::Finding;
use rove_host::values::spelt;
use rove_host::{encoding, offload, resolve, shared_key};
use rove_os::plan::{Applier, Beside, Part, own_user};
use rove_proto::codec::SavingConfig;
use rove_proto::id::LinkId;
use rove_proto::node::{Command, PathStatus, PeerStatus};

use super::rehearsal::Rehearsal;
use super::{Client, Next, portal, saving, troubles};
use crate::config::{Config, LinkScheduler, LinkSetting, PathsConfig, Subflows};
use crate::refusal::refusal;
use crate::search::{self, Search};
use crate::session_problems;
use crate::status::{self, Surroundings};

/// Excluded networks that the status names; there may be thousands.
const EXCLUDED_TOLD: usize = 16;
/// Links that cannot be used and are named at most. More would make the line unreadable.
const DOWN_MAX: usize = 4;

impl Client<'_> {
    pub(super) fn answer(&mut self, asked: Asked) -> Next {
        let Asked { request, reply } = asked;
        if request == Request::Down {
            // Answered when everything is taken down.
            self.leaving = Some(reply);
            return Next::End;
        }
        let answer = match self.carry_out(request) {
            Ok(answer) => Reply::Ok(answer),
            Err(error) => Reply::Error(format!("{error:#}").replace('\n', " ")),
        };
        // An asker that gave up waiting is no loss.
        let _ = reply.try_send(answer);
        Next::Turn
    }

    fn carry_out(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Status | Request::Paths => self.tell(&request),
            Request::Flows { meant, user } => {
                Ok(self.flows(&meant, user.unwrap_or_else(own_user))?.into())
            }
            Request::Reload => {
                self.reload()?;
                Ok(Done {}.into())
            }
            Request::SetMode { mode } => {
                self.set_paths(PathsConfig { mode, ..self.config.paths });
                Ok(Changed::default().into())
            }
            Request::Rehearse { unplug, lasts, force } => {
                Ok(self.rehearse(&unplug, lasts.parse()?, force)?.into())
            }
            Request::Rehearsed => Ok(self.rehearsed()?.into()),
            Request::SetScheduler { scheduler } => {
                let scheduler: LinkScheduler = scheduler.parse()?;
                self.set_paths(PathsConfig { scheduler, ..self.config.paths });
                Ok(self.changed("scheduler").into())
            }
            Request::SetRecovery { recovery } => {
                self.set_paths(PathsConfig { recovery, ..self.config.paths });
                Ok(self.changed("recovery").into())
            }
            Request::SetManager { manager } => {
                self.set_paths(PathsConfig { manager, ..self.config.paths });
                Ok(self.changed("manager").into())
            }
            Request::SetSubflows { subflows } => {
                let subflows = Subflows::new(subflows.into())?;
                self.set_paths(PathsConfig { subflows, ..self.config.paths });
                Ok(self.changed("subflows").into())
            }
            Request::SetData { data } => {
                self.config.saving.data = data;
                tell_saving(self);
                Ok(Changed::default().into())
            }
            Request::SetLink { name, setting } => {
                self.config.links.set(&name, LinkSetting::of_request(setting)?)?;
                self.take_rules();
                Ok(Changed { warning: self.links.unknown(&name) }.into())
            }
            Request::Down
            | Request::Peers
            | Request::PeerPaths { .. }
            | Request::Invite { .. }
            | Request::Revoke { .. }
            | Request::Allow { .. }
            | Request::Move { .. }
            | Request::ResetClock
            | Request::Snapshot
            | Request::Log { .. } => bail!("a client has no such command: see `rove --help`"),
        }
    }

    /// The setting of `[paths]` was changed.
    fn changed(&self, setting: &str) -> Changed {
        Changed { warning: self.config.paths.idle(setting) }
    }

    fn flows(&self, meant: &[String], user: u32) -> Result<Flows> {
        let told = flows::tell(
            Node::Client,
            &self.data,
            (&self.config.persistence, &self.config.rules),
            meant,
            |key, session| {
                let paths = session.map(|session| session.paths.as_slice()).unwrap_or_default();
                let link = |path: &PathStatus| {
                    let link = self
                        .links
                        .all()
                        .iter()
                        .find(|link| path.link == Some(LinkId(link.index)))?;
                    Some((path.id, link.name.clone()))
                };
                let links = paths.iter().filter_map(link).collect();
                Whose { peer: encoding::to_text(&key.0), links, mode: Some(self.config.paths.mode) }
            },
        )?;
        let address = flows::address(meant).filter(|_| told.flows.is_empty());
        // Packets may be blocked on the link where they would leave.
        let blocked = address.and_then(|address| {
            let link = rove_os::plan::link_to(address, user).ok()??;
            Some(self.applier.blocks(address, &link))
        });
        Ok(Flows { blocked, ..told })
    }

    fn tell(&mut self, request: &Request) -> Result<Answer> {
        let snapshot = self.data.status(Some(vec![self.gateway]));
        let snapshot = snapshot.context("the data thread does not answer: see the log")?;
        let session = snapshot.peers.first().context("the session is gone: see the log")?;
        let links: BTreeMap<u32, String> =
            self.links.all().iter().map(|link| (link.index, link.name.clone())).collect();
        let plan = self.lease.is_some().then(|| self.plan());
        let is_set = self.applier.dns_refused().is_none();
        let dns = plan.and_then(|plan| plan.dns).filter(|_| is_set).unwrap_or_default();
        let (kill_switch, keeps_in) = (self.applier.kill_switch_stands(), self.keeps_browsers_in());
        let look = (*request == Request::Status).then(|| {
            let troubles = self.find_troubles();
            let troubles = troubles.iter().map(|(part, line)| Finding::of_line(part, line));
            let held = self.portals_told().into_iter();
            let held = held.map(|one| portal::finding(&one, keeps_in, kill_switch));
            // A portal on one link is no problem while another link carries.
            let held = held.filter(|_| !status::is_carrying(session, snapshot.now));
            let also =
                troubles.chain(held).chain(troubles::stuck_resolver(&self.applier)).collect();
            self.host.look(&mut self.applier, self.config.interface.as_str(), also)
        });
        let refused = session.refused.map(refusal);
        let (streams, ranked) = (&snapshot.streams, self.links.ranked());
        let (search, portals) = (self.search(), self.portals_told());
        let around = Surroundings {
            portals: &portals,
            keeps_browsers_in: keeps_in,
            kill_switch,
            paths: self.config.paths,
            dns: &dns,
            links: &links,
            ranked,
            unused: self.links.unused(),
            used: &self.links.data_used(),
            streams,
            refused,
            search,
        };
        if *request == Request::Paths {
            return Ok(status::paths(session, snapshot.now, &around).into());
        }
        let mut told = status::status(session, snapshot.now, &around);
        // The session is up before this host's routes lead into the tunnel.
        if told.carrying && self.lease.is_none() {
            told.carrying = false;
            "the session is up; this host's routes are not set yet".clone_into(&mut told.doing);
        }
        let (by_stream, forbidden) = (self.noted.by_stream, snapshot.forbidden);
        let mut problems =
            session_problems::problems(session, snapshot.now, &around, by_stream, forbidden);
        if let Some(look) = look {
            told.kill_switch = Some(kill_switch && look.is_whole(Part::KillSwitch));
            if !look.is_whole(Part::Dns) {
                told.dns.clear();
            }
            problems.extend(look.problems);
        }
        problems.extend(shared_key::at_client(session, snapshot.now).map(|p| self.shared.date(p)));
        let link = |path: &PathStatus| {
            let name = path.link.and_then(|link| links.get(&link.0));
            name.cloned().unwrap_or_else(|| "a link that is gone".to_owned())
        };
        problems.extend(offload::unmerged(snapshot.merging_off));
        problems.extend(saving::problem(session, snapshot.now, &self.config));
        problems.extend(offload::problems(std::iter::once(session), snapshot.now, link));
        self.host.settle(&mut problems);
        told.rehearsal = self.rehearsal.as_ref().and_then(Rehearsal::doing);
        let drops = snapshot.drops.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        tell_settings(&self.config, self.noted.saving.as_ref(), &mut told);
        told.running = Some(RunningClient { drops, problems, ..running(self, session) });
        Ok(told.into())
    }

    /// Where the gateway is looked for, and by which links.
    fn search(&self) -> Search<'_> {
        let name = resolve::first_name(self.gateway_at.endpoints());
        let usable = self.links.ranked().iter().map(|ranked| &ranked.link);
        let no_route = search::no_route(usable.clone(), &self.gateway_at.reached());
        Search {
            want: self.gateway_at.want_of_family(usable),
            links: self.links.ranked().len(),
            addresses: self.gateway_at.reached().len(),
            resolving: name.filter(|_| self.resolver.is_asking()),
            announced: self.gateway_at.membership.announced(),
            down: search::down(self.links.all(), self.config.interface.as_str(), DOWN_MAX),
            unused: self.links.why_unused(),
            no_route,
        }
    }

    /// Makes this of the links until the client ends, or reads its configuration again.
    fn set_paths(&mut self, paths: PathsConfig) {
        self.config.paths = paths;
        warn_of_idle(&self.config);
        self.data.command(Command::SetScheduler(paths.scheduler.0));
        self.data.command(Command::SetRecovery(paths.core_recovery()));
        self.data.command(Command::SetSpread(paths.spread()));
        self.data.command(Command::SetMode(paths.core_mode()));
        self.apply_subflows();
    }

    /// The links are chosen by other rules from now on. One of them may be metered since.
    fn take_rules(&mut self) {
        self.links.count(&self.config.links);
        self.rerank();
        tell_saving(self);
    }

    /// Takes the configuration again, but for the interface's name.
    pub(super) fn reload(&mut self) -> Result<()> {
        let new = (self.configure)()?;
        if new.interface != self.config.interface {
            bail!("the interface cannot change while the client runs: `rove down` first");
        }
        if new.advertise != self.config.advertise {
            bail!("advertised networks cannot change while the client runs: `rove down` first");
        }
        if new.paths.transport != self.config.paths.transport {
            bail!("paths.transport cannot change while the client runs: `rove down` first");
        }
        if new.security != self.config.security {
            bail!("[security] cannot change while the client runs: `rove down` first");
        }
        let fixed = |config: &Config| (config.persistence.timeout, config.persistence.memory);
        if fixed(&new) != fixed(&self.config) {
            bail!(
                "persistence.timeout and persistence.memory_mb cannot change while the client \
                 runs: `rove down` first"
            );
        }
        new.saving.verify(self.gateway_at.membership.operator())?;
        let new = Config { log: self.config.log, ..new };
        let old = std::mem::replace(&mut self.config, new);
        if let Err(error) = self.apply() {
            self.config = old;
            return Err(error);
        }
        if self.config.persistence != old.persistence {
            self.data.command(Command::SetHold(self.config.persistence.rules()));
        }
        if self.config.saving.headers != old.saving.headers {
            tracing::warn!("saving.headers changes with the next `rove up`");
        }
        if self.config.saving.dictionaries != old.saving.dictionaries {
            tracing::warn!("saving.dictionaries change with the next `rove up`");
        }
        if self.config.saving != old.saving {
            tell_saving(self);
        }
        if self.config.qos != old.qos {
            self.data.command(Command::SetEarly(self.config.qos.early()));
            self.data.command(Command::SetPriorities(self.config.qos.priorities()));
        }
        if self.config.rules != old.rules {
            self.data.command(Command::SetOverrides(self.config.rules.core()));
        }
        if self.config.paths != old.paths {
            self.set_paths(self.config.paths);
        } else if self.config.qos != old.qos || self.config.rules != old.rules {
            warn_of_idle(&self.config);
        }
        if self.config.links != old.links {
            self.take_rules();
        }
        if self.config.portal_check != old.portal_check {
            self.suspect_portals();
        }
        if (self.config.streams, &self.config.proxy) != (old.streams, &old.proxy) {
            self.proxy = None;
            self.set_streams();
            self.find_proxy();
        }
        Ok(())
    }
}

/// Tells the core how bytes are saved, if that is news.
fn tell_saving(client: &mut Client<'_>) {
    let Client { noted, config, data, gateway, links, .. } = client;
    saving::tell(&mut noted.saving, config, (data, *gateway), links);
}

/// The part of the status that only a running client has, without drops and problems.
fn running(client: &Client<'_>, session: &PeerStatus) -> RunningClient {
    RunningClient {
        inner_gateway: session.lease.as_ref().map(|lease| lease.gateway.clone()),
        mtu: inner::TUN_MTU,
        beside: beside(&client.applier),
        not_carried: troubles::not_carried(&client.config, client.lease.as_ref(), &client.links),
        ..RunningClient::default()
    }
}

/// The connections beside the tunnel, if this host's sockets can be listed.
fn beside(applier: &Applier) -> Option<rove_api::Beside> {
    let Beside { incoming, kept } = applier.beside().ok()?;
    Some(rove_api::Beside { incoming, kept })
}

/// Warns of settings that have no effect.
fn warn_of_idle(config: &Config) {
    for warning in config.idle() {
        tracing::warn!("{warning}");
    }
}

/// Which traffic uses the tunnel, and whether it takes as little data as possible: as the core was
/// told last, or when it began.
fn tell_settings(config: &Config, saving: Option<&SavingConfig>, told: &mut ClientStatus) {
    let at_first = config.saving.core(false).frugal;
    told.devices = config.rules.devices().iter().map(flows::device).collect();
    told.data = Some(config.saving.data);
    told.saves_data = saving.map_or(at_first, |saving| saving.frugal);
    let Config { route, exclude, allow_lan, .. } = config;
    told.route = spelt(route);
    told.exclude = spelt(&exclude[..exclude.len().min(EXCLUDED_TOLD)]);
    (told.excluded, told.allow_lan) = (exclude.len(), *allow_lan);
}
