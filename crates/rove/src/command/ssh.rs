//! Finds the SSH connection over which a command was typed.
//!
//! sshd(8) names the connection in the environment of the shell. sudo(8) removes that variable, so
//! this module also reads the environments of the parent processes. It makes no decision about the
//! connection. Limits: in a terminal multiplexer, the variable names the connection that began the
//! session, which may have ended.

use std::env;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use rove_os::plan::Connection;

const VARIABLE: &str = "SSH_CONNECTION";
/// Parent processes to examine between this one and the shell: sudo, env, a script or two.
const ANCESTORS_MAX: usize = 16;

/// The connection, if there is one.
pub(super) fn connection() -> Option<Connection> {
    let own = env::var(VARIABLE).ok();
    parse(&own.or_else(of_ancestors)?)
}

/// The variable of the nearest parent process that has it and whose environment is readable.
fn of_ancestors() -> Option<String> {
    let mut process = "self".to_owned();
    for _ in 0..ANCESTORS_MAX {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        process = parent.trim().to_owned();
        let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else { continue };
        let mut variables = environment.split(|&byte| byte == 0);
        let prefix = format!("{VARIABLE}=");
        let found = variables.find_map(|variable| variable.strip_prefix(prefix.as_bytes()));
        if let Some(value) = found {
            return String::from_utf8(value.to_vec()).ok();
        }
    }
    None
}

/// Parses `CLIENT PORT SERVER PORT`, as sshd(8) writes it. A link-local connection is left out,
/// because routes do not affect it.
fn parse(text: &str) -> Option<Connection> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [client, client_port, server, server_port] = words[..] else { return None };
    let end = |address: &str, port: &str| -> Option<SocketAddr> {
        let address: IpAddr = address.parse().ok()?;
        Some((address.to_canonical(), port.parse().ok().filter(|port| *port > 0)?).into())
    };
    let (remote, local) = (end(client, client_port)?, end(server, server_port)?);
    let fits = remote.is_ipv4() == local.is_ipv4() && !remote.ip().is_loopback();
    fits.then_some(Connection { local, remote })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_sshd_writes_is_a_connection() {
        let found = parse("192.0.2.9 50412 198.51.100.7 22").unwrap();
        assert_eq!(found.remote, "192.0.2.9:50412".parse().unwrap());
        assert_eq!(found.local, "198.51.100.7:22".parse().unwrap());
        assert!(parse("2001:db8::9 50412 2001:db8::7 22").is_some());
        let mapped = parse("::ffff:192.0.2.9 1 ::ffff:192.0.2.7 22").unwrap();
        assert!(mapped.remote.is_ipv4());
        for text in [
            "",
            "UNKNOWN 65535 UNKNOWN 65535",
            "192.0.2.9 50412 198.51.100.7",
            "192.0.2.9 0 198.51.100.7 22",
            "192.0.2.9 50412 2001:db8::7 22",
            "fe80::1%eth0 50412 fe80::2%eth0 22",
            "127.0.0.1 50412 127.0.0.1 22",
            "192.0.2.9 50412 198.51.100.7 22 more",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
