//! One end of a QUIC connection, over which one side sends an endless stream.
//!
//! It is a QUIC library in real use (quinn-proto), with its own recovery (RFC 9002), pacing, flow
//! control and path MTU discovery. This module adds only the program at either end and the clock.
//! No ECN marks are sent, as by most users of QUIC.
//!
//! All chance follows from the seed, except for keys. Keys change only bytes that look random:
//! lengths and times are the same in every run.

use super::Heard;
use crate::emu::{Rng, earliest};
use crate::ground::Congestion;
use quinn_proto::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, MtuDiscoveryConfig, ReadError, ServerConfig, StreamEvent, StreamId, TransportConfig,
    VarInt, WriteError,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Received bytes that may be unread, and sent bytes that may be unacknowledged: Chromium's initial
/// window of a stream, and more than the fastest pair of the lab's links has in flight with a
/// standing queue of 100 ms. With several times as much, a BBR that overestimates the rate has so
/// many gaps open (over 1,024) that quinn gives up.
const WINDOW: u32 = 6 << 20;
/// The length of the repeated content: no power of two, so that a part in the wrong place shows.
const SAID: usize = 65_521;
/// The server's name, which never leaves the lab.
const NAME: &str = "lab.invalid";
/// An Ed25519 key as PKCS #8 has it (RFC 8410, section 7), but for the key itself.
const KEY_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Which end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that opens the connection.
    Client,
    /// The one that accepts it.
    Server,
}

/// One end.
pub struct Quic {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// QUIC's clock when ours is 0: any moment, because only differences count.
    origin: Instant,
    /// A payload arrived that was not yet processed.
    woken_ns: Option<u64>,
    /// Sent by the endpoint itself.
    responses: Vec<Vec<u8>>,
    /// Whether this end sends the stream.
    says: bool,
    stream: Option<StreamId>,
    content: Vec<u8>,
    said: u64,
    heard: Heard,
    broke: Option<String>,
}

impl std::fmt::Debug for Quic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Quic")
            .field("said", &self.said)
            .field("heard", &self.heard.bytes)
            .finish()
    }
}

