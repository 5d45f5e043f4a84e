//! What the host's network manager knows about a link: whether it is metered, and whether its modem
//! is roaming.
//!
//! NetworkManager and ModemManager are asked on the system bus. Their guesses do not count
//! (NetworkManager guesses that every modem is metered). Without them nothing is known. Limits:
//! other managers are not asked.

use crate::dns::bus::{Bus, CallError, Method, Values, first_string};
#[cfg(not(test))]
use crate::dns::resolved::socket;
#[cfg(test)]
use tests::socket;

const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const MANAGER: &str = "org.freedesktop.NetworkManager";
const MANAGER_PATH: &str = "/org/freedesktop/NetworkManager";
const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const MODEMS: &str = "org.freedesktop.ModemManager1";
const MODEM_PATH: &str = "/org/freedesktop/ModemManager1/Modem/";
const MODEM_3GPP: &str = "org.freedesktop.ModemManager1.Modem.Modem3gpp";
/// `NMMetered`: what somebody or the network said; 3 and 4 are guesses.
const METERED_YES: u32 = 1;
const METERED_NO: u32 = 2;
/// `MMModem3gppRegistrationState`: at home; with SMS alone, or with calls in an older network.
const AT_HOME: [u32; 3] = [1, 6, 9];
/// The same elsewhere.
const ROAMING: [u32; 3] = [5, 7, 10];

/// What is known of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tariff {
    /// Whether it is metered.
    pub metered: Option<bool>,
    /// Whether it is in a network that is not the subscriber's own.
    pub roaming: Option<bool>,
}

/// What is known of the link of this name: of most, and where no manager runs, nothing. Takes as
/// long as the managers do, a few seconds at most.
pub fn of(link: &str) -> Tariff {
    ask(link).unwrap_or_default()
}

/// Whether there is a bus, and so may be somebody on it who will know what nobody knows yet.
pub fn may_be_known() -> bool {
    socket().exists()
}

fn ask(link: &str) -> Result<Tariff, CallError> {
    let mut bus = Bus::connect(&socket())?;
    let by_name = Method {
        destination: MANAGER,
        path: MANAGER_PATH,
        interface: MANAGER,
        name: "GetDeviceByIpIface",
    };
    let answer = bus.call(by_name, &Values::default().string(link))?;
    let Some(device) = first_string(&answer) else { return Ok(Tariff::default()) };
    let metered = match property(&mut bus, MANAGER, &device, DEVICE, "Metered").map(|v| number(&v))
    {
        Ok(Some(METERED_YES)) => Some(true),
        Ok(Some(METERED_NO)) => Some(false),
        Ok(_) | Err(_) => None,
    };
    // Of a modem this is its path with ModemManager.
    let modem = property(&mut bus, MANAGER, &device, DEVICE, "Udi")?;
    let modem = text(&modem).filter(|modem| modem.starts_with(MODEM_PATH));
    let state = modem.and_then(|modem| {
        let state = property(&mut bus, MODEMS, &modem, MODEM_3GPP, "RegistrationState");
        number(&state.ok()?)
    });
    let roaming = match state {
        Some(state) if ROAMING.contains(&state) => Some(true),
        Some(state) if AT_HOME.contains(&state) => Some(false),
        Some(_) | None => None,
    };
    Ok(Tariff { metered, roaming })
}

/// The value of a property, a variant.
fn property(
    bus: &mut Bus,
    destination: &str,
    path: &str,
    interface: &str,
    name: &str,
) -> Result<Vec<u8>, CallError> {
    let get = Method { destination, path, interface: PROPERTIES, name: "Get" };
    bus.call(get, &Values::default().string(interface).string(name))
}

/// A variant that is a number.
fn number(variant: &[u8]) -> Option<u32> {
    let value = variant.strip_prefix(&[1, b'u', 0, 0])?;
    Some(u32::from_le_bytes(*value.first_chunk()?))
}

/// A variant that is a string.
fn text(variant: &[u8]) -> Option<String> {
    first_string(variant.strip_prefix(&[1, b's', 0, 0])?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    thread_local! {
        static SOCKET: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
    }

    pub(super) fn socket() -> PathBuf {
        SOCKET.with_borrow(PathBuf::clone)
    }

    /// A string as the body of an answer has it.
    fn string(text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [&length[..], text.as_bytes(), &[0]].concat()
    }

    fn variant(kind: u8, value: &[u8]) -> Vec<u8> {
        [&[1, kind, 0, 0], value].concat()
    }

    /// A bus on which both managers say this; none for an error.
    fn serve(stream: UnixStream, metered: u32, udi: &str, state: Option<u32>) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.contains("AUTH EXTERNAL"), "{line}");
        stream.get_mut().write_all(b"OK 0123\r\n").unwrap();
        stream.read_line(&mut line).unwrap();
        let mut fixed = [0; 16];
        while stream.read_exact(&mut fixed).is_ok() {
            let word = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap());
            let mut rest = vec![0; word(12).next_multiple_of(8) as usize + word(4) as usize];
            stream.read_exact(&mut rest).unwrap();
            let has = |text: &str| rest.windows(text.len()).any(|part| part == text.as_bytes());
            let body = if has("Hello") {
                Some(string(":1.7"))
            } else if has("GetDeviceByIpIface") {
                has("wwan0").then(|| string("/org/freedesktop/NetworkManager/Devices/4"))
            } else if has("Metered") {
                Some(variant(b'u', &metered.to_le_bytes()))
            } else if has("Udi") {
                Some(variant(b's', &string(udi)))
            } else {
                assert!(has("RegistrationState") && has(udi));
                state.map(|state| variant(b'u', &state.to_le_bytes()))
            };
            let (kind, body) = body.map_or_else(|| (3, string("no")), |body| (2, body));
            let mut answer = vec![b'l', kind, 0, 1];
            answer.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
            answer.extend([9, 0, 0, 0, 8, 0, 0, 0, 5, 1, b'u', 0]); // its serial, one field
            answer.extend(word(8).to_le_bytes());
            answer.extend(body);
            stream.get_mut().write_all(&answer).unwrap();
        }
    }

    fn told(link: &str, metered: u32, udi: &'static str, state: Option<u32>) -> Tariff {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let bus = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(stream, metered, udi, state);
        });
        SOCKET.set(path);
        let told = of(link);
        bus.join().unwrap();
        told
    }

    const MODEM: &str = "/org/freedesktop/ModemManager1/Modem/0";

    #[test]
    fn managers_say_what_is_metered_and_what_roams() {
        let tariff = |metered, roaming| Tariff { metered, roaming };
        assert_eq!(told("wwan0", 1, MODEM, Some(5)), tariff(Some(true), Some(true)));
        assert_eq!(told("wwan0", 2, MODEM, Some(1)), tariff(Some(false), Some(false)));
        assert_eq!(told("wwan0", 3, MODEM, Some(2)), tariff(None, None), "a guess, and searching");
        assert_eq!(told("wwan0", 1, MODEM, None), tariff(Some(true), None));
        assert_eq!(told("wwan0", 1, "/sys/devices/pci", Some(5)), tariff(Some(true), None));
        assert_eq!(told("eth0", 1, MODEM, Some(5)), Tariff::default(), "not managed");
    }

    #[test]
    fn where_no_bus_is_nothing_is_known() {
        SOCKET.set(PathBuf::from("/nowhere/bus"));
        assert_eq!(of("wwan0"), Tariff::default());
    }
}
