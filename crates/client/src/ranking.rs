//! Which link is the best: an order that the core follows, made of what the kernel knows of links
//! and what this client saw of them.
//!
//! What the user says of links comes first: which stand by, and which cost less. Then cable before
//! Wi-Fi before everything else, then as the kernel prefers its default routes. Behind those that
//! are sound come links that will not last or were gone a moment ago, so that data
//! leaves a link while it still carries. All of it is told from outside, time too; nothing here is
//! about paths: that a link carries nothing at all the core finds by itself.
//!
//! Limits: a phone on a cable looks like a cable. The signal of a modem is not known. Reasons:
//! `docs/decisions/0019-links-in-order.md`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rove_os::links::{Link, LinkKind};

use crate::config::{LinkTerms, LinkUse};

/// At this strength (dBm) a Wi-Fi link is weak: below -80 dBm rates fall to the lowest, and losses
/// begin that are felt; clients begin to look for another access point between -70 and -80.
pub(crate) const WEAK: i8 = -80;
/// And from this one on it may be good again: walls and bodies move a strength by 3 to 5 dB, and
/// data should not go to and fro with them.
pub(crate) const GOOD: i8 = -75;
/// For so long it must stay good: one walks past an open door in less.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// How long a link that comes back is not preferred, after one loss: a cable that is plugged
/// bounces, an access point that is near its edge lets in and out.
const HOLD: Duration = Duration::from_secs(2);
/// Twice as long after each further loss, up to this.
const HOLD_MAX: Duration = Duration::from_secs(32);
/// Losses are forgotten after this time without one.
const STEADY: Duration = Duration::from_secs(60);
/// Network managers add so much to the metric of a link by which they do not reach the Internet: it
/// is taken away again. A metric that is worse by less is after [`STEADY`] what somebody wants.
const PENALTY: u32 = 20_000;
/// Links that are remembered, present or not; beyond these, others are ranked without a past.
const LINKS_MAX: usize = 64;

/// How a link stands, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    /// Nothing speaks against it.
    Sound,
    /// It was gone a moment ago.
    Returned,
    /// Its signal is low.
    Weak,
    /// It is about to go: the network takes its addresses back, it waits for its keys, or the
    /// kernel's route by it was made worse than another's, as network managers do when they find
    /// that it leads nowhere.
    Leaving,
    /// The kernel has no way out by it: a gateway nearby may be reached, or its manager is taking
    /// it down.
    NoRoute,
}

impl Standing {
    /// The word for it; none for what needs none.
    pub(crate) const fn label(self) -> Option<&'static str> {
        match self {
            Self::Sound => None,
            Self::Returned => Some("just back"),
            Self::Weak => Some("weak"),
            Self::Leaving => Some("leaving"),
            Self::NoRoute => Some("no route"),
        }
    }
}

/// A link in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ranked {
    /// The link.
    pub(crate) link: Link,
    /// How it stands.
    pub(crate) standing: Standing,
    /// How strong its signal was when it was last asked for, in dBm.
    pub(crate) signal: Option<i8>,
    /// What the user says of it.
    pub(crate) terms: LinkTerms,
    /// When data goes by it, now.
    pub(crate) usage: LinkUse,
    /// Whether it was announced that it will go, while another link stays: it carries nothing
    /// beside that one any more. Who never had a way out may lead to a gateway nearby for good.
    pub(crate) is_going: bool,
}

impl Ranked {
    /// Whether it is for when no other carries.
    pub(crate) fn stands_by(&self) -> bool {
        self.usage == LinkUse::Backup || self.is_going
    }
}

/// What is known of a client's links.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    /// Those that a path could start from, or be on, by index.
    links: BTreeMap<u32, Link>,
    /// The known addresses of the gateway.
    gateway: Vec<IpAddr>,
    /// By name: a modem that is plugged again has another index, and is as shaky as before.
    pasts: BTreeMap<String, Past>,
    /// What is said of each link, by name, and when data goes by it now. Nothing where there is
    /// nothing.
    terms: BTreeMap<String, (LinkTerms, LinkUse)>,
}

