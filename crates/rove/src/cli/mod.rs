//! The command line: what was typed, as values that need no more checks.
//!
//! Decides spelling, help and defaults; acts on nothing. A usage error is clap's, with exit code 2.

mod text;

use std::fmt;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use ipnet::IpNet;
use rove_api::{DataUse, LinkMode, PathManager, RecoveryFor, TransportChoice};
use rove_client::{DnsChoice, LinkScheduler, LinkSetting, Subflows};
use rove_gateway::StoreUrl;
use rove_host::config::LogFormat;
use rove_host::dictionary::DictionaryName;
use rove_host::invite::{self, Invite, InviteError};
use rove_host::values::{
    Destination, Endpoint, Lifetime, Misspelt, Networks, PeerName, parse_network,
};

/// One VPN session that never drops.
#[derive(Debug, Parser)]
#[command(name = "rove", version, arg_required_else_help = true, max_term_width = 100)]
#[command(disable_help_subcommand = true, after_help = text::AFTER_HELP)]
pub(crate) struct Cli {
    /// The node's directory [default: /etc/rove for root, else the user's state directory]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub dir: Option<PathBuf>,

    /// Format of log lines: text or json [default: as configured, else text]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Everywhere")]
    pub log_format: Option<LogFormat>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set up and run a gateway, and manage its clients
    #[command(subcommand, arg_required_else_help = true)]
    Gateway(GatewayCommand),
    /// Connect this host; the first time with an invite
    #[command(after_help = text::UP)]
    Up(UpArgs),
    /// Disconnect, and remove the kill switch
    Down,
    /// Show the state of the tunnel, and since when
    Status(OutputArgs),
    /// Test the tunnel and this host: what is wrong, since when, how to fix it
    #[command(after_help = text::CHECK)]
    Check(OutputArgs),
    /// Show every path: link, addresses, round-trip time, rate, share of traffic, loss
    #[command(after_help = text::PATHS)]
    Paths(PathsArgs),
    /// Show open connections, their state and how much data Rove keeps for each
    #[command(after_help = text::FLOWS)]
    Flows(OutputArgs),
    /// Explain how a connection is classified, scheduled and routed
    #[command(after_help = text::EXPLAIN)]
    Explain(ExplainArgs),
    /// Take a link out of use for a while and report the effect on each connection
    #[command(after_help = text::REHEARSE)]
    Rehearse(RehearseArgs),
    /// Change a setting of this client until it stops or reloads its configuration
    #[command(arg_required_else_help = true, after_help = text::SET)]
    Set(SetArgs),
    /// Reload the configuration of the client or the gateway
    Reload,
    /// Restore the kill switch that was active: for the unit that runs at boot, before the network
    #[command(hide = true)]
    StandKillSwitch,
    /// Give /etc/rove to the user rove if root owns it: for the units, which run as that user
    #[command(hide = true)]
    Adopt,
    /// Print completions for a shell: bash, elvish, fish, powershell, zsh
    #[command(hide = true)]
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

/// What to change.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// Set how several links are used
    #[command(after_help = text::MODE)]
    Mode {
        /// full, backup or single
        #[arg(value_name = "MODE")]
        mode: LinkMode,
    },
    /// Set the scheduler, which chooses a link for each packet
    #[command(after_help = text::SCHEDULER)]
    Scheduler {
        /// earliest, rtt, round-robin, redundant, loss, rate or latency
        #[arg(value_name = "NAME")]
        scheduler: LinkScheduler,
    },
    /// Set whether repair of losses favours throughput or latency
    #[command(after_help = text::RECOVERY)]
    Recovery {
        /// throughput or latency
        #[arg(value_name = "WHAT")]
        recovery: RecoveryFor,
    },
    /// Set which paths are used in mode full
    #[command(after_help = text::MANAGER)]
    Manager {
        /// one-per-link or full-mesh
        #[arg(value_name = "MANAGER")]
        manager: PathManager,
    },
    /// Set when as little data as possible is used
    #[command(after_help = text::DATA)]
    Data {
        /// save, normal or auto
        #[arg(value_name = "WHEN")]
        data: DataUse,
    },
    /// Set the number of paths for each pair of addresses in mode full
    #[command(after_help = text::SUBFLOWS)]
    Subflows {
        /// 1 to 4
        #[arg(value_name = "NUMBER")]
        subflows: Subflows,
    },
}

/// What to change: one thing of the client, or of one of its links.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SetArgs {
    /// Of the client.
    #[command(subcommand)]
    pub command: Option<SetCommand>,
    /// A setting of one link
    #[arg(value_name = "link.NAME.KEY", requires = "value")]
    pub of_link: Option<String>,
    /// The new value
    #[arg(value_name = "VALUE")]
    pub value: Option<String>,
}

