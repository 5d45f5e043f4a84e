//! What a responder checks of a handshake message before anything expensive: mac1 always, and
//! under load mac2, which only who receives at its source address can make.
//!
//! Decides nothing about load: the caller measures it. Keeps no state per source, so a flood
//! fills nothing.

use std::fmt;
use std::net::SocketAddr;

use zeroize::Zeroizing;

use super::kdf::Secret;
use super::mac::{Cookie, Mac1Key, same};
use super::rng::{Rng, draw};
use crate::error::DropReason;
use crate::id::{PeerKey, SessionIndex};
use crate::time::{Duration, Instant};
use crate::wire::Kind;
use crate::wire::handshake::{A_LEN, B_LEN, CookieReply, MAC_LEN};

/// How long cookies are made with one secret. They are accepted for as long again.
pub const COOKIE_ROTATION: Duration = Duration::from_secs(120);

/// The guard of one identity.
pub struct Gate {
    own: PeerKey,
    mac1: Mac1Key,
    secret: Secret,
    previous: Option<Secret>,
    rotated_at: Instant,
}

/// What to do with a handshake message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on. Under load this also means that the source address is proven.
    Pass,
    /// Answer with `Gate::cookie_reply` and do nothing else.
    Challenge,
    /// Say nothing.
    Drop(DropReason),
}

impl Gate {
    /// A gate for the messages sent to `own`.
    pub fn new(own: PeerKey, rng: &mut dyn Rng, now: Instant) -> Self {
        Self {
            own,
            mac1: Mac1Key::of_responder(own),
            secret: Zeroizing::new(draw(rng)),
            previous: None,
            rotated_at: now,
        }
    }

    /// Changes the cookie secret when its time is over. Called before each message rather than by
    /// a timer, so an idle node need not wake for it.
    pub(crate) fn rotate(&mut self, rng: &mut dyn Rng, now: Instant) {
        let age = now.saturating_since(self.rotated_at);
        if age < COOKIE_ROTATION {
            return;
        }
        let old = std::mem::replace(&mut self.secret, Zeroizing::new(draw(rng)));
        self.previous = (age < 2 * COOKIE_ROTATION).then_some(old);
        self.rotated_at = now;
    }

    /// The verdict on message A or B from `source`.
    pub fn check(&self, message: &[u8], source: SocketAddr, under_load: bool) -> Verdict {
        let Some(parts) = Parts::of(message) else {
            return Verdict::Drop(DropReason::Malformed);
        };
        if !same(&self.mac1.mac(parts.before_mac1), parts.mac1) {
            return Verdict::Drop(DropReason::BadMac);
        }
        if !under_load || self.has_cookie(&parts, source) {
            return Verdict::Pass;
        }
        Verdict::Challenge
    }

    /// Whether message A or B carries a valid cookie for `source`.
    pub(crate) fn is_proven(&self, message: &[u8], source: SocketAddr) -> bool {
        Parts::of(message).is_some_and(|parts| self.has_cookie(&parts, source))
    }

    /// The cookie reply to a message that was challenged.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when `message` is neither A nor B.
    pub(crate) fn cookie_reply(
        &self,
        rng: &mut dyn Rng,
        message: &[u8],
        source: SocketAddr,
    ) -> Result<Vec<u8>, DropReason> {
        let parts = Parts::of(message).ok_or(DropReason::Malformed)?;
        let nonce = draw(rng);
        let sealed = Cookie::of(&self.secret, source).seal(self.own, &nonce, parts.mac1);
        Ok(CookieReply::emit(parts.sender, &nonce, &sealed))
    }

    fn has_cookie(&self, parts: &Parts<'_>, source: SocketAddr) -> bool {
        let by =
            |secret: &Secret| same(&Cookie::of(secret, source).mac(parts.before_mac2), parts.mac2);
        by(&self.secret) || self.previous.as_ref().is_some_and(by)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("own", &self.own).finish_non_exhaustive()
    }
}

/// The fields that A and B have in common.
struct Parts<'a> {
    sender: SessionIndex,
    before_mac1: &'a [u8],
    mac1: &'a [u8; MAC_LEN],
    before_mac2: &'a [u8],
    mac2: &'a [u8; MAC_LEN],
}

impl<'a> Parts<'a> {
    fn of(message: &'a [u8]) -> Option<Self> {
        let len = match Kind::of(message)? {
            Kind::HandshakeA => A_LEN,
            Kind::HandshakeB => B_LEN,
            Kind::Response
            | Kind::ResponsePart
            | Kind::CookieReply
            | Kind::RestartNotice
            | Kind::Keepalive
            | Kind::KeepaliveAnswer
            | Kind::Data => return None,
        };
        if message.len() != len {
            return None;
        }
        let sender = SessionIndex(u32::from_be_bytes(*message[1..].first_chunk()?));
        let (before_mac2, mac2) = message.split_last_chunk()?;
        let (before_mac1, mac1) = before_mac2.split_last_chunk()?;
        Some(Self { sender, before_mac1, mac1, before_mac2, mac2 })
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
