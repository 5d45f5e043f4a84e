//! What passes an end of a connection, as a file that Wireshark reads: pcap with nanoseconds, whose
//! packets begin with their IP headers (draft-ietf-opsawg-pcap, LINKTYPE_RAW).

/// Bytes that are kept of each packet: all headers.
const KEPT: usize = 128;
/// The format with nanoseconds, written in the order of the machine that reads it: little endian.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Its version.
const VERSION: [u16; 2] = [2, 4];
/// LINKTYPE_RAW.
const RAW: u32 = 101;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// The packets that passed each of the two ends.
#[derive(Debug, Default)]
pub(super) struct Capture([Vec<u8>; 2]);

impl Capture {
    /// A packet left an end, or arrived there.
    pub(super) fn note(&mut self, at_ns: u64, side: super::Side, packet: &[u8]) {
        let kept = &packet[..packet.len().min(KEPT)];
        let (seconds, rest_ns) = (at_ns / NS_PER_SECOND, at_ns % NS_PER_SECOND);
        let file = &mut self.0[side as usize];
        for word in [seconds as u32, rest_ns as u32, kept.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(kept);
    }

    /// What passed the client's, and the server's, each as a whole file.
    pub(super) fn files(&self) -> [Vec<u8>; 2] {
        self.0.each_ref().map(|packets| {
            let mut file = MAGIC.to_le_bytes().to_vec();
            VERSION.iter().for_each(|part| file.extend(part.to_le_bytes()));
            // No time zone, no accuracy, and the longest that a packet may be.
            for word in [0, 0, KEPT as u32, RAW] {
                file.extend(word.to_le_bytes());
            }
            file.extend(packets);
            file
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;

    #[test]
    fn a_file_has_a_header_and_a_record_for_each_packet() {
        let mut capture = Capture::default();
        capture.note(3 * NS_PER_SECOND + 7, Side::Server, &[0x45; 1_000]);
        let [client, server] = capture.files();
        assert_eq!(client.len(), 24);
        assert_eq!(server.len(), 24 + 16 + KEPT);
        let word = |at: usize| u32::from_le_bytes(server[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(20)), (MAGIC, RAW));
        assert_eq!([24, 28, 32, 36].map(word), [3, 7, KEPT as u32, 1_000]);
    }
}