/// What was seen of one link.
#[derive(Clone, Copy, Debug)]
struct Past {
    presence: Presence,
    /// How often it was lost without [`STEADY`] between.
    losses: u32,
    strength: Strength,
    signal: Option<i8>,
    /// Its route's own metric: the best since it is there, or what it was for long enough since.
    best: Option<u32>,
    /// The worse one that it has now, and since when.
    worse: Option<(u32, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    /// It is there, and nothing but its signal can speak against it.
    Sound {
        since: Instant,
        held_until: Option<Instant>,
    },
    Lost {
        since: Instant,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strength {
    Good,
    Weak { good_since: Option<Instant> },
}

impl Ranking {
    /// The links are these now; `tunnel` is this client's own.
    pub(crate) fn links(&mut self, links: &[Link], tunnel: &str, now: Instant) {
        let was_there = |link: &Link| self.links.contains_key(&link.index);
        let stays = |link: &&Link| {
            link.name != tunnel
                && (link.usable() || (link.may_carry() && was_there(link)))
                && (self.has_way(link, true) || self.has_way(link, false) || self.had_way_out(link))
        };
        let seen = links.iter().filter(stays).map(|link| (link.index, self.with_ways(link)));
        self.links = seen.filter(|(_, link)| !link.addresses.is_empty()).collect();
        for link in self.links.values() {
            let is_sound = metric(link).is_some() && !self.is_leaving(link, now);
            if !self.pasts.contains_key(&link.name) && self.pasts.len() < LINKS_MAX {
                self.pasts.insert(link.name.clone(), Past::new(now));
            }
            if let Some(past) = self.pasts.get_mut(&link.name) {
                past.note(metric(link), is_sound, now);
            }
        }
        let asked = self.radios(now);
        self.pasts.retain(|name, past| {
            let link = self.links.values().find(|link| link.name == *name);
            if link.is_none() {
                past.lose(now);
            }
            if link.is_none_or(|link| !asked.contains(&link.index)) {
                past.signal = None;
            }
            link.is_some() || !past.is_forgotten(now)
        });
    }

    /// Sets the possible addresses of the gateway. A link without a default route counts if it has
    /// a route to one of them.
    pub(crate) fn set_gateway(&mut self, addresses: impl Iterator<Item = IpAddr>) {
        self.gateway = addresses.collect();
    }

    /// Whether a path may start on this link in one family. A container bridge has addresses and
    /// carrier, but no route out; a bridge that is the uplink has one.
    fn has_way(&self, link: &Link, v4: bool) -> bool {
        let has_address = link.addresses.iter().any(|net| net.addr().is_ipv4() == v4);
        let mut gateway = self.gateway.iter().filter(|address| address.is_ipv4() == v4);
        has_address && (link.leads_out(v4) || gateway.any(|&address| link.reaches(address)))
    }

    /// Whether the kernel had a route out on this link: it may still work while its manager takes
    /// it down.
    fn had_way_out(&self, link: &Link) -> bool {
        self.pasts.get(&link.name).is_some_and(|past| past.best.is_some())
    }

    /// The link with the addresses of the families that have a route out. Where none has, it is
    /// with those that it had: nothing can leave from a new address until its route is there too.
    fn with_ways(&self, link: &Link) -> Link {
        let mut link = link.clone();
        let has_way = [true, false].map(|v4| self.has_way(&link, v4));
        let before = self.links.get(&link.index);
        link.addresses.retain(|net| match has_way {
            [false, false] => before.is_some_and(|before| before.addresses.contains(net)),
            has_way => has_way[usize::from(net.addr().is_ipv6())],
        });
        link
    }

    /// What the radio of a link told.
    pub(crate) fn signal(&mut self, index: u32, dbm: Option<i8>, now: Instant) {
        let Some(link) = self.links.get(&index) else { return };
        if let Some(past) = self.pasts.get_mut(&link.name) {
            past.signal = dbm;
            past.strength = past.strength.after(dbm, now);
        }
    }

    /// This is said of the links from now on.
    pub(crate) fn set_terms(&mut self, terms: BTreeMap<String, (LinkTerms, LinkUse)>) {
        self.terms = terms;
    }

    /// The links, best first.
    pub(crate) fn order(&self, now: Instant) -> Vec<Ranked> {
        let place = |link: &Link| {
            let (terms, usage) = self.terms.get(&link.name).copied().unwrap_or_default();
            Ranked {
                link: link.clone(),
                standing: self.standing(link, now),
                signal: self.pasts.get(&link.name).and_then(|past| past.signal),
                terms,
                usage,
                is_going: self.is_going(link, now),
            }
        };
        let mut order: Vec<Ranked> = self.links.values().map(place).collect();
        if order.iter().all(|ranked| ranked.is_going || ranked.usage != LinkUse::Always) {
            order.iter_mut().for_each(|ranked| ranked.is_going = false);
        }
        order.sort_by_key(|Ranked { link, standing, terms, usage, .. }| {
            // One that stands by is taken before another is gone, and not because its signal is
            // the better one.
            let is_last = *standing >= Standing::Leaving;
            let kind = by_kind(link.kind);
            (is_last, *usage, *standing, terms.cost, kind, metric(link), link.index)
        });
        order
    }

    /// When the order changes without news.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let held = |past: &Past| match past.presence {
            Presence::Sound { held_until, .. } => held_until.filter(|until| *until > now),
            Presence::Lost { .. } => None,
        };
        let leaves = |past: &Past| past.worse_until().filter(|until| *until > now);
        self.pasts.values().flat_map(|past| [held(past), leaves(past)]).flatten().min()
    }

    /// The links whose signal matters, by index: Wi-Fi that is or would be preferred to another
    /// way out. Where a cable carries, or there is nothing else, no radio is asked.
    pub(crate) fn radios(&self, now: Instant) -> Vec<u32> {
        let is_used = |link: &Link| {
            self.terms.get(&link.name).is_none_or(|(_, usage)| *usage != LinkUse::Never)
        };
        let is_way_out = |link: &&Link| metric(link).is_some() && is_used(link);
        let ways_out: Vec<&Link> = self.links.values().filter(is_way_out).collect();
        let is_cable = |link: &&&Link| link.kind == LinkKind::Ethernet;
        let mut cables = ways_out.iter().filter(is_cable).map(|link| self.standing(link, now));
        if ways_out.len() < 2 || cables.any(|standing| standing < Standing::Weak) {
            return Vec::new();
        }
        let wireless = ways_out.iter().filter(|link| link.kind == LinkKind::Wireless);
        wireless.map(|link| link.index).collect()
    }

    fn standing(&self, link: &Link, now: Instant) -> Standing {
        let past = self.pasts.get(&link.name);
        if metric(link).is_none() {
            Standing::NoRoute
        } else if self.is_leaving(link, now) {
            Standing::Leaving
        } else if past.is_some_and(|past| past.strength != Strength::Good) {
            Standing::Weak
        } else if past.is_some_and(|past| past.is_held(now)) {
            Standing::Returned
        } else {
            Standing::Sound
        }
    }

    /// Whether it will go: that was announced, or the kernel had a way out by it and has none.
    fn is_going(&self, link: &Link, now: Instant) -> bool {
        self.is_leaving(link, now) || (metric(link).is_none() && self.had_way_out(link))
    }

    /// Whether the network or the kernel announced that it will go, see [`Standing::Leaving`].
    fn is_leaving(&self, link: &Link, now: Instant) -> bool {
        let past = self.pasts.get(&link.name);
        let others = self.links.values().filter(|other| other.index != link.index);
        let others = others.filter_map(metric).min();
        let fell_behind = metric(link).is_some_and(|metric| {
            past.is_some_and(|past| past.is_worse(metric, now))
                && others.is_some_and(|other| other < metric)
        });
        link.deprecated || link.dormant || fell_behind
    }
}

impl Past {
    /// Of a link that was never sound, and so never lost.
    const fn new(now: Instant) -> Self {
        let presence = Presence::Lost { since: now };
        let (strength, signal) = (Strength::Good, None);
        Self { presence, losses: 0, strength, signal, best: None, worse: None }
    }

