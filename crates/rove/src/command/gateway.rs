//! `rove gateway ...`: through the control socket while the gateway runs, else on its files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use rove_api::{
    Allowed, AuditEntry, ClockReset, Connections, GatewayStatus, Invited, Leaves, Peer, Peers,
    Reloaded, Revoked, RunningGateway, SessionState,
};
use rove_gateway::ask;
use rove_host::config::LogFormat;
use rove_host::confine;
use rove_host::control::{self, AskError, Request};
use rove_host::dictionary::CONTENT_BYTES_MAX;
use rove_host::home::{Home, Role};
use rove_host::values::{Endpoint, PeerName, spelt};

use super::output::{self, list, moment};
use crate::cli::{AllowArgs, DictionaryArgs, GatewayStatusArgs, InitArgs, InviteArgs, OutputArgs};

/// How long a move is watched, and how often.
const FOLLOW_WITHIN: Duration = Duration::from_secs(2);
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

pub(super) fn init(home: &Home, args: InitArgs) -> Result<()> {
    let InitArgs { endpoint, network, dns, store } = args;
    let config = rove_gateway::Config::new(endpoint, network, dns, store)?;
    rove_gateway::init(home, &config)?;
    config.doubts().iter().for_each(|doubt| output::warning(&format!("warning: {doubt}")));
    let dir = home.dir().display();
    output::line(&format!(
        "gateway made in {dir}: start it with `rove gateway run --dir {dir}`, and keep {} offline",
        home.operator_key().display()
    ))?;
    if config.dns.is_empty() {
        output::line(&format!(
            "no --dns was named: clients will resolve no names where their own name servers cannot \
             be reached through the tunnel; write for example dns = [\"9.9.9.9\"] into {}",
            home.config(Role::Gateway).display()
        ))?;
    }
    Ok(())
}

