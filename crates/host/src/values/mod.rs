//! What people write, as types: a value that parsed is meant, and nothing behind it checks again.
//!
//! Decides the spelling of endpoints, names, destinations and lifetimes, on the command line, in
//! configuration and in requests alike. Every parse error says what was wrong and what to write.
//! Limits: nothing here knows where the text came from; whoever read it adds file, line and key.

mod cap;
mod destination;
mod domain;
mod endpoint;
mod lifetime;
mod name;
mod networks;

pub use cap::{Cap, Period};
pub use destination::{DESTINATIONS_MAX, Destination};
pub use domain::{DOMAINS_MAX, Domain};
pub use endpoint::{ENDPOINTS_MAX, Endpoint, Host};
pub use lifetime::Lifetime;
pub use name::PeerName;
pub use networks::{HostIndex, Lease, Networks, SUBNETS_MAX, parse_network};

/// Why a text is not the value it should be: what is wrong, then what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misspelt(String);

impl Misspelt {
    /// An error whose message names cause and cure.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<rove_api::UnknownWord> for Misspelt {
    fn from(error: rove_api::UnknownWord) -> Self {
        Self::new(error.to_string())
    }
}

/// The values as they are spelt.
pub fn spelt<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

/// Makes a type travel as its own spelling in serialised data.
macro_rules! serialise_as_text {
    ($name:ty) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serialise_as_text;

#[cfg(test)]
mod tests;