    /// The link is there.
    fn note(&mut self, metric: Option<u32>, is_sound: bool, now: Instant) {
        self.note_metric(metric, now);
        match self.presence {
            Presence::Sound { since, .. } if !is_sound => {
                let is_steady = now.saturating_duration_since(since) >= STEADY;
                self.losses = if is_steady { 1 } else { self.losses.saturating_add(1) };
                self.presence = Presence::Lost { since: now };
            }
            Presence::Lost { .. } if is_sound => {
                let doubled = 1u32.checked_shl(self.losses.saturating_sub(1)).unwrap_or(u32::MAX);
                let hold = HOLD.saturating_mul(doubled).min(HOLD_MAX);
                let held_until = (self.losses > 0).then(|| now + hold);
                self.presence = Presence::Sound { since: now, held_until };
                self.strength = Strength::Good;
            }
            Presence::Sound { .. } | Presence::Lost { .. } => {}
        }
    }

    /// The link is not there any more: when it is, it begins anew.
    fn lose(&mut self, now: Instant) {
        self.note(None, false, now);
        (self.best, self.worse) = (None, None);
    }

    fn note_metric(&mut self, metric: Option<u32>, now: Instant) {
        if let Some((own, _)) = self.worse
            && !self.is_worse(own, now)
        {
            (self.best, self.worse) = (Some(own), None);
        }
        let Some(metric) = metric else { return };
        if !self.is_worse(metric, now) {
            (self.best, self.worse) = (Some(metric), None);
        } else if self.worse.is_none_or(|(worse, _)| worse != metric) {
            self.worse = Some((metric, now));
        }
    }

