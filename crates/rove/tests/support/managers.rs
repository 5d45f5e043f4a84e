//! A system bus on which NetworkManager and ModemManager say what a test wants of one link.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// Where a client looks for the bus.
const BUS: &str = "/run/dbus/system_bus_socket";
const MODEM: &str = "/org/freedesktop/ModemManager1/Modem/0";
/// Of the fixed part of a message's header (D-Bus specification, message format).
const FIXED: usize = 16;
const CALL_ANSWERED: u8 = 2;
const CALL_FAILED: u8 = 3;

/// What both managers say, which may change.
pub(crate) struct Managers {
    /// `NMMetered`.
    pub(crate) metered: AtomicU32,
    /// `MMModem3gppRegistrationState`.
    pub(crate) registration: AtomicU32,
    link: &'static str,
}

impl Managers {
    /// Starts them; they know of `link` alone.
    pub(crate) fn start(link: &'static str, metered: u32, registration: u32) -> Arc<Self> {
        let says = Self {
            metered: AtomicU32::new(metered),
            registration: AtomicU32::new(registration),
            link,
        };
        let (says, (ready, is_ready)) = (Arc::new(says), mpsc::channel());
        let bus = Arc::clone(&says);
        thread::spawn(move || {
            std::fs::create_dir_all("/run/dbus").unwrap();
            let listener = UnixListener::bind(BUS).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming() {
                let bus = Arc::clone(&bus);
                thread::spawn(move || bus.serve(stream.unwrap()));
            }
        });
        is_ready.recv().unwrap();
        says
    }

    /// Answers calls until the caller goes.
    fn serve(&self, stream: UnixStream) -> Option<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        stream.get_mut().write_all(b"OK 0123\r\n").ok()?;
        stream.read_line(&mut line).ok()?;
        loop {
            let mut fixed = [0; FIXED];
            stream.read_exact(&mut fixed).ok()?;
            let word = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap());
            let fields = usize::try_from(word(12)).unwrap().next_multiple_of(8);
            let mut rest = vec![0; fields + usize::try_from(word(4)).unwrap()];
            stream.read_exact(&mut rest).ok()?;
            let body = self.answer(&rest).map(|body| (CALL_ANSWERED, body));
            let (kind, body) = body.unwrap_or_else(|| (CALL_FAILED, string("no")));
            let mut answer = vec![b'l', kind, 0, 1];
            answer.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
            // Its own serial, and one field: what it answers.
            answer.extend([9, 0, 0, 0, 8, 0, 0, 0, 5, 1, b'u', 0]);
            answer.extend(word(8).to_le_bytes());
            answer.extend(body);
            stream.get_mut().write_all(&answer).ok()?;
        }
    }

    /// The body of the answer to this call; none to one that they do not know.
    fn answer(&self, call: &[u8]) -> Option<Vec<u8>> {
        let has = |text: &str| call.windows(text.len()).any(|part| part == text.as_bytes());
        let number =
            |value: &AtomicU32| variant(b'u', &value.load(Ordering::Acquire).to_le_bytes());
        match () {
            () if has("Hello") => Some(string(":1.7")),
            () if has("GetDeviceByIpIface") => {
                has(self.link).then(|| string("/org/freedesktop/NetworkManager/Devices/4"))
            }
            () if has("RegistrationState") => Some(number(&self.registration)),
            () if has("Metered") => Some(number(&self.metered)),
            () if has("Udi") => Some(variant(b's', &string(MODEM))),
            () => None,
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_le_bytes();
    [&length[..], text.as_bytes(), &[0]].concat()
}

fn variant(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[1, kind, 0, 0], value].concat()
}
