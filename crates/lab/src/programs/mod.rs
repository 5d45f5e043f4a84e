//! The programs that run in the lab's hosts: real sockets, real files, real checksums.
//!
//! They are this very binary, started again as `rove-lab program ...` inside a host. Each reports
//! on its standard output in lines of JSON ([`Report`]), with times of the clock that all
//! namespaces share ([`crate::netns::monotonic_ns`]), so that what the receiver noted can be held
//! against when the lab pulled a cable.
//!
//! They know nothing of Rove. Content and sequence numbers are functions of a seed: a receiver's
//! claim can be checked without trusting the sender.

mod browser;
mod call;
mod carry;
mod content;
mod echo;
mod flow;
mod http_client;
mod http_server;
mod names;
mod pour;
mod proxy;
mod receive;
mod report;
pub mod session;
mod spin;
mod terminal;

pub use browser::browse;
pub use call::{Speech, answer, call};
pub use carry::{Carriage, accept, connect};
pub use content::{Comparison, Content, sha256_of};
pub use echo::{echo, ping, reach};
pub use flow::{FlowRequest, send_flows, subscribe};
pub use http_client::fetch;
pub use http_server::serve;
pub use names::serve_names;
pub use pour::{Control, Pouring, pour_from, pour_to};
pub use proxy::serve_tunnels;
pub use report::{
    Carried, Download, EchoStats, FlowStats, Heard, Poured, Report, Reporter, report,
};
pub use spin::spin;
pub use terminal::{Saying, Typing, shell, terminal};

use clap::Subcommand;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A program for a host.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// Serve files of random bytes over HTTP/1.1: GET /SEED/LENGTH
    Serve {
        /// Address and port to listen on
        listen: SocketAddr,
    },
    /// Download http://ADDRESS:PORT/SEED/LENGTH and report progress, gaps and the SHA-256
    Fetch {
        /// What to download
        url: String,
    },
    /// The same as a browser does: over several connections at once, part by part
    Browse {
        /// What to download
        url: String,
    },
    /// Accept connections and send or receive over each
    Accept {
        /// Address and port to listen on
        listen: SocketAddr,
        /// What is carried
        #[command(flatten)]
        carriage: Carriage,
    },
    /// Open connections to such a program and receive or send over each
    Connect {
        /// The other program
        to: SocketAddr,
        /// What is carried
        #[command(flatten)]
        carriage: Carriage,
    },
    /// Serve one interactive session: lines come back, others are said
    Shell {
        /// Address and port to listen on
        listen: SocketAddr,
        /// What the server says
        #[command(flatten)]
        saying: Saying,
    },
    /// Have one interactive session, and report when each typed line came back
    Terminal {
        /// The shell
        to: SocketAddr,
        /// What the client types
        #[command(flatten)]
        typing: Typing,
    },
    /// Answer one call: with a voice, or by sending every datagram back
    Answer {
        /// Address and port to listen on
        listen: SocketAddr,
        /// What is said
        #[command(flatten)]
        speech: Speech,
    },
    /// Call who answers, and report how long each datagram that came took
    Call {
        /// The other program
        to: SocketAddr,
        /// What is said
        #[command(flatten)]
        speech: Speech,
    },
    /// Send or receive one flow of datagrams, with whoever calls
    PourFrom {
        /// Address and port to listen on
        listen: SocketAddr,
        /// What is poured
        #[command(flatten)]
        what: Pouring,
    },
    /// Call such a program, and receive or send
    PourTo {
        /// The other program
        to: SocketAddr,
        /// What is poured
        #[command(flatten)]
        what: Pouring,
    },
    /// Send every datagram back where it came from
    Echo {
        /// Address and port to listen on
        listen: SocketAddr,
    },
    /// Send datagrams to an echo at a steady pace and report round trips and losses
    Ping {
        /// The echo
        to: SocketAddr,
        /// How many
        #[arg(long, default_value_t = 10)]
        count: u32,
        /// Microseconds between two
        #[arg(long, default_value_t = 100_000)]
        interval_us: u64,
        /// Bytes of UDP payload, at least 16
        #[arg(long, default_value_t = 64)]
        size: u16,
    },
    /// Call an echo until it answers, and report when that was
    Reach {
        /// The echo
        to: SocketAddr,
        /// Microseconds between two calls
        #[arg(long, default_value_t = 10_000)]
        interval_us: u64,
        /// Milliseconds after which it is given up
        #[arg(long, default_value_t = 10_000)]
        limit_ms: u64,
    },
    /// Answer questions for the addresses of names
    Names {
        /// Address and port to listen on
        listen: SocketAddr,
        /// File with lines of NAME ADDRESS
        zone: PathBuf,
        /// Seconds for which an answer may be kept
        #[arg(long, default_value_t = 1)]
        keep_s: u32,
    },
    /// Make tunnels as an HTTP proxy does: CONNECT to port 443
    Proxy {
        /// Address and port to listen on
        listen: SocketAddr,
    },
    /// Occupy a core
    Spin {
        /// The niceness at which it must run
        #[arg(long, allow_hyphen_values = true)]
        nice: i32,
        /// For how many seconds at most
        #[arg(long)]
        seconds: u64,
    },
    /// Send numbered datagrams to whoever subscribes
    Flow {
        /// Address and port to listen on
        listen: SocketAddr,
    },
    /// Subscribe to a flow and report gaps and losses
    Subscribe {
        /// The flow's source
        to: SocketAddr,
        /// Microseconds between two datagrams
        #[arg(long, default_value_t = 1_000)]
        interval_us: u64,
        /// Bytes of UDP payload, at least 16
        #[arg(long, default_value_t = 125)]
        size: u16,
        /// Milliseconds before the first one
        #[arg(long, default_value_t = 0)]
        wait_ms: u64,
        /// When the first one leaves instead, on the clock that all hosts share, in nanoseconds
        #[arg(long)]
        begin_ns: Option<u64>,
        /// How many
        #[arg(long)]
        count: u32,
    },
}