    /// Whether such a metric is worse than its own.
    fn is_worse(&self, metric: u32, now: Instant) -> bool {
        let is_meant = self.worse.is_some_and(|(worse, _)| worse == metric)
            && self.worse_until().is_some_and(|until| until <= now);
        self.best.is_some_and(|best| best < metric && !is_meant)
    }

    /// When the worse metric that it has is its own.
    fn worse_until(&self) -> Option<Instant> {
        let (worse, since) = self.worse?;
        let is_penalty = self.best.is_some_and(|best| worse.saturating_sub(best) >= PENALTY);
        (!is_penalty).then(|| since + STEADY)
    }

    fn is_held(&self, now: Instant) -> bool {
        match self.presence {
            Presence::Sound { held_until, .. } => held_until.is_some_and(|until| now < until),
            Presence::Lost { .. } => false,
        }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        match self.presence {
            Presence::Sound { .. } => false,
            Presence::Lost { since } => now.saturating_duration_since(since) >= STEADY,
        }
    }
}

impl Strength {
    /// What it is after the radio told `dbm`; nothing is as good as what was told last.
    fn after(self, dbm: Option<i8>, now: Instant) -> Self {
        match (self, dbm) {
            (before, None) => before,
            (_, Some(dbm)) if dbm <= WEAK => Self::Weak { good_since: None },
            (Self::Good, Some(_)) => Self::Good,
            (Self::Weak { good_since }, Some(dbm)) if dbm >= GOOD => {
                let since = good_since.unwrap_or(now);
                let is_good = now.saturating_duration_since(since) >= GOOD_FOR;
                if is_good { Self::Good } else { Self::Weak { good_since: Some(since) } }
            }
            (Self::Weak { .. }, Some(_)) => Self::Weak { good_since: None },
        }
    }
}

/// How far the kernel puts its way out: the smallest metric of its default routes.
fn metric(link: &Link) -> Option<u32> {
    link.default_v4.into_iter().chain(link.default_v6).min()
}

/// A cable is the fastest and costs nothing, Wi-Fi costs nothing; of others that is not known.
const fn by_kind(kind: LinkKind) -> u8 {
    match kind {
        LinkKind::Ethernet => 0,
        LinkKind::Wireless => 1,
        LinkKind::Cellular
        | LinkKind::Other
        | LinkKind::Loopback
        | LinkKind::Tunnel
        | LinkKind::Clat => 2,
    }
}

/// Links in their order, but for the one that is `away` on purpose.
pub(crate) fn but_for<'a>(
    ranked: &'a [Ranked],
    away: Option<&'a str>,
) -> impl Iterator<Item = &'a Ranked> {
    ranked.iter().filter(move |ranked| Some(ranked.link.name.as_str()) != away)
}

#[cfg(test)]
#[path = "ranking_tests.rs"]
pub(crate) mod tests;
