//! The bytes of a D-Bus before it closes: the reply to Rove's first call, among messages for other
//! receivers.

use rove_os::fuzz::bus_answer;

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "bus_answer", run, seeds, mutations: 10_000 };

fn run(data: &[u8]) {
    if let Ok(body) = bus_answer(data) {
        let said = body.is_empty() || data.windows(body.len()).any(|part| part == body);
        assert!(said, "an answer that the bus did not give");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let string = |text: &str| {
        let length = u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
        [&length[..], text.as_bytes(), &[0]].concat()
    };
    // Header fields, each at a multiple of eight: the serial that is answered to, and others.
    let answers_to = |serial: u32| [&[5, 1, b'u', 0][..], &serial.to_le_bytes()].concat();
    let sender = [&[7, 1, b's', 0][..], &string(":1.7"), &[0; 3]].concat();
    let signature = [8, 1, b'g', 0, 1, b's', 0, 0].to_vec();
    let message = |kind: u8, fields: &[u8], body: &[u8]| {
        let mut bytes = vec![b'l', kind, 0, 1];
        bytes.extend(u32::try_from(body.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(u32::try_from(fields.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(fields);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend_from_slice(body);
        bytes
    };
    let fields = |serial| [signature.clone(), answers_to(serial), sender.clone()].concat();
    let signal = message(4, &sender, &string("changed"));
    let number = [&[1, b'u', 0, 0][..], &7u32.to_le_bytes()].concat();
    vec![
        message(2, &answers_to(1), &[]),
        message(2, &fields(1), &string("/org/freedesktop/NetworkManager/Devices/4")),
        message(2, &fields(1), &number),
        message(3, &fields(1), &string("org.freedesktop.DBus.Error.AccessDenied")),
        [signal.clone(), message(2, &fields(7), &[]), message(2, &fields(1), b"ok")].concat(),
        message(2, &[], &[]),
        signal.repeat(20),
    ]
}
