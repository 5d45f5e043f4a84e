//! A packet as a line of text.

#![expect(clippy::print_stdout, reason = "what happens is told where somebody asked for it")]

use rove_lab::tcp::Segment;

/// Prints a packet.
pub(super) fn tell(now_ns: u64, side: usize, what: &str, packet: &[u8]) {
    let at_us = now_ns / 1_000;
    match Segment::parse(packet) {
        Ok(segment) => {
            let Segment { sequence, acknowledgment, flags, window, options, payload, .. } = segment;
            let port = segment.source.port();
            let bits = [(flags.syn, 'S'), (flags.fin, 'F'), (flags.rst, 'R'), (flags.psh, 'P')];
            let flags: String = bits.iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
            let (len, clocks) =
                (payload.len(), options.timestamps.map(|both| (both.value, both.echo)));
            let ack = acknowledgment.unwrap_or(0);
            println!(
                "{at_us:>12} us  {side} {what:<20} {port} {flags:<2} seq {sequence} +{len} \
                 ack {ack} win {window} {:?} {clocks:?}",
                options.sacks
            );
        }
        Err(error) => println!("{at_us:>12} us  {side} {what:<20} {error}"),
    }
}
