//! OpenVPN 2.6 as its manual deploys it: TLS, one server, one client, certificates by fingerprint.

use super::super::addresses::SERVER;
use super::super::testbed::Testbed;
use crate::netns::{Host, Process};
use anyhow::{Context as _, bail};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// UDP port of the server.
const PORT: u16 = 1_194;
/// How long either end may take until it has said that it is ready.
const START: Duration = Duration::from_secs(30);
/// What it says then.
const READY: &str = "Initialization Sequence Completed";

/// The processes of a deployed OpenVPN.
#[derive(Debug)]
pub struct OpenVpn {
    pub(super) client: Process,
    pub(super) server: Process,
}

/// Why OpenVPN cannot be compared with here; `None` when it can.
pub fn absent() -> Option<String> {
    let version = Command::new("openvpn").arg("--version").output();
    // It answers with status 1.
    let Ok(Output { stdout, .. }) = version else {
        return Some("OpenVPN is not installed".to_owned());
    };
    let stdout = String::from_utf8_lossy(&stdout);
    let version = stdout.split_whitespace().nth(1).unwrap_or("").to_owned();
    let new_enough = version.split('.').take(2).map(|part| part.parse().unwrap_or(0));
    if new_enough.collect::<Vec<u32>>() < vec![2, 6] {
        return Some(format!("OpenVPN {version} is older than 2.6"));
    }
    let openssl = Command::new("openssl").arg("version").output();
    openssl.is_err().then(|| "OpenSSL's command, which makes the certificates, is missing".into())
}

impl OpenVpn {
    /// Starts server and client and waits until both are ready.
    pub(super) fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let gateway = testbed.network.host(testbed.gateway);
        let client = testbed.network.host(testbed.client);
        let server_print = make_certificate(gateway.directory(), "server")?;
        let client_print = make_certificate(client.directory(), "client")?;
        let protocol = if testbed.gateway_address().is_ipv6() { "udp6" } else { "udp" };
        let server = format!(
            "--proto {protocol} --server 10.77.0.0 255.255.255.0 --topology subnet --port {PORT} \
             --dh none --keepalive 10 60 --peer-fingerprint {client_print}"
        );
        let remote = testbed.gateway_address();
        let arguments = format!(
            "--proto {protocol} --client --remote {remote} {PORT} --nobind \
             --route {SERVER} 255.255.255.255 --peer-fingerprint {server_print}"
        );
        let mut server = start(gateway, "server", &server)?;
        await_ready(&mut server)?;
        let mut client = start(client, "client", &arguments)?;
        await_ready(&mut client)?;
        Ok(Self { client, server })
    }
}

fn start(host: &Host, name: &str, arguments: &str) -> anyhow::Result<Process> {
    let mut command = host.command("openvpn")?;
    let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
    command.args(["--dev", "tun", "--verb", "3", "--disable-dco"]);
    command.args(["--cert", &certificate, "--key", &key]).args(arguments.split_whitespace());
    Ok(host.spawn("openvpn", command)?)
}

fn await_ready(process: &mut Process) -> anyhow::Result<()> {
    Ok(process.line_where(START, |line| line.contains(READY).then_some(()))?)
}

/// Makes a key and a self-signed certificate, and returns the fingerprint that the other end is
/// told.
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
