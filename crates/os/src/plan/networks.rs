//! The list of excluded networks: merged, and spelt in the journal.
//!
//! Decides which networks get a route past the tunnel. Routes of one family are one item of a plan:
//! an item for each would be compared with every other.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serializer};

/// The excluded networks without those that others contain, and with neighbours made one. Inside a
/// destination of the tunnel nothing is left out: there, the longer prefix decides. Neighbours do
/// not become such a destination, whose own route would have the same place.
pub(super) fn merged(exclude: &[IpNet], routes: &[IpNet]) -> Vec<IpNet> {
    let exclude: Vec<IpNet> = exclude.iter().map(IpNet::trunc).collect();
    let mut nets = IpNet::aggregate(&exclude);
    let routes: Vec<IpNet> = routes.iter().map(IpNet::trunc).collect();
    let is_held = |route: &&IpNet| nets.iter().any(|net| net.contains(*route));
    for route in routes.iter().filter(is_held).collect::<Vec<_>>() {
        nets.extend(exclude.iter().filter(|net| route.contains(*net)));
    }
    nets.retain(|net| !routes.contains(net) || exclude.contains(net));
    nets.sort();
    nets.dedup();
    nets
}

/// Spells a list as one text: for thousands of networks a third of what an array takes.
pub(super) fn serialize<S: Serializer>(nets: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
    let nets: Vec<String> = nets.iter().map(ToString::to_string).collect();
    to.serialize_str(&nets.join(" "))
}

/// Reads such a text, or the array of earlier versions.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spelt {
        Text(String),
        Array(Vec<IpNet>),
    }
    match Spelt::deserialize(from)? {
        Spelt::Array(nets) => Ok(nets),
        Spelt::Text(text) => {
            let nets = text.split_ascii_whitespace().map(str::parse);
            nets.collect::<Result<_, _>>().map_err(serde::de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn neighbours_become_one_and_what_others_contain_goes() {
        let list = nets(&["192.0.2.0/25", "192.0.2.128/25", "192.0.2.7/32", "2001:db8::/32"]);
        assert_eq!(merged(&list, &nets(&["0.0.0.0/0"])), nets(&["192.0.2.0/24", "2001:db8::/32"]));
    }

    #[test]
    fn inside_a_destination_of_the_tunnel_the_longer_prefix_still_decides() {
        let list = nets(&["10.0.0.0/8", "10.77.1.0/24"]);
        // Without the longer prefix 10.77.1.0/24 would lead into the tunnel, by its wider route.
        assert_eq!(merged(&list, &nets(&["10.77.0.0/16"])), list);
        let halves = nets(&["10.0.0.0/9", "10.128.0.0/9"]);
        assert_eq!(merged(&halves, &nets(&["10.0.0.0/8"])), halves);
        let halves = nets(&["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(merged(&halves, &nets(&["0.0.0.0/0"])), halves);
        let both = nets(&["10.0.0.0/8"]);
        assert_eq!(merged(&both, &both), both);
    }
}
