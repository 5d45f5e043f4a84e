//! Eve as a client: enrolled, with keys of her own, and a core that says whatever she likes.

use std::net::SocketAddr;

use super::{Eve, Seen, at};
use crate::pair::{GATEWAY, Pair};
use rove_proto::crypto::{
    EpochKeys, Features, Floor, Hello, Initiator, Nonce, SeededRng, StaticSecret,
};
use rove_proto::id::{PacketNumber, PathSerial, PeerKey, SessionIndex};
use rove_proto::node::{Command, PeerConfig, SideConfig};
use rove_proto::policy;
use rove_proto::role::Access;
use rove_proto::wire::Kind;
use rove_proto::wire::control::{Lease, Prefix};
use rove_proto::wire::data::{HEADER_LEN, TAG_LEN};
use rove_proto::wire::frame::{Frame, emit_padding};

/// Her inner address.
pub(crate) const INNER: [u8; 4] = [10, 9, 0, 3];

/// A session of hers with the gateway.
pub(crate) struct Insider {
    pub(crate) key: PeerKey,
    home: SocketAddr,
    secret: StaticSecret,
    rng: SeededRng,
    /// Handshakes so far.
    counter: u64,
    session: Option<Session>,
}

struct Session {
    keys: EpochKeys,
    index: SessionIndex,
    next: PacketNumber,
}

impl Insider {
    /// She is let in, from `home`.
    pub(crate) fn new(pair: &mut Pair, eve: &Eve, home: SocketAddr) -> Self {
        let mut rng = SeededRng::new(0xe7e);
        let secret = StaticSecret::generate(&mut rng);
        let key = secret.public();
        let own = vec![Prefix::host(INNER.into())];
        let (gateway, local, allow) = (vec![], vec![], vec![]);
        let access = Access::Restricted { own, gateway, internet: true, local, allow };
        let side = SideConfig::Client { lease: Lease::default() };
        let config = PeerConfig { key, psk: None, access, side };
        pair.tell_gateway(Command::AddPeer(Box::new(config)));
        let mut insider = Self { key, home, secret, rng, counter: 0, session: None };
        insider.connect(pair, eve);
        insider
    }

    /// She has another session, in place of the one before.
    pub(crate) fn connect(&mut self, pair: &mut Pair, eve: &Eve) {
        self.counter += 1;
        let hello = Hello {
            counter: self.counter,
            features: Features::NONE,
            floor: Floor::BITS_128,
            has_aes: true,
            token: None,
            indices: std::array::from_fn(|i| SessionIndex(0xe7e0 + i as u32)),
        };
        let Self { rng, secret, home, .. } = self;
        let (mut initiator, messages) =
            Initiator::start(rng, secret, pair.gateway_key, None, &hello).unwrap();
        eve.trust(*home); // she has to get the answer there
        eve.take();
        for half in [messages.a, messages.b] {
            eve.send(pair, *home, at(GATEWAY), &half);
        }
        let answer =
            |seen: &Seen| seen.to == *home && Kind::of(&seen.bytes) == Some(Kind::Response);
        let answer = eve.take().into_iter().find(answer).unwrap();
        let (welcome, keys) = initiator.finish(&answer.bytes).unwrap();
        let index = welcome.indices[0];
        self.session = Some(Session { keys: keys.unwrap(), index, next: 0 });
    }

    /// A datagram with `frames`, padded to `len` bytes, for the gateway.
    pub(crate) fn say(&mut self, frames: &[Frame<'_>], len: usize) -> Vec<u8> {
        let index = self.session.as_ref().unwrap().index;
        self.say_to(index, frames, len)
    }

    /// The same under her keys, with somebody's index.
    pub(crate) fn say_to(
        &mut self,
        index: SessionIndex,
        frames: &[Frame<'_>],
        len: usize,
    ) -> Vec<u8> {
        let mut plaintext = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut plaintext));
        let room = len.saturating_sub(HEADER_LEN + TAG_LEN).max(1);
        let padding = room.saturating_sub(plaintext.len());
        emit_padding(&mut plaintext, padding);
        let mut datagram = vec![0; HEADER_LEN];
        datagram.extend(plaintext);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        let Session { keys, next, .. } = self.session.as_mut().unwrap();
        let nonce = Nonce { serial: PathSerial(0), number: *next };
        *next += 1;
        keys.seal.seal(index, policy::profile(&keys.seal), nonce, &mut datagram);
        datagram
    }
}
