//! `rove gateway ...`: through the control socket while the gateway runs, else on its files.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use serde_json::Value;

use super::output::{self, field, list, moment};
use crate::cli::{AllowArgs, InitArgs, InviteArgs, OutputArgs};
use crate::config::LogFormat;
use crate::control::{self, AskError, Request};
use crate::gateway::{self, Gateway};
use crate::home::{Home, Role};
use crate::ledger::wall_clock;
use crate::values::PeerName;

/// How long the files may be held by somebody who does not answer.
const IN_USE_WITHIN: Duration = Duration::from_secs(5);

/// Asks the running gateway, else its files. One that is just starting, or another command, may
/// hold the files for a moment without answering yet.
fn ask(home: &Home, request: &Request) -> Result<Value> {
    let socket = home.socket(Role::Gateway)?;
    let give_up = Instant::now() + IN_USE_WITHIN;
    loop {
        match control::ask(&socket, request) {
            Err(AskError::NotRunning) => {}
            answered => return Ok(answered?),
        }
        match Gateway::open(home) {
            Ok(mut gateway) => return Ok(gateway.answer(request.clone(), wall_clock())?.reply),
            Err(error) if gateway::is_in_use(&error) && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn init(home: &Home, args: InitArgs) -> Result<()> {
    Gateway::init(home, args)?;
    let dir = home.dir().display();
    output::line(&format!(
        "gateway made in {dir}: start it with `rove gateway run --dir {dir}`, and keep {} offline",
        home.operator_key().display()
    ))
}

pub(super) fn run(home: &Home, format: Option<LogFormat>) -> Result<()> {
    crate::daemon::run_gateway(home, format, || {
        // Not started by systemd, or it does not listen: nobody waits.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    })
}

pub(super) fn invite(home: &Home, args: InviteArgs) -> Result<()> {
    let InviteArgs { name, uses, expires, subnet, qr, json } = args;
    let reply = ask(home, &Request::Invite { name, uses, expires, subnets: subnet })?;
    if json {
        return output::json(&reply);
    }
    let invite = field(&reply, "invite");
    output::line(invite)?;
    if qr {
        // Upper case means the same and fits the smaller alphanumeric mode.
        let code = QrCode::with_error_correction_level(invite.to_ascii_uppercase(), EcLevel::L)
            .context("the invite is too long for a QR code: send the line instead")?;
        output::line(&code.render::<Dense1x2>().build())?;
    }
    Ok(())
}

pub(super) fn status(home: &Home, args: OutputArgs) -> Result<()> {
    let reply = ask(home, &Request::Status)?;
    if args.json {
        return output::json(&reply);
    }
    let running = reply.get("running").and_then(Value::as_bool).unwrap_or(false);
    let number = |name| reply.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut text = String::new();
    for (name, value) in [
        ("state", if running { "running" } else { "not running" }.to_owned()),
        ("endpoints", list(&reply, "endpoints")),
        ("networks", list(&reply, "networks")),
        ("inner", list(&reply, "inner")),
        ("enrolled", number("enrolled").to_string()),
        ("connected", number("connected").to_string()),
        ("open invites", number("open_invites").to_string()),
    ] {
        text.push_str(&format!("{name:14}{value}\n"));
    }
    let recent = reply.get("recent").and_then(Value::as_array);
    for entry in recent.into_iter().flatten() {
        let (event, name, why) = (field(entry, "event"), field(entry, "name"), field(entry, "why"));
        let what = [event, name, why].join(" ");
        text.push_str(&format!("{}  {}\n", moment(entry, "at"), what.trim_end()));
    }
    output::print(&text)
}

pub(super) fn peers(home: &Home, args: OutputArgs) -> Result<()> {
    let reply = ask(home, &Request::Peers)?;
    if args.json {
        return output::json(&reply);
    }
    let items = |name| reply.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut rows: Vec<[String; 6]> = Vec::new();
    for peer in items("peers") {
        let state = match field(&peer, "session") {
            "" => field(&peer, "state"),
            session => session,
        };
        rows.push([
            field(&peer, "name").to_owned(),
            state.to_owned(),
            list(&peer, "inner"),
            list(&peer, "subnets"),
            list(&peer, "allowed"),
            moment(&peer, "enrolled"),
        ]);
    }
    for invite in items("invites") {
        let count = |name| invite.get(name).and_then(Value::as_u64).unwrap_or_default();
        rows.push([
            field(&invite, "name").to_owned(),
            format!("invited {}/{}", count("used"), count("uses")),
            String::new(),
            list(&invite, "subnets"),
            String::new(),
            format!("until {}", moment(&invite, "expires")),
        ]);
    }
    let head = ["NAME", "STATE", "INNER", "SUBNETS", "ALLOWED", "SINCE"];
    output::print(&output::table(head, &rows))
}

pub(super) fn revoke(home: &Home, name: PeerName) -> Result<()> {
    let reply = ask(home, &Request::Revoke { name: name.clone() })?;
    let did = |what| reply.get(what).and_then(Value::as_bool).unwrap_or(false);
    let text = match (did("revoked"), did("withdrawn")) {
        (true, true) => "revoked, and its open invite withdrawn",
        (true, false) => "revoked",
        (false, _) => "had enrolled nobody; its open invite is withdrawn",
    };
    output::line(&format!("{name} {text}"))
}

pub(super) fn allow(home: &Home, args: AllowArgs) -> Result<()> {
    let AllowArgs { name, destinations, reset } = args;
    let reply = ask(home, &Request::Allow { name: name.clone(), destinations, reset })?;
    let allowed = list(&reply, "allowed");
    let allowed = if allowed.is_empty() { "nothing" } else { &allowed };
    output::line(&format!("{name} may reach the Internet and {allowed}"))
}

pub(super) fn backup(home: &Home, file: &Path) -> Result<()> {
    let reply = ask(home, &Request::Snapshot)?;
    let ledger = serde_json::from_value(reply)
        .context("the running gateway is of another version: restart it with this one")?;
    gateway::backup(home, ledger, file)?;
    output::line(&format!("{} written: it holds the gateway's key", file.display()))
}

pub(super) fn restore(home: &Home, file: &Path) -> Result<()> {
    match control::ask(&home.socket(Role::Gateway)?, &Request::Status) {
        Err(AskError::NotRunning) => {}
        Ok(_) | Err(_) => bail!("the gateway runs: stop it before you restore a backup"),
    }
    gateway::restore(home, file)?;
    output::line(&format!("restored into {}", home.dir().display()))
}
