//! The command line: what was typed, as values that need no more checks.
//!
//! Decides spelling, help and defaults; acts on nothing. A usage error is clap's, with exit code 2.

mod text;

use std::fmt;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use ipnet::IpNet;
use rove_api::{LinkMode, PathManager, RecoveryFor, TransportChoice};
use rove_client::{DnsChoice, LinkScheduler, LinkSetting, Subflows};
use rove_gateway::StoreUrl;
use rove_host::config::LogFormat;
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

    /// The form of log lines: text or json [default: as configured, else text]
    #[arg(long, global = true, value_name = "FORMAT", help_heading = "Everywhere")]
    pub log_format: Option<LogFormat>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set up and run a gateway, and say who may use it
    #[command(subcommand, arg_required_else_help = true)]
    Gateway(GatewayCommand),
    /// Connect this host; the first time with an invite
    #[command(after_help = text::UP)]
    Up(UpArgs),
    /// Disconnect, and remove the kill switch
    Down,
    /// Show whether the tunnel carries, and since when
    Status(OutputArgs),
    /// Test the tunnel and this host, one line each: what is wrong, since when, the cure
    #[command(after_help = text::CHECK)]
    Check(OutputArgs),
    /// Show every path: its link, addresses, round trip, rate, share, loss
    #[command(after_help = text::PATHS)]
    Paths(PathsArgs),
    /// Show open connections: what is held of each, and why; of a client, else of a gateway
    #[command(after_help = text::FLOWS)]
    Flows(OutputArgs),
    /// Say why a connection is treated as it is, and which way it goes
    #[command(after_help = text::EXPLAIN)]
    Explain(ExplainArgs),
    /// Do without a link for a while, on purpose, and show what each connection felt
    #[command(after_help = text::REHEARSE)]
    Rehearse(RehearseArgs),
    /// Change how this client works, until it ends or reads its configuration again
    #[command(arg_required_else_help = true, after_help = text::SET)]
    Set(SetArgs),
    /// Read the configuration again, of a client or a gateway
    Reload,
    /// Put back a kill switch that stood: for the unit that runs at boot, before the network
    #[command(hide = true)]
    StandKillSwitch,
    /// Give /etc/rove to the user rove, as whom a node runs, if root owns it: for the units
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
        /// Where to.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
    },
}

/// What to change.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// What is made of several links
    #[command(after_help = text::MODE)]
    Mode {
        /// full, backup or single
        #[arg(value_name = "MODE")]
        mode: LinkMode,
    },
    /// How links that carry together are chosen among
    #[command(after_help = text::SCHEDULER)]
    Scheduler {
        /// earliest, rtt, round-robin, redundant, loss, rate or latency
        #[arg(value_name = "NAME")]
        scheduler: LinkScheduler,
    },
    /// What connections have by repair, where links carry together
    #[command(after_help = text::RECOVERY)]
    Recovery {
        /// throughput or latency
        #[arg(value_name = "WHAT")]
        recovery: RecoveryFor,
    },
    /// Which paths carry together with mode full
    #[command(after_help = text::MANAGER)]
    Manager {
        /// one-per-link or full-mesh
        #[arg(value_name = "MANAGER")]
        manager: PathManager,
    },
    /// How many paths carry from each address to the other, with mode full
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
    /// One thing of one link
    #[arg(value_name = "link.NAME.KEY", requires = "value")]
    pub of_link: Option<String>,
    /// What it shall be
    #[arg(value_name = "VALUE")]
    pub value: Option<String>,
}