impl Program {
    /// Runs the program until it has done its work, or for ever.
    ///
    /// # Errors
    /// What the network or a peer did wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        let reporter = Reporter::new();
        match self {
            Self::Serve { listen } => serve(listen, &reporter),
            Self::Fetch { url } => fetch(&url, &reporter),
            Self::Browse { url } => browse(&url, &reporter),
            Self::Accept { listen, carriage } => accept(listen, &carriage, &reporter),
            Self::Connect { to, carriage } => connect(to, &carriage, &reporter),
            Self::Shell { listen, saying } => shell(listen, &saying, &reporter),
            Self::Terminal { to, typing } => terminal(to, &typing, &reporter),
            Self::Answer { listen, speech } => answer(listen, &speech, &reporter),
            Self::Call { to, speech } => call(to, &speech, &reporter),
            Self::PourFrom { listen, what } => pour_from(listen, &what, &reporter),
            Self::PourTo { to, what } => pour_to(to, &what, &reporter),
            Self::Echo { listen } => echo(listen, &reporter),
            Self::Ping { to, count, interval_us, size } => {
                ping(to, count, interval_us, size, &reporter)
            }
            Self::Reach { to, interval_us, limit_ms } => {
                reach(to, interval_us, limit_ms, &reporter)
            }
            Self::Names { listen, zone, keep_s } => serve_names(listen, &zone, keep_s, &reporter),
            Self::Proxy { listen } => serve_tunnels(listen, &reporter),
            Self::Spin { nice, seconds } => spin(nice, seconds, &reporter),
            Self::Flow { listen } => send_flows(listen, &reporter),
            Self::Subscribe { to, interval_us, size, wait_ms, begin_ns, count } => {
                let request = FlowRequest { interval_us, size, wait_ms, begin_ns, count };
                subscribe(to, &request, &reporter)
            }
        }
    }
}