/// What to do with a gateway.
#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Create the directory, keys, configuration and store of a new gateway
    #[command(after_help = text::INIT)]
    Init(InitArgs),
    /// Run the gateway in the foreground
    Run,
    /// Print an invite: one line with which a client enrols
    #[command(after_help = text::INVITE)]
    Invite(InviteArgs),
    /// Show whether the gateway runs, which clients are connected and recent events
    Status(GatewayStatusArgs),
    /// Test the gateway and its host: what is wrong, since when, how to fix it
    #[command(after_help = text::GATEWAY_CHECK)]
    Check(OutputArgs),
    /// List all peers and open invites
    Peers(OutputArgs),
    /// Show the paths to each client: addresses, round-trip time, rate, share of traffic, loss
    Paths(PeerPathsArgs),
    /// Show open connections of all clients, and how much data Rove keeps for each
    #[command(after_help = text::FLOWS)]
    Flows(OutputArgs),
    /// Remove a peer: end its session at once and withdraw its open invite
    Revoke {
        /// The peer's name.
        #[arg(value_name = "NAME")]
        name: PeerName,
    },
    /// Allow a peer to reach destinations other than the Internet
    #[command(after_help = text::ALLOW)]
    Allow(AllowArgs),
    /// Move the gateway to a new endpoint; connected clients follow
    #[command(after_help = text::MOVE)]
    Move {
        /// The new endpoint.
        #[arg(value_name = "NEW-ENDPOINT")]
        endpoint: Endpoint,
    },
    /// Sign the endpoints and networks of gateway.toml with the operator key, after a change
    #[command(after_help = text::SIGN)]
    Sign,
    /// Sign a dictionary, with which clients and gateway compress telemetry of one kind
    #[command(after_help = text::DICTIONARY)]
    Dictionary(DictionaryArgs),
    /// Write everything except the operator key to one private file
    Backup {
        /// The file to create.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Replace the gateway's files with a backup; peers revoked since then stay revoked
    Restore {
        /// The backup.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Trust this host's clock again after it was far ahead: until then invites expire by the
    /// latest time that the gateway ever saw
    ResetClock,
    /// Remove the interface, routes and NAT rules that a stopped gateway left on this host
    #[command(after_help = text::GATEWAY_DOWN)]
    Down,
}

/// Where data comes out.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct OutputArgs {
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// How the paths of a client come out.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct PathsArgs {
    /// Refresh every second until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Duration of --watch [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", requires = "watch")]
    pub lasts: Option<Lifetime>,
    /// Print JSON, with --watch one line per refresh; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// Whose paths come out.
#[derive(Args, Debug)]
pub(crate) struct PeerPathsArgs {
    /// Show only this peer's paths
    #[arg(value_name = "NAME")]
    pub name: Option<PeerName>,
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// Which connection to explain.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Words to search for: an address, a port, a class, tcp or udp
    #[arg(value_name = "FLOW", required = true, num_args = 1..)]
    pub flow: Vec<String>,
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// What to do without.
#[derive(Args, Debug)]
pub(crate) struct RehearseArgs {
    /// The link, as `rove paths` names it
    #[arg(long, value_name = "LINK")]
    pub unplug: String,
    /// Duration, at most 10m
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub lasts: Lifetime,
    /// Proceed even if no other link is known to work
    #[arg(long)]
    pub force: bool,
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// What of a gateway comes out.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct GatewayStatusArgs {
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
    /// Number of audit log entries to show [default: 10]
    #[arg(long, value_name = "N")]
    pub log: Option<u32>,
}

/// What a new gateway is.
#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Public address of this gateway, preferred one first; may be repeated
    #[arg(long, required = true, num_args = 1.., value_name = "HOST:PORT")]
    pub endpoint: Vec<Endpoint>,
    /// Network inside the tunnel: one IPv4, one IPv6, or both
    #[arg(long, value_name = "CIDR[,CIDR6]")]
    pub network: Networks,
    /// DNS server for clients while the tunnel is up; may be repeated
    #[arg(long, num_args = 1.., value_name = "ADDR")]
    pub dns: Vec<std::net::IpAddr>,
    /// Database of peers
    #[arg(long, value_name = "URL", default_value_t)]
    pub store: StoreUrl,
}

/// Which dictionary to sign.
#[derive(Args, Debug)]
pub(crate) struct DictionaryArgs {
    /// The name by which a rule asks for it
    #[arg(value_name = "NAME")]
    pub name: DictionaryName,
    /// Its content: what is most frequent stands last
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its number, 8 to 15 [default: the first that gateway.toml does not use]
    #[arg(long, value_name = "N")]
    pub number: Option<u8>,
}

/// What an invite grants.
#[derive(Args, Debug)]
pub(crate) struct InviteArgs {
    /// The peer's name; with --uses, later peers get this name and a number
    #[arg(value_name = "NAME")]
    pub name: PeerName,
    /// Number of clients that may enrol with it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub uses: u32,
    /// Time until it expires
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub expires: Lifetime,
    /// Subnet behind the client that it may advertise; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub subnet: Vec<IpNet>,
    /// Also print a QR code
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// What a peer may reach.
#[derive(Args, Debug)]
pub(crate) struct AllowArgs {
    /// The peer's name
    #[arg(value_name = "NAME")]
    pub name: PeerName,
    /// Networks or addresses; with a port only TCP and UDP to that port
    #[arg(value_name = "CIDR[:PORT]", required_unless_present = "reset")]
    pub destinations: Vec<Destination>,
    /// First remove all earlier permissions
    #[arg(long)]
    pub reset: bool,
}

/// How to connect.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Invite, needed once; `-` reads it from standard input, where no other user sees it
    #[arg(value_name = "INVITE")]
    pub pasted: Vec<Pasted>,
    /// The invite that was found in the pasted text or in the input.
    #[arg(skip)]
    pub invite: Option<Invite>,
    /// Stay in the foreground; print one line when the tunnel is up
    #[arg(long)]
    pub foreground: bool,
    /// Send only this network through the tunnel; may be repeated [default: all traffic]
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub route: Vec<IpNet>,
    /// Keep this network out of the tunnel; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub exclude: Vec<IpNet>,
    /// Block all traffic outside the tunnel until `rove down`
    #[arg(long)]
    pub kill_switch: bool,
    /// Keep the local network reachable
    #[arg(long)]
    pub allow_lan: bool,
    /// Route also the SSH connection of this shell through the tunnel
    #[arg(long)]
    pub no_keep_ssh: bool,
    /// Name servers: set (use the gateway's) or leave (change nothing) [default: set]
    #[arg(long, value_name = "WAY")]
    pub dns: Option<DnsChoice>,
    /// Advertise a subnet behind this client, as the invite allows; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub advertise: Vec<IpNet>,
    /// Use of several links: full, backup or single, see `rove set mode` [default: full]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<LinkMode>,
    /// Scheduler for several links: see `rove set scheduler` [default: earliest]
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<LinkScheduler>,
    /// Transport: auto, udp, tcp or mptcp [default: auto]
    #[arg(long, value_name = "NAME")]
    pub transport: Option<TransportChoice>,
    /// Time to wait for the tunnel [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Lifetime>,
    /// Set when this is the background process of another `rove up`.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub detached: bool,
}

/// A word in the place of an invite; the shell may have split the invite into several words.
/// Neither `Debug` nor any error shows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pasted(pub String);

impl From<String> for Pasted {
    fn from(word: String) -> Self {
        Self(word)
    }
}

impl fmt::Debug for Pasted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pasted(..)")
    }
}

