//! Commands: from what was typed to what is printed.

mod check;
mod client;
mod flows;
mod gateway;
mod output;
mod paths;
mod reference;
mod rehearse;
mod ssh;

use anyhow::{Result, bail};

use clap::error::ErrorKind;
use rove_host::confine;
use rove_host::control::{self, AskError, Request};
use rove_host::home::{Home, Role};
use serde::de::IgnoredAny;

use crate::cli::{self, Cli, Command, GatewayCommand, LinkSet, SetArgs, SetCommand};

/// Does what was typed. An error is one line with cause and cure.
pub(crate) fn run(cli: Cli) -> Result<()> {
    let home = || Home::new(cli.dir.clone());
    // As the node's user, if root typed it: root must not be led by files of that user.
    let as_owner = || -> Result<Home> {
        let home = home()?;
        confine::become_owner(&home, None)?;
        Ok(home)
    };
    match cli.command {
        Command::Gateway(command) => run_gateway(home()?, command, cli.log_format),
        Command::Up(args) => client::up(&home()?, args, cli.log_format),
        Command::Down => client::down(&home()?),
        Command::Status(args) => client::status(&as_owner()?, args),
        Command::Check(args) => check::of_client(&as_owner()?, args),
        Command::Paths(args) => paths::of_client(&as_owner()?, args),
        Command::Flows(args) => flows::of_any(&as_owner()?, args),
        Command::Explain(args) => {
            let user = rove_os::plan::own_user();
            flows::explain(&as_owner()?, &args, user)
        }
        Command::Rehearse(args) => rehearse::run(&as_owner()?, &args),
        Command::Set(args) => set(&as_owner()?, &args),
        Command::Reload => reload(&as_owner()?),
        Command::StandKillSwitch => rove_client::stand(&home()?),
        Command::Adopt => {
            confine::adopt(&home()?);
            Ok(())
        }
        Command::Completions { shell } => reference::completions(shell),
        Command::Man { directory } => reference::manual(&directory),
    }
}

/// Changes how the client works that runs in `home`.
fn set(home: &Home, args: &SetArgs) -> Result<()> {
    match args.command {
        Some(SetCommand::Mode { mode }) => {
            client::set(home, &Request::SetMode { mode }, &format!("mode {mode}"))
        }
        Some(SetCommand::Scheduler { scheduler }) => client::set(
            home,
            &Request::SetScheduler { scheduler: scheduler.to_string() },
            &format!("scheduler {scheduler}"),
        ),
        Some(SetCommand::Recovery { recovery }) => {
            client::set(home, &Request::SetRecovery { recovery }, &format!("recovery {recovery}"))
        }
        Some(SetCommand::Manager { manager }) => {
            client::set(home, &Request::SetManager { manager }, &format!("manager {manager}"))
        }
        Some(SetCommand::Data { data }) => {
            client::set(home, &Request::SetData { data }, &format!("data {data}"))
        }
        Some(SetCommand::Subflows { subflows }) => {
            let request = Request::SetSubflows { subflows: subflows.number() };
            client::set(home, &request, &format!("subflows {subflows}"))
        }
        None => {
            let (what, value) = (args.of_link.as_deref(), args.value.as_deref());
            match LinkSet::parse(what.unwrap_or_default(), value.unwrap_or_default()) {
                Ok(LinkSet { name, key, value, setting }) => {
                    let done = format!("link.{name}.{key} {value}");
                    let setting = setting.in_request();
                    client::set(home, &Request::SetLink { name, setting }, &done)
                }
                Err(error) => cli::refuse(ErrorKind::ValueValidation, error),
            }
        }
    }
}

/// Every node that runs in `home` reads its file again.
fn reload(home: &Home) -> Result<()> {
    let gateway = gateway::reload(home)?;
    let client = control::ask::<IgnoredAny>(&home.socket(Role::Client)?, &Request::Status);
    match client {
        Err(AskError::NotRunning) if gateway => Ok(()),
        Err(AskError::NotRunning) if home.config(Role::Gateway).exists() => {
            bail!("the gateway does not run: it reads its configuration when it starts")
        }
        Ok(_) | Err(_) => client::reload(home),
    }
}

fn run_gateway(
    home: Home,
    command: GatewayCommand,
    log_format: Option<rove_host::config::LogFormat>,
) -> Result<()> {
    let home = &match command {
        // They make or read files elsewhere, or change the user themselves.
        GatewayCommand::Init(_)
        | GatewayCommand::Run
        | GatewayCommand::Dictionary(_)
        | GatewayCommand::Backup { .. }
        | GatewayCommand::Restore { .. } => home,
        GatewayCommand::Invite(_)
        | GatewayCommand::Status(_)
        | GatewayCommand::Check(_)
        | GatewayCommand::Peers(_)
        | GatewayCommand::Paths(_)
        | GatewayCommand::Flows(_)
        | GatewayCommand::Revoke { .. }
        | GatewayCommand::Allow(_)
        | GatewayCommand::ResetClock
        | GatewayCommand::Down => {
            confine::become_owner(&home, None)?;
            home
        }
        // Beside `dictionary`, only these sign. The others run while the node's user may have
        // changed gateway.toml.
        GatewayCommand::Move { .. } | GatewayCommand::Sign => {
            let home = home.with_operator_key()?;
            confine::become_owner(&home, None)?;
            home
        }
    };
    match command {
        GatewayCommand::Init(args) => gateway::init(home, args),
        GatewayCommand::Run => gateway::run(home, log_format),
        GatewayCommand::Invite(args) => gateway::invite(home, args),
        GatewayCommand::Status(args) => gateway::status(home, args),
        GatewayCommand::Check(args) => check::of_gateway(home, args),
        GatewayCommand::Peers(args) => gateway::peers(home, args),
        GatewayCommand::Paths(args) => paths::of_gateway(home, args),
        GatewayCommand::Flows(args) => flows::of_gateway(home, args),
        GatewayCommand::Revoke { name } => gateway::revoke(home, name),
        GatewayCommand::Allow(args) => gateway::allow(home, args),
        GatewayCommand::Move { endpoint } => gateway::relocate(home, &endpoint),
        GatewayCommand::Sign => gateway::sign(home),
        GatewayCommand::Dictionary(args) => gateway::dictionary(home, args),
        GatewayCommand::Backup { file } => gateway::backup(home, &file),
        GatewayCommand::Restore { file } => gateway::restore(home, &file),
        GatewayCommand::ResetClock => gateway::reset_clock(home),
        GatewayCommand::Down => gateway::down(home),
    }
}
