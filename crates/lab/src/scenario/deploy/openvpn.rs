//! OpenVPN 2.6 as its manual deploys it: TLS, one server, one client, certificates by fingerprint.
//!
//! Its datagrams use UDP, TCP, or MPTCP without its knowledge: `mptcpize` makes its sockets MPTCP,
//! and the kernels get the client's links as endpoints.

use super::super::addresses::SERVER;
use super::super::testbed::Testbed;
use super::mptcp;
use crate::netns::{Host, Process};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// Port of the server.
const PORT: u16 = 1_194;
/// The longest time until either end reports that it is ready.
const START: Duration = Duration::from_secs(30);
/// The report.
const READY: &str = "Initialization Sequence Completed";
/// Options of both ends besides addresses and keys. Without a kernel module it seals in its own
/// process, as on most machines.
const OPTIONS: &[&str] =
    &["--dev", "tun", "--verb", "3", "--disable-dco", "--data-ciphers", "AES-256-GCM"];
/// Further options of the server.
const SERVER_OPTIONS: &[&str] =
    &["--topology", "subnet", "--dh", "none", "--keepalive", "10", "60"];
/// The command that makes a program's sockets MPTCP.
const MPTCPIZE: &[&str] = &["mptcpize", "run"];

/// The processes of a deployed OpenVPN.
#[derive(Debug)]
pub struct OpenVpn {
    pub(super) client: Process,
    pub(super) server: Process,
}

/// The transport of OpenVPN's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// UDP.
    Udp,
    /// One TCP connection.
    Tcp,
    /// One connection of MPTCP, with a sub-flow on each of the client's links.
    Mptcp,
}

/// The version of the installed OpenVPN.
///
/// # Errors
/// Why there is none, as text.
pub fn installed() -> Result<String, String> {
    let version = Command::new("openvpn").arg("--version").output();
    // It answers with status 1.
    let Ok(Output { stdout, .. }) = version else {
        return Err("OpenVPN is not installed".to_owned());
    };
    let stdout = String::from_utf8_lossy(&stdout);
    let version = stdout.split_whitespace().nth(1).unwrap_or("").to_owned();
    let new_enough = version.split('.').take(2).map(|part| part.parse().unwrap_or(0));
    if new_enough.collect::<Vec<u32>>() < vec![2, 6] {
        return Err(format!("OpenVPN {version} is older than 2.6"));
    }
    match Command::new("openssl").arg("version").output() {
        Ok(_) => Ok(version),
        Err(_) => Err("OpenSSL's command, which makes the certificates, is missing".to_owned()),
    }
}

impl By {
    /// The options of server and client, as text.
    pub fn options(self) -> String {
        let [server, client] = self.protocols(false);
        let (both, alone) = (OPTIONS.join(" "), SERVER_OPTIONS.join(" "));
        let made = match self {
            Self::Udp | Self::Tcp => "",
            Self::Mptcp => "mptcpize run; one ip mptcp endpoint, subflow, a link; ",
        };
        format!("{made}{both}; server --proto {server} {alone}; client --proto {client}")
    }

    /// The protocol names of the server and the client.
    const fn protocols(self, is_ipv6: bool) -> [&'static str; 2] {
        match (self, is_ipv6) {
            (Self::Udp, false) => ["udp"; 2],
            (Self::Udp, true) => ["udp6"; 2],
            (Self::Tcp | Self::Mptcp, false) => ["tcp-server", "tcp-client"],
            (Self::Tcp | Self::Mptcp, true) => ["tcp6-server", "tcp6-client"],
        }
    }

    /// Fails if anything that it needs beside OpenVPN is missing.
    fn check(self) -> anyhow::Result<()> {
        let is_there = self != Self::Mptcp || Command::new(MPTCPIZE[0]).arg("-V").output().is_ok();
        anyhow::ensure!(is_there, "mptcpize, which makes OpenVPN's sockets MPTCP's, is missing");
        Ok(())
    }
}

impl OpenVpn {
    /// Starts server and client and waits until both are ready, and until there is a sub-flow on
    /// each link with MPTCP.
    pub(super) fn start(testbed: &Testbed, by: By) -> anyhow::Result<Self> {
        by.check()?;
        let gateway = testbed.network.host(testbed.gateway);
        let client = testbed.network.host(testbed.client);
        let server_print = make_certificate(gateway.directory(), "server")?;
        let client_print = make_certificate(client.directory(), "client")?;
        let remote = testbed.gateway_address();
        let [serves, calls] = by.protocols(remote.is_ipv6());
        let server = format!(
            "--proto {serves} --server 10.77.0.0 255.255.255.0 --port {PORT} \
             --peer-fingerprint {client_print} {}",
            SERVER_OPTIONS.join(" ")
        );
        let arguments = format!(
            "--proto {calls} --client --remote {remote} {PORT} --nobind \
             --route {SERVER} 255.255.255.255 --peer-fingerprint {server_print}"
        );
        if by == By::Mptcp {
            mptcp::spread(testbed)?;
        }
        let mut server = start(gateway, "server", by, &server)?;
        await_ready(&mut server)?;
        let mut client = start(client, "client", by, &arguments)?;
        await_ready(&mut client)?;
        if by == By::Mptcp {
            mptcp::await_subflows(testbed)?;
        }
        Ok(Self { client, server })
    }
}

fn start(host: &Host, name: &str, by: By, arguments: &str) -> anyhow::Result<Process> {
    let program = ["openvpn"];
    let words = if by == By::Mptcp { [MPTCPIZE, &program].concat() } else { program.to_vec() };
    let mut command = host.command(words[0])?;
    let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
    command.args(&words[1..]).args(OPTIONS);
    command.args(["--cert", &certificate, "--key", &key]).args(arguments.split_whitespace());
    Ok(host.spawn("openvpn", command)?)
}

fn await_ready(process: &mut Process) -> anyhow::Result<()> {
    Ok(process.line_where(START, |line| line.contains(READY).then_some(()))?)
}

/// Makes a key and a self-signed certificate, and returns the fingerprint for the other end.
fn make_certificate(directory: &Path, name: &str) -> anyhow::Result<String> {
    let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
    let subject = format!("/CN={name}");
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let files = ["-keyout", &key, "-out", &certificate, "-days", "2", "-subj", &subject];
    openssl(directory, &[&["req", "-x509"][..], &curve, &files].concat())?;
    let print = ["x509", "-in", &certificate, "-noout", "-fingerprint", "-sha256"];
    let said = openssl(directory, &print)?;
    let print = said.trim().split_once('=').context("openssl printed no fingerprint")?.1;
    Ok(print.to_owned())
}

fn openssl(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("openssl").current_dir(directory).args(arguments).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("openssl failed: {}", said.lines().last().unwrap_or("it said nothing"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
