//! The targets, one file each.

pub mod bus_answer;
pub mod compact;
pub mod compressed;
pub mod control;
pub mod control_request;
pub mod data_header;
pub mod dictionary;
pub mod dns_answer;
pub mod dns_forwarded;
pub mod exchange;
pub mod first_bytes;
pub mod frames;
pub mod handshake;
pub mod http_answer;
pub mod inner_packet;
pub mod invite;
pub mod keyed_client;
pub mod keyed_gateway;
pub mod netlink;
pub mod plan_journal;
pub mod sealed;
pub mod session;
pub mod store_record;
pub mod stream_frames;
pub mod tun_merge;
pub mod tun_split;
pub mod world;

/// Splits an input `bytes that arrive at once 1 | stream` into the stream and the pieces in which
/// it arrives. Zero means all at once.
fn in_pieces(data: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some((at_once, stream)) = data.split_first() else { return (data, Vec::new()) };
    let pieces = match usize::from(*at_once) {
        0 => vec![stream],
        at_once => stream.chunks(at_once).collect(),
    };
    (stream, pieces)
}
