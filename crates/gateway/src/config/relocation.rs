//! Another endpoint in a file that a person wrote: two lists change, and every other word stays.

use std::net::SocketAddr;
use std::path::Path;

use rove_host::config::{ConfigError, Source};
use rove_host::values::{ENDPOINTS_MAX, Endpoint};

use super::{Config, LISTEN_MAX, RawFile};

/// A configuration file with another first endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// What it says.
    pub config: Config,
    /// Its text.
    pub text: String,
    /// The endpoint that was first, and is not named any more.
    pub before: Endpoint,
}

impl Config {
    /// The file at `path` with `to` in the place of its first endpoint. Where it says itself where
    /// to listen, or to take streams, what `more` makes of these places and of the ports at which
    /// clients may come over UDP is added; else both are at the ports of the endpoints.
    pub(crate) fn relocated(
        path: &Path,
        to: &Endpoint,
        more: impl Fn(&[SocketAddr], &[u16]) -> Vec<SocketAddr>,
    ) -> Result<Relocation, ConfigError> {
        let source = Source::read(path)?;
        let RawFile { gateway: raw, .. } = source.parse()?;
        let before = Self::parse(&source)?;
        let old = &before.endpoints[0];
        if old == to {
            let what = format!("{to} is where the gateway is already: name another endpoint");
            return Err(source.invalid(&raw.endpoints.span(), "gateway.endpoints", what));
        }
        let others = before.endpoints.iter().skip(1).filter(|other| *other != to);
        let endpoints: Vec<String> = std::iter::once(to)
            .chain(others)
            .take(ENDPOINTS_MAX)
            .map(Endpoint::to_string)
            .collect();
        let mut changes = vec![(raw.endpoints.span(), endpoints)];
        let of_udp = before.listen.iter().map(SocketAddr::port).chain([old.port]);
        let of_udp: Vec<u16> = of_udp.collect();
        for (explicit, known) in [(&raw.listen, &before.listen), (&raw.streams, &before.streams)] {
            let Some(explicit) = explicit else { continue };
            let mut places = known.clone();
            places.extend(more(known, &of_udp));
            places.dedup();
            // The newest is where the gateway is; what was open longest is missed least.
            places.drain(..places.len().saturating_sub(LISTEN_MAX));
            changes.push((explicit.span(), places.iter().map(SocketAddr::to_string).collect()));
        }
        // The last first, so that the others' places stay what they are.
        changes.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
        let mut text = source.text().to_owned();
        for (span, values) in changes {
            let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
            text.replace_range(span, &format!("[{}]", quoted.join(", ")));
        }
        let config = Self::from_text(&text, path)?;
        Ok(Relocation { config, text, before: old.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\n[gateway]\nlisten = [\"192.0.2.1:4500\"] # here\n\
        endpoints = [\n  \"192.0.2.1:4500\", # old\n  \"vpn.example.org:4500\",\n]\n\
        networks = [\"10.77.0.0/24\"]\nnat = false # no\n";

    fn relocated(text: &str, to: &str) -> Result<Relocation, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        let to: Endpoint = to.parse().unwrap();
        Config::relocated(&path, &to, |_, _| vec![([192, 0, 2, 7], to.port).into()])
    }

    #[test]
    fn the_first_endpoint_changes_and_every_other_word_stays() {
        let moved = relocated(TEXT, "192.0.2.7:4600").unwrap();
        assert_eq!(moved.before.to_string(), "192.0.2.1:4500");
        let expected = TEXT
            .replace("[\"192.0.2.1:4500\"]", "[\"192.0.2.1:4500\", \"192.0.2.7:4600\"]")
            .replace(
                "[\n  \"192.0.2.1:4500\", # old\n  \"vpn.example.org:4500\",\n]",
                "[\"192.0.2.7:4600\", \"vpn.example.org:4500\"]",
            );
        assert_eq!(moved.text, expected);
        // One of the others becomes the first.
        let moved = relocated(TEXT, "vpn.example.org:4500").unwrap();
        assert_eq!(moved.config.endpoints.len(), 1);
        let error = relocated(TEXT, "192.0.2.1:4500").unwrap_err().to_string();
        assert!(error.contains("is where the gateway is already"), "{error}");
    }

    #[test]
    fn places_for_streams_that_are_named_grow_too_and_the_eldest_go() {
        let many: Vec<String> = (1..=16).map(|n| format!("\"192.0.2.1:{n}\"")).collect();
        let text = TEXT.replace("[gateway]", &format!("[gateway]\nstreams = [{}]", many.join(",")));
        let streams = relocated(&text, "192.0.2.7:4600").unwrap().config.streams;
        assert_eq!(streams.len(), LISTEN_MAX);
        assert_eq!(streams[0].to_string(), "192.0.2.1:2");
        assert_eq!(streams[15].to_string(), "192.0.2.7:4600");
    }

    #[test]
    fn a_file_that_does_not_say_where_listens_where_it_is_reached() {
        let text = TEXT.replace("listen", "# listen");
        let moved = relocated(&text, "192.0.2.7:4600").unwrap();
        let listen: Vec<String> = moved.config.listen.iter().map(SocketAddr::to_string).collect();
        assert_eq!(listen, ["[::]:4500", "[::]:4600"], "the port of the other is kept");
    }
}
