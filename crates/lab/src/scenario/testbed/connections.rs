//! TCP connections between client and server: the programs at both ends, the settings of the
//! server's kernel, and those of the tunnel ends' kernels.

use super::{START, Testbed};
use crate::ground::{
    Call, Congestion, Connections, Datagrams, Pace, Receiver, Route, Session, Talk, What,
};
use crate::netns::{HostId, Process};
use crate::programs::{Report, report};
use std::io;
use std::net::SocketAddr;

/// The first of the listening ports, one after the other, so that packets of a broken connection
/// never meet the next one.
const FIRST_PORT: u16 = 9_000;
/// Ports until they begin again.
const PORTS: u16 = 10_000;
/// The port of QUIC, for flows of datagrams.
const HTTPS_PORT: u16 = 443;
/// The kernel's own number of retransmissions (`tcp_retries2`).
const RETRIES: u32 = 15;

/// The program at the server, and the one at the client.
pub(in super::super) type Ends = [Process; 2];

impl Testbed {
    /// Opens connections of one kind; their content follows from `seed`.
    ///
    /// # Errors
    /// If a program cannot be started or refuses.
    pub(in super::super) fn connect(&mut self, seed: u64, kind: &Connections) -> io::Result<Ends> {
        let options = carriage(seed, kind);
        let to_client = kind.to == Receiver::Client;
        let side = |sends: bool| options.iter().cloned().chain(sends.then(|| "--send".to_owned()));
        let mut of_server: Vec<String> = side(to_client).collect();
        if kind.patience.keeps_alive {
            of_server.push("--keepalive".to_owned());
        }
        let of_client: Vec<String> = side(!to_client).collect();
        let mut address = self.next_address(kind.route);
        if kind.route == Route::Tunnelled {
            address.set_ip(super::server_numbered(kind.server).into());
        }
        let accepting = self.start_ready(self.server, "accept", address, &of_server)?;
        let connecting = self.start_ready(self.client, "connect", address, &of_client)?;
        Ok([accepting, connecting])
    }

    /// Begins an interactive session.
    ///
    /// # Errors
    /// When a program cannot be started or refuses.
    pub(in super::super) fn open_session(&mut self, session: &Session) -> io::Result<Ends> {
        let option = |name: &str, value: u64| [format!("--{name}"), value.to_string()];
        let Session { before, pause_ns, after, typed_every_ns, said, said_every_ns, patience } =
            *session;
        let said = option("said", said.into());
        let mut of_server = [said.clone(), option("every-us", said_every_ns / 1_000)].concat();
        if patience.keeps_alive {
            of_server.push("--keepalive".to_owned());
        }
        let of_client = [
            said,
            option("before", before.into()),
            option("pause-ms", pause_ns / 1_000_000),
            option("after", after.into()),
            option("every-us", typed_every_ns / 1_000),
        ]
        .concat();
        let address = self.next_address(Route::Tunnelled);
        let shell = self.start_ready(self.server, "shell", address, &of_server)?;
        let terminal = self.start_ready(self.client, "terminal", address, &of_client)?;
        Ok([shell, terminal])
    }

    /// Begins a call: the answering end is ready, and the calling end begins after its silence.
    ///
    /// # Errors
    /// If a program cannot be started or refuses.
    pub(in super::super) fn call(&mut self, call: &Call) -> io::Result<Ends> {
        let option = |name: &str, value: u64| [format!("--{name}"), value.to_string()];
        let mut options = [
            option("count", call.count().into()),
            option("interval-us", call.talk.interval_ns() / 1_000),
            option("size", call.talk.bytes().into()),
            option("wait-ms", call.silence_ns / 1_000_000),
        ]
        .concat();
        if call.talk == Talk::Voice {
            options.push("--voice".to_owned());
        }
        let address = match call.talk {
            Talk::Voice => self.next_address(Route::Tunnelled),
            Talk::Echo { .. } => {
                SocketAddr::from((super::server(Route::Tunnelled), Call::ECHO_PORT))
            }
        };
        let answering = self.start_ready(self.server, "answer", address, &options)?;
        let calling = self.start_ready(self.client, "call", address, &options)?;
        Ok([answering, calling])
    }

    /// Begins a flow of datagrams: the listening end is ready, and the calling end begins at once.
    ///
    /// # Errors
    /// If a program cannot be started or refuses.
    pub(in super::super) fn pour(&mut self, seed: u64, what: &Datagrams) -> io::Result<Ends> {
        let option = |name: &str, value: String| [format!("--{name}"), value];
        let mut options = [
            option("length-ms", (what.length_ns / 1_000_000).to_string()),
            option("skip-ms", (what.skip_ns / 1_000_000).to_string()),
            option("seed", seed.to_string()),
            match what.what {
                What::Clock { kbps } => option("kbps", kbps.to_string()),
                What::Quic { congestion } => option("quic", congestion.name().to_owned()),
            },
        ]
        .concat();
        if what.to == Receiver::Server {
            options.push("--up".to_owned());
        }
        let address = SocketAddr::from((super::server(Route::Tunnelled), HTTPS_PORT));
        let listening = self.start_ready(self.server, "pour-from", address, &options)?;
        let calling = self.start_ready(self.client, "pour-to", address, &options)?;
        Ok([listening, calling])
    }

    /// Sets the number of retransmissions after which the server's kernel gives a connection up;
    /// the default if there is none.
    ///
    /// # Errors
    /// If `/proc/sys` is read-only.
    pub(in super::super) fn set_server_retries(&self, retries: Option<u32>) -> io::Result<()> {
        self.network.host(self.server).set_tcp_retries(retries.unwrap_or(RETRIES))
    }

    /// Sets the congestion control of TCP between the tunnel ends; Reno if the machine keeps the
    /// wanted one for itself. Returns the one in use.
    ///
    /// # Errors
    /// If `/proc/sys` is read-only.
    pub(in super::super) fn control_outside(&self, wanted: Congestion) -> io::Result<Congestion> {
        let ends = [self.client, self.gateway];
        let set = |one: Congestion| {
            ends.iter().try_for_each(|end| self.network.host(*end).set_congestion(one.name()))
        };
        match set(wanted) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                set(Congestion::Reno).map(|()| Congestion::Reno)
            }
            other => other.map(|()| wanted),
        }
    }

    fn next_address(&mut self, route: Route) -> SocketAddr {
        self.connections = (self.connections + 1) % PORTS;
        SocketAddr::from((super::server(route), FIRST_PORT + self.connections))
    }

    fn start_ready(
        &self,
        host: HostId,
        program: &str,
        address: SocketAddr,
        options: &[String],
    ) -> io::Result<Process> {
        let address = address.to_string();
        let options: Vec<&str> =
            [&address].into_iter().chain(options).map(String::as_str).collect();
        let mut running = self.start(host, program, &options)?;
        running.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        Ok(running)
    }
}

/// The arguments of both programs.
fn carriage(seed: u64, kind: &Connections) -> Vec<String> {
    let mut options = Vec::new();
    let mut option = |name: &str, value: String| options.extend([format!("--{name}"), value]);
    option("seed", seed.to_string());
    option("count", kind.count.to_string());
    option("length", kind.length.to_string());
    option("congestion", kind.congestion.name().to_owned());
    if let Pace::Pieces { bytes, every_ns } = kind.pace {
        option("piece", bytes.to_string());
        option("every-us", (every_ns / 1_000).to_string());
    }
    options
}