/// Parses the command line. A wrong command line ends the program.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && names_invite() {
            refuse(error.kind(), "wrong arguments");
        }
        error.exit()
    })
}

/// Ends the program because of a wrong command line. If the command line contains an invite, the
/// error shows neither `message` nor anything else of it, because logs of scripts must not contain
/// an invite.
pub(crate) fn refuse(kind: ErrorKind, message: impl fmt::Display) -> ! {
    let message = if names_invite() {
        "wrong arguments; they hold an invite and are not repeated here: an invite goes to \
         `rove up INVITE`, in quotation marks"
            .to_owned()
    } else {
        message.to_string()
    };
    Cli::command().error(kind, message).exit()
}

/// Ends the program because the pasted text is no invite.
pub(crate) fn refuse_invite(error: &InviteError) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, error).exit()
}

fn names_invite() -> bool {
    std::env::args_os().any(|argument| invite::is_in(&argument.to_string_lossy()))
}

/// One thing that is set of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkSet {
    /// The link's name.
    pub name: String,
    /// The key, as it was typed.
    pub key: String,
    /// The value, as it was typed.
    pub value: String,
    /// Both.
    pub setting: LinkSetting,
}

impl LinkSet {
    /// What `link.NAME.KEY VALUE` says, where a name may have dots as well.
    pub(crate) fn parse(what: &str, value: &str) -> Result<Self, Misspelt> {
        let usage = "write link.NAME.KEY VALUE: `rove set --help` has the keys";
        let named = what.strip_prefix("link.").and_then(|rest| rest.rsplit_once('.'));
        let unknown = || Misspelt::new(format!("{what:?} cannot be set: {usage}"));
        let (name, key) = named.filter(|(name, _)| !name.is_empty()).ok_or_else(unknown)?;
        if name.contains(['*', '?']) {
            let what =
                format!("{name:?} is no name of a link: for several write a rule (see docs/guide)");
            return Err(Misspelt::new(what));
        }
        let setting = LinkSetting::parse(key, value)?;
        let (name, key, value) = (name.to_owned(), key.to_owned(), value.to_owned());
        Ok(Self { name, key, value, setting })
    }
}