impl Quic {
    /// An end of a connection; both need the same seed. A client begins with its first turn.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn new(
        side: Side,
        says: bool,
        congestion: Congestion,
        seed: u64,
        now_ns: u64,
    ) -> anyhow::Result<Self> {
        let mut rng = Rng::new(seed).fork(0x7175);
        let (certificate, key) = certificate(&mut rng)?;
        let mut content = vec![0; SAID];
        rng.fork(0x63).fill(&mut content);
        let mut chance = [0; 32];
        rng.fork(1 + side as u64).fill(&mut chance);
        let origin = Instant::now();
        let transport = Arc::new(transport(congestion));
        let mut config = EndpointConfig::default();
        config.rng_seed(Some(chance));
        let called = match side {
            Side::Client => None,
            Side::Server => {
                let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key)?;
                server.transport_config(Arc::clone(&transport));
                Some(Arc::new(server))
            }
        };
        let mut endpoint = Endpoint::new(Arc::new(config), called, true, None);
        let connection = match side {
            Side::Server => None,
            Side::Client => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate)?;
                let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
                client.transport_config(transport);
                let now = origin + Duration::from_nanos(now_ns);
                Some(endpoint.connect(now, client, other(), NAME)?)
            }
        };
        Ok(Self {
            endpoint,
            woken_ns: connection.is_some().then_some(now_ns),
            connection,
            origin,
            responses: Vec::new(),
            says,
            stream: None,
            content,
            said: 0,
            heard: Heard::default(),
            broke: None,
        })
    }

    pub(super) const fn heard(&self) -> &Heard {
        &self.heard
    }

    pub(super) fn due_ns(&mut self) -> Option<u64> {
        let (_, connection) = self.connection.as_mut().filter(|_| self.broke.is_none())?;
        let timeout = connection.poll_timeout();
        let timeout_ns = timeout.map(|at| at.saturating_duration_since(self.origin).as_nanos());
        earliest([self.woken_ns, timeout_ns.map(|ns| ns as u64)])
    }

    pub(super) fn arrives(&mut self, now_ns: u64, payload: &[u8]) {
        let now = self.origin + Duration::from_nanos(now_ns);
        self.heard.note_length(payload);
        let mut response = Vec::new();
        let event = self.endpoint.handle(now, other(), None, None, payload.into(), &mut response);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((own, connection)) = &mut self.connection
                    && *own == handle
                {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) if self.connection.is_none() => {
                let accepted = self.endpoint.accept(incoming, now, &mut response, None);
                self.connection = accepted.ok();
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            Some(DatagramEvent::Response(_)) => self.responses.push(response),
            None => {}
        }
        self.woken_ns = Some(now_ns);
    }

    pub(super) fn leaving(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) -> Result<(), String> {
        self.woken_ns = None;
        out.append(&mut self.responses);
        let now = self.origin + Duration::from_nanos(now_ns);
        let Some((handle, connection)) = &mut self.connection else { return Ok(()) };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        self.run(now_ns)?;
        let Some((_, connection)) = &mut self.connection else { return Ok(()) };
        let mut payload = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut payload) {
            payload.truncate(transmit.size);
            out.push(std::mem::take(&mut payload));
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            self.woken_ns = Some(now_ns + 1);
        }
        self.broke.clone().map_or(Ok(()), Err)
    }

    /// The program: sends as much as there is room for, and reads what has arrived.
    fn run(&mut self, now_ns: u64) -> Result<(), String> {
        let Some((_, connection)) = &mut self.connection else { return Ok(()) };
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => {
                    self.heard.opened_ns.get_or_insert(now_ns);
                    if self.says {
                        self.stream = connection.streams().open(Dir::Uni);
                    }
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) if !self.says => {
                    self.stream = connection.streams().accept(Dir::Uni);
                }
                Event::ConnectionLost { reason } => self.broke = Some(reason.to_string()),
                Event::HandshakeDataReady
                | Event::Stream(_)
                | Event::DatagramReceived
                | Event::DatagramsUnblocked => {}
            }
        }
        let Some(stream) = self.stream.filter(|_| self.broke.is_none()) else { return Ok(()) };
        if self.says { self.say(stream) } else { self.read(now_ns, stream) }
    }

    fn say(&mut self, stream: StreamId) -> Result<(), String> {
        let Some((_, connection)) = &mut self.connection else { return Ok(()) };
        let mut stream = connection.send_stream(stream);
        loop {
            let at = (self.said % SAID as u64) as usize;
            match stream.write(&self.content[at..]) {
                Ok(bytes) => self.said += bytes as u64,
                Err(WriteError::Blocked) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn read(&mut self, now_ns: u64, stream: StreamId) -> Result<(), String> {
        let Some((_, connection)) = &mut self.connection else { return Ok(()) };
        let mut stream = connection.recv_stream(stream);
        let mut chunks = stream.read(true).map_err(|error| error.to_string())?;
        loop {
            let chunk = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Err("the stream ended".to_owned()),
                Err(ReadError::Blocked) => break,
                Err(error) => return Err(error.to_string()),
            };
            let mut rest = &chunk.bytes[..];
            while !rest.is_empty() {
                let at = (self.heard.bytes % SAID as u64) as usize;
                let here = rest.len().min(SAID - at);
                if rest[..here] != self.content[at..at + here] {
                    return Err(format!("byte {} and on is not what was said", self.heard.bytes));
                }
                self.heard.note(now_ns, here as u64);
                rest = &rest[here..];
            }
        }
        let _ = chunks.finalize(); // what is to be sent because of it is asked for next
        Ok(())
    }
}

/// The other end's address, which nobody uses.
fn other() -> SocketAddr {
    (Ipv4Addr::new(198, 51, 100, 7), 443).into()
}

fn transport(congestion: Congestion) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into())
        .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
        .enable_segmentation_offload(false);
    match congestion {
        Congestion::Cubic => {
            transport.congestion_controller_factory(Arc::new(CubicConfig::default()))
        }
        Congestion::Reno => {
            transport.congestion_controller_factory(Arc::new(NewRenoConfig::default()))
        }
        Congestion::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    transport
}

/// The server's certificate and key, which follow from the seed, so that two programs have the
/// same.
fn certificate(rng: &mut Rng) -> anyhow::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
    let mut secret = [0; 32];
    rng.fill(&mut secret);
    let der = PrivatePkcs8KeyDer::from([&KEY_PREFIX[..], &secret].concat());
    let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519)?;
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
    Ok((certificate.der().clone(), der.into()))
}
