//! Messages byte by byte, and answers that no bus should send.

use proptest::prelude::*;

use super::*;

const METHOD: Method<'_> = Method { destination: "a.b", path: "/o", interface: "i.f", name: "Do" };

#[test]
fn a_call_has_the_bytes_of_the_specification() {
    let arguments = Values::default().int32(7).structures("sb", [("x", true)], |values, (s, b)| {
        values.text(s);
        values.word(u32::from(b));
    });
    assert_eq!(arguments.signature, "ia(sb)");
    #[rustfmt::skip]
    assert_eq!(arguments.bytes, [
        7, 0, 0, 0,
        12, 0, 0, 0, // length of the array, which starts at a multiple of eight
        1, 0, 0, 0, b'x', 0, 0, 0,
        1, 0, 0, 0,
    ]);
    let message = encode_call(3, METHOD, &arguments);
    assert_eq!(message[..12], [b'l', 1, 0, 1, 20, 0, 0, 0, 3, 0, 0, 0]);
    let fields_len = u32::from_le_bytes(*message[12..].first_chunk().unwrap()) as usize;
    assert_eq!(message.len(), 16 + fields_len.next_multiple_of(8) + 20);
    #[rustfmt::skip]
    assert_eq!(message[16..32], [1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'o', 0, 0, 0, 0, 0, 0]);
}

#[test]
fn an_answer_is_recognised_among_other_fields() {
    let mut fields = Values::default();
    fields.bytes.extend([7, 1, b's', 0]);
    fields.text("org.freedesktop.DBus");
    fields.align(8);
    fields.bytes.extend([FIELD_SIGNATURE, 1, b'g', 0, 1, b'b', 0]);
    fields.align(8);
    fields.bytes.extend([FIELD_REPLY_SERIAL, 1, b'u', 0]);
    fields.word(0x0102_0304);
    assert_eq!(reply_serial(&fields.bytes), Some(0x0102_0304));
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = reply_serial(&bytes);
        let _ = first_string(&bytes);
    }
}
