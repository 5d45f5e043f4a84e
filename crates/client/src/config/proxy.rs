//! The address of an HTTP proxy, as files and the environment write it.

use std::fmt;
use std::str::FromStr;

use rove_host::values::{Endpoint, Misspelt};

/// Which proxy streams go by.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum ProxyChoice {
    /// The one that the environment names, if it names one.
    #[default]
    Environment,
    /// None, whatever the environment says.
    Direct,
    /// This one.
    At(ProxyUrl),
}

/// `http://USER:PASSWORD@HOST:PORT`, with or without all that stands before the host.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyUrl {
    /// Where it listens.
    pub at: Endpoint,
    /// User and password, decoded.
    pub credentials: Option<(String, String)>,
}

impl FromStr for ProxyChoice {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "environment" => Ok(Self::Environment),
            "none" => Ok(Self::Direct),
            url => url.parse().map(Self::At),
        }
    }
}

impl FromStr for ProxyUrl {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        // The text may hold a password, so no error repeats it.
        let wrong = |what: &str| {
            Misspelt::new(format!(
                "the proxy's address {what}: write http://HOST:PORT, or \
                 http://USER:PASSWORD@HOST:PORT"
            ))
        };
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err(wrong("is of a kind that Rove does not speak")),
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        let at = host.parse().map_err(|_| wrong("names no HOST:PORT"))?;
        let decoded = |text: &str| decode(text).ok_or_else(|| wrong("has a % that means nothing"));
        let credentials = match credentials.map(|text| text.split_once(':').unwrap_or((text, ""))) {
            Some((user, password)) => Some((decoded(user)?, decoded(password)?)),
            None => None,
        };
        Ok(Self { at, credentials })
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyUrl").field("at", &self.at).finish_non_exhaustive()
    }
}

/// `%XX` as the byte that it means (RFC 3986 section 2.1); the whole must be text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}