/// What to do with a gateway.
#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    /// Make the directory, keys, configuration and store of a new gateway
    #[command(after_help = text::INIT)]
    Init(InitArgs),
    /// Run the gateway in the foreground
    Run,
    /// Print an invite: one line that lets one client in
    #[command(after_help = text::INVITE)]
    Invite(InviteArgs),
    /// Show whether the gateway runs, who is connected and what happened last
    Status(GatewayStatusArgs),
    /// Test the gateway and its host, one line each: what is wrong, since when, the cure
    #[command(after_help = text::GATEWAY_CHECK)]
    Check(OutputArgs),
    /// List every peer and open invite
    Peers(OutputArgs),
    /// Show by which paths peers are reached: addresses, round trip, rate, share, loss
    Paths(PeerPathsArgs),
    /// Show open connections and whose they are: what is held of each, and why
    #[command(after_help = text::FLOWS)]
    Flows(OutputArgs),
    /// End a peer's membership and its session at once, and withdraw its open invite
    Revoke {
        /// The peer's name.
        #[arg(value_name = "NAME")]
        name: PeerName,
    },
    /// Let a peer reach more than the Internet
    #[command(after_help = text::ALLOW)]
    Allow(AllowArgs),
    /// Be reached at another endpoint from now on; every client is told, and follows
    #[command(after_help = text::MOVE)]
    Move {
        /// The new endpoint.
        #[arg(value_name = "NEW-ENDPOINT")]
        endpoint: Endpoint,
    },
    /// Sign the endpoints and networks of gateway.toml with the operator key, after a change
    #[command(after_help = text::SIGN)]
    Sign,
    /// Write everything but the operator key into one private file
    Backup {
        /// The file to make.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put a backup in the place of the gateway's files; keeps what these know to be revoked since
    Restore {
        /// The backup.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Take this host's clock as right, after it was once far ahead: invites expire by the latest
    /// time that the gateway ever saw
    ResetClock,
    /// Take away what a gateway that has ended left on this host: interface, routes, NAT
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
    /// Show them again every second, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// With --watch: for how long [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", requires = "watch")]
    pub lasts: Option<Lifetime>,
    /// Print JSON, with --watch a line each time; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// Whose paths come out.
#[derive(Args, Debug)]
pub(crate) struct PeerPathsArgs {
    /// Only those of this peer
    #[arg(value_name = "NAME")]
    pub name: Option<PeerName>,
    /// Print JSON; keys are only ever added
    #[arg(long)]
    pub json: bool,
}

/// Which connection to explain.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Words that its line in `rove flows` has: an address, a port, a class, tcp or udp
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
    /// For how long, ten minutes at most
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
    /// How many entries of the audit log to show [default: 10]
    #[arg(long, value_name = "N")]
    pub log: Option<u32>,
}

/// What a new gateway is.
#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Where clients reach this gateway, best first; may be repeated
    #[arg(long, required = true, num_args = 1.., value_name = "HOST:PORT")]
    pub endpoint: Vec<Endpoint>,
    /// The inner networks: one IPv4, one IPv6, or both
    #[arg(long, value_name = "CIDR[,CIDR6]")]
    pub network: Networks,
    /// A DNS server that clients use while the tunnel is up; may be repeated
    #[arg(long, num_args = 1.., value_name = "ADDR")]
    pub dns: Vec<std::net::IpAddr>,
    /// Where peers are remembered
    #[arg(long, value_name = "URL", default_value_t)]
    pub store: StoreUrl,
}

/// What an invite grants.
#[derive(Args, Debug)]
pub(crate) struct InviteArgs {
    /// The peer's name; further peers of the same invite get a number
    #[arg(value_name = "NAME")]
    pub name: PeerName,
    /// How many clients it lets in
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub uses: u32,
    /// When it expires
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub expires: Lifetime,
    /// A subnet behind the client that it may advertise; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub subnet: Vec<IpNet>,
    /// Print it as a QR code too
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
    /// What it may reach, TCP and UDP when a port is given
    #[arg(value_name = "CIDR[:PORT]", required_unless_present = "reset")]
    pub destinations: Vec<Destination>,
    /// Forget first what was allowed before
    #[arg(long)]
    pub reset: bool,
}

/// How to connect.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// The invite, needed once; - reads it from standard input, where no other user sees it
    #[arg(value_name = "INVITE")]
    pub pasted: Vec<Pasted>,
    /// The invite that was found in the pasted text or in the input.
    #[arg(skip)]
    pub invite: Option<Invite>,
    /// Stay in the foreground; print one line when the tunnel carries
    #[arg(long)]
    pub foreground: bool,
    /// Send only this network through the tunnel; may be repeated [default: everything]
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub route: Vec<IpNet>,
    /// Keep this network out of the tunnel; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub exclude: Vec<IpNet>,
    /// Let nothing out but the tunnel, until `rove down`
    #[arg(long)]
    pub kill_switch: bool,
    /// Keep the local network reachable
    #[arg(long)]
    pub allow_lan: bool,
    /// Let the tunnel take the SSH connection that this is typed over, too
    #[arg(long)]
    pub no_keep_ssh: bool,
    /// Which name servers to ask: set (the gateway's) or leave (change nothing) [default: set]
    #[arg(long, value_name = "WAY")]
    pub dns: Option<DnsChoice>,
    /// A subnet behind this client, as the invite allows; may be repeated
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    pub advertise: Vec<IpNet>,
    /// What to make of several links: full, backup or single [default: full]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<LinkMode>,
    /// How to choose among links that carry together: see `rove set scheduler` [default: earliest]
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<LinkScheduler>,
    /// What carries datagrams: auto, udp, tcp or mptcp [default: auto]
    #[arg(long, value_name = "NAME")]
    pub transport: Option<TransportChoice>,
    /// How long to wait until the tunnel carries [default: 30s]
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