pub(super) fn run(home: &Home, format: Option<LogFormat>) -> Result<()> {
    rove_gateway::run(home, format, || {
        // Not started by systemd, or it does not listen: nobody waits.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    })
}

pub(super) fn invite(home: &Home, args: InviteArgs) -> Result<()> {
    let InviteArgs { name, uses, expires, subnet, qr, json } = args;
    let request = Request::Invite {
        name: name.to_string(),
        uses,
        expires: expires.to_string(),
        subnets: spelt(&subnet),
    };
    let reply: Invited = ask(home, &request)?;
    if json {
        return output::json(&reply);
    }
    let invite = &reply.invite;
    output::line(invite)?;
    if qr {
        // Upper case means the same and fits the smaller alphanumeric mode.
        let code = QrCode::with_error_correction_level(invite.to_ascii_uppercase(), EcLevel::L)
            .context("the invite is too long for a QR code: send the line instead")?;
        output::line(&code.render::<Dense1x2>().build())?;
    }
    Ok(())
}

pub(super) fn status(home: &Home, args: GatewayStatusArgs) -> Result<()> {
    let mut reply: GatewayStatus = ask(home, &Request::Status)?;
    if let Some(entries) = args.log {
        reply.recent = ask::<Vec<AuditEntry>>(home, &Request::Log { entries })?;
    }
    if args.json {
        return output::json(&reply);
    }
    let yes = |truth: bool| if truth { "yes" } else { "no" }.to_owned();
    let (sessions, host) = (reply.sessions.as_ref(), reply.host);
    let mut text = String::new();
    for (name, value) in [
        ("state", if reply.running { "running" } else { "not running" }.to_owned()),
        ("endpoints", list(&reply.endpoints)),
        ("announced", sessions.map(|running| list(&running.announced)).unwrap_or_default()),
        ("following", sessions.map(following).unwrap_or_default()),
        ("networks", list(&reply.networks)),
        ("inner", list(&reply.inner)),
        ("enrolled", reply.enrolled.to_string()),
        ("heard", sessions.map(heard).unwrap_or_default()),
        ("open invites", reply.open_invites.to_string()),
        ("nat", host.map(|host| yes(host.nat)).unwrap_or_default()),
        ("forwarding", host.map(|host| yes(host.forwarding)).unwrap_or_default()),
        ("internet", host.and_then(|host| host.leaves).map(internet).unwrap_or_default()),
        (
            "connections",
            host.and_then(|host| host.connections).map(connections).unwrap_or_default(),
        ),
        ("saved", sessions.and_then(|one| output::saved(&one.saved)).unwrap_or_default()),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{name:14}{value}\n"));
        }
    }
    for problem in output::problems(&reply.problems) {
        text.push_str(&format!("{:14}{problem}\n", "problem"));
    }
    for AuditEntry { at, event, name, why, .. } in &reply.recent {
        let (name, why) = (name.as_deref().unwrap_or_default(), why.as_deref().unwrap_or_default());
        let what = [event, name, why].join(" ");
        text.push_str(&format!("{}  {}\n", moment(*at), what.trim_end()));
    }
    output::print(&text)
}

/// The address families in which clients' packets leave the host.
pub(super) fn internet(leaves: Leaves) -> String {
    let word = |leaves: bool| if leaves { "yes" } else { "no" };
    let families = [("IPv4", leaves.ipv4), ("IPv6", leaves.ipv6)].into_iter();
    let told = families.filter_map(|(name, leaves)| Some(format!("{name} {}", word(leaves?))));
    let told = told.collect::<Vec<_>>().join(", ");
    match (leaves.ipv4, leaves.ipv6) {
        (Some(true), Some(false)) => {
            format!("{told}: clients reach no IPv6 destinations on the Internet")
        }
        _ => told,
    }
}

/// How full the host's table of connections is.
pub(super) fn connections(table: Connections) -> String {
    let Connections { tracked, max, share } = table;
    let share = share.map_or_else(String::new, |share| format!("; at most {share} for one client"));
    format!("{tracked} of at most {max}{share}")
}

/// How many sessions prove that they live. Nobody knows more: an idle client may say nothing for
/// days, and one that is gone says the same.
fn heard(running: &RunningGateway) -> String {
    let RunningGateway { heard, sessions, heard_within_s, .. } = running;
    format!("{heard} of {sessions} sessions in the last {heard_within_s} s")
}

/// How many sessions are where the gateway wants to be reached.
fn following(running: &RunningGateway) -> String {
    format!("{} of {} sessions", running.following, running.sessions)
}

pub(super) fn peers(home: &Home, args: OutputArgs) -> Result<()> {
    let reply: Peers = ask(home, &Request::Peers)?;
    if args.json {
        return output::json(&reply);
    }
    let mut rows: Vec<[String; 7]> = Vec::new();
    for peer in &reply.peers {
        let session = peer.session.as_ref();
        // It left, rests, or was not there since the gateway began.
        let is_away = session.is_some_and(|one| one.state == SessionState::Unestablished);
        let state = session.map_or_else(|| peer.state.word(), |session| session.state.word());
        let state = if is_away { "no session" } else { state };
        let is_shared = session.is_some_and(|session| session.shared_key_since.is_some());
        let state = if is_shared { format!("{state}, key on two hosts") } else { state.to_owned() };
        let last_heard_s = session.and_then(|session| session.last_heard_s);
        rows.push([
            peer.name.clone(),
            state,
            last_heard_s.map(ago).unwrap_or_default(),
            list(&peer.inner),
            list(&peer.subnets),
            list(&peer.allowed),
            moment(peer.enrolled),
        ]);
    }
    for invite in &reply.invites {
        rows.push([
            invite.name.clone(),
            format!("invited {}/{}", invite.used, invite.uses),
            String::new(),
            String::new(),
            list(&invite.subnets),
            list(&invite.allowed),
            format!("until {}", moment(invite.expires)),
        ]);
    }
    let head = ["NAME", "STATE", "HEARD", "INNER", "SUBNETS", "ALLOWED", "SINCE"];
    let mut text = output::table(head, &rows);
    text.extend(reply.peers.iter().filter_map(saved));
    output::print(&text)
}

/// A line for what the gateway saved on packets to a peer, if it saved anything.
fn saved(peer: &Peer) -> Option<String> {
    let told = output::saved(&peer.session.as_ref()?.saved)?;
    Some(format!("saved on packets to {}: {told}\n", peer.name))
}

/// A time that passed, in the largest unit that fits.
fn ago(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let fits = units.into_iter().find(|&(length, _)| seconds >= length);
    let (length, unit) = fits.unwrap_or((1, "s"));
    format!("{} {unit} ago", seconds / length)
}

pub(super) fn revoke(home: &Home, name: PeerName) -> Result<()> {
    let reply: Revoked = ask(home, &Request::Revoke { name: name.to_string() })?;
    let invites = list(&reply.invites);
    let text = match (reply.revoked, reply.withdrawn) {
        (true, true) if invites == name.to_string() => {
            "revoked, and its open invite withdrawn".to_owned()
        }
        (true, true) => format!("revoked, and the open invite it came by withdrawn: {invites}"),
        (true, false) => "revoked".to_owned(),
        (false, _) => "had enrolled nobody; its open invite is withdrawn".to_owned(),
    };
    output::line(&format!("{name} {text}"))
}

pub(super) fn reset_clock(home: &Home) -> Result<()> {
    let reply: ClockReset = ask(home, &Request::ResetClock)?;
    let again = list(&reply.open_again);
    let again = match again.as_str() {
        "" => "no invite had expired because of it".to_owned(),
        names => format!("these invites can be used again: {names}"),
    };
    output::line(&format!("invites expire by this host's clock from now on; {again}"))
}

pub(super) fn allow(home: &Home, args: AllowArgs) -> Result<()> {
    let AllowArgs { name, destinations, reset } = args;
    let (peer, destinations) = (name.to_string(), spelt(&destinations));
    let reply: Allowed = ask(home, &Request::Allow { name: peer, destinations, reset })?;
    let allowed = list(&reply.allowed);
    let allowed = if allowed.is_empty() { "only".to_owned() } else { format!("and {allowed}") };
    let when = if reply.enrolled { "" } else { ", once enrolled," };
    output::line(&format!("{name}{when} may reach the Internet {allowed}"))
}

pub(super) fn relocate(home: &Home, to: &Endpoint) -> Result<()> {
    let reply = rove_gateway::relocate(home, to)?;
    if let Some(warning) = &reply.warning {
        output::warning(warning);
    }
    let Some(told) = reply.told else {
        return output::line(&format!("the gateway will be at {to} when it starts"));
    };
    let follow = count_followers(home, told)?;
    let before = reply.before;
    output::line(&format!(
        "moved to {to}: {follow} of {told} sessions follow; {before} stays open until the gateway \
         starts again"
    ))
}

/// Signs a dictionary, whose file may belong to anybody.
pub(super) fn dictionary(home: &Home, args: DictionaryArgs) -> Result<()> {
    let DictionaryArgs { name, file, number } = args;
    let mut content = Vec::new();
    // One byte more shows that it is too long.
    File::open(&file)
        .and_then(|open| open.take(CONTENT_BYTES_MAX as u64 + 1).read_to_end(&mut content))
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let home = home.clone().with_operator_key()?;
    confine::become_owner(&home, None)?;
    let signed = rove_gateway::sign_dictionary(&home, &name, number, &content)?;
    output::line(&signed.to_string())
}

pub(super) fn sign(home: &Home) -> Result<()> {
    let rove_gateway::Signed { endpoints, networks, is_new } = rove_gateway::sign(home)?;
    let endpoints: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
    let networks: Vec<String> = networks.iter().map(|network| network.to_string()).collect();
    let done = if is_new { "signed" } else { "was signed already" };
    output::line(&format!(
        "{done}: endpoints {}; networks {}",
        endpoints.join(", "),
        networks.join(", ")
    ))
}

/// How many sessions have followed, when all have or a moment has passed: most need one round trip,
/// and `rove gateway status` shows the others come.
fn count_followers(home: &Home, told: u64) -> Result<u64> {
    let give_up = Instant::now() + FOLLOW_WITHIN;
    loop {
        let status: GatewayStatus = ask(home, &Request::Status)?;
        let follow = status.sessions.map_or(0, |running| running.following);
        if follow >= told || Instant::now() >= give_up {
            return Ok(follow.min(told));
        }
        thread::sleep(FOLLOW_PAUSE);
    }
}

pub(super) fn backup(home: &Home, file: &Path) -> Result<()> {
    rove_gateway::backup(home, file)?;
    output::line(&format!("{} written: it holds the gateway's key", file.display()))
}

pub(super) fn restore(home: &Home, file: &Path) -> Result<()> {
    let restored = rove_gateway::restore(home, file)?;
    let as_of = restored.written.map(output::moment).map(|at| format!(": as of {at}"));
    output::line(&format!("restored into {}{}", home.dir().display(), as_of.unwrap_or_default()))?;
    if let Some(why) = &restored.lost {
        output::line(&format!(
            "{why}: clients that were revoked since the backup are enrolled again, and invites \
             that were used or withdrawn are open again. Revoke them once more"
        ))?;
    }
    let dropped = &restored.dropped;
    for (what, names) in [
        ("peers that enrolled", &dropped.peers),
        ("open invites that were issued", &dropped.invites),
    ] {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(PeerName::to_string).collect();
            let names = names.join(", ");
            output::line(&format!("gone are {what} since the backup: {names}"))?;
        }
    }
    Ok(())
}

/// Whether a gateway runs; if so it has read its configuration again.
pub(super) fn reload(home: &Home) -> Result<bool> {
    let reply: Reloaded = match control::ask(&home.socket(Role::Gateway)?, &Request::Reload) {
        Err(AskError::NotRunning) => return Ok(false),
        reply => reply?,
    };
    let rest = if reply.restart {
        ": nat, hold, assist and rules. Restart the gateway for other changes"
    } else {
        ""
    };
    output::line(&format!("gateway reloaded{rest}"))?;
    Ok(true)
}

pub(super) fn down(home: &Home) -> Result<()> {
    let taken = rove_gateway::down(home)?;
    taken.warning.as_deref().into_iter().for_each(output::warning);
    output::line(match taken.was_left {
        true => "interface, routes and NAT are gone",
        false => "nothing of it is left",
    })
}
