//! TLS 1.3 around a stream (RFC 8446), for networks that let only HTTPS pass.
//!
//! It proves nothing and need not: each datagram inside is sealed under keys that only the gateway
//! of the invite can have agreed on. So the gateway makes a certificate of its own at each start,
//! and the client accepts any. It does not wait for post-quantum keys either, for the same reason.
//! No session is resumed: by a ticket an observer could see that two networks have the same client.

use std::sync::Arc;

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::NoServerSessionStorage,
    version::TLS13,
};

use super::frame::ALPN;
use crate::error::Error;

/// The alert of a gateway that was not asked for `rove/1`: fatal, no_application_protocol
/// (RFC 7301 section 3.2), in a record of its own (RFC 8446 section 5.1).
pub(super) const NO_PROTOCOL_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];

/// A client's side, its first message ready. `server_name`, a name or an address, is what the
/// bystander reads (an address is not sent); it is not compared with anything.
pub(crate) fn client(server_name: &str) -> Result<ClientConnection, Error> {
    let name = ServerName::try_from(server_name.to_owned())
        .map_err(|_| Error::BadServerName { name: server_name.to_owned() })?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    ClientConnection::new(Arc::new(config), name).map_err(failed)
}

/// A gateway's side, with a certificate made now and kept nowhere.
pub(crate) fn server() -> Result<Arc<ServerConfig>, Error> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
        .map_err(|error| Error::Tls { why: error.to_string() })?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(failed)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn failed(error: rustls::Error) -> Error {
    Error::Tls { why: error.to_string() }
}

/// Accepts every certificate.
///
/// Why this is safe here, and would not be elsewhere: whoever opens this TLS layer, be it a
/// stranger with a certificate of his own, finds what a bystander of UDP finds: Noise messages and
/// sealed datagrams (docs/spec/handshake.md#1-security-properties). He can drop, delay and repeat
/// them, as on UDP, and no more; the gateway is known by its static key, the client hides its own
/// under that key, and every datagram is authenticated inside. Nothing is ever sent on such a
/// stream that may not be sent in the clear. To demand a certificate would add no safety, and
/// would fail behind middle boxes that open TLS, where Rove still works.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // Never asked: TLS 1.2 is not offered.
        Err(rustls::Error::General("TLS 1.2 was not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // The signature is made with the key of a certificate that means nothing.
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
