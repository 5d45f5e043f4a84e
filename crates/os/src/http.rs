//! The head of an HTTP/1 response (RFC 9112), from a proxy or from whoever answers in its place.
//!
//! It is parsed strictly and within a bound: invalid data is refused at its first wrong byte.
//! Bodies are not read.

/// Bytes of the longest answer, up to the empty line.
pub const ANSWER_LEN_MAX: usize = 8_192;
/// Characters of a server's words that are shown to people.
const REASON_LEN_MAX: usize = 60;

/// An answer that is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// 100 to 599.
    pub(crate) status: u16,
    /// Printable and short.
    pub(crate) reason: String,
    /// Bytes up to and with the empty line.
    pub(crate) length: usize,
}

/// Reads an answer from its beginning: `None` while more has to come.
///
/// # Errors
/// What is wrong with it, in words that can follow "does not answer like an HTTP server".
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Answer>, &'static str> {
    const VERSION: &[u8] = b"HTTP/1.";
    let beginning = VERSION.len().min(bytes.len());
    if bytes[..beginning] != VERSION[..beginning] {
        return Err("its answer does not begin with HTTP/1");
    }
    let head = &bytes[..bytes.len().min(ANSWER_LEN_MAX)];
    let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else {
        let is_too_long = bytes.len() >= ANSWER_LEN_MAX;
        return if is_too_long { Err("its answer does not end") } else { Ok(None) };
    };
    let line = head[..end].split(|&byte| byte == b'\r').next().unwrap_or_default();
    let (status, reason) = status_line(line).ok_or("its answer has no status")?;
    Ok(Some(Answer { status, reason, length: end + 4 }))
}

/// `HTTP/1.x SP status [SP reason]` (RFC 9112 section 4).
fn status_line(line: &[u8]) -> Option<(u16, String)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let (&[minor, b' ', hundreds, tens, ones], rest) = rest.split_first_chunk::<5>()? else {
        return None;
    };
    let is_number = [minor, hundreds, tens, ones].iter().all(u8::is_ascii_digit);
    if !is_number || !(b'1'..=b'5').contains(&hundreds) {
        return None;
    }
    let status = [hundreds, tens, ones].iter().fold(0, |sum, d| sum * 10 + u16::from(d - b'0'));
    let reason = match rest {
        [] => rest,
        [b' ', reason @ ..] => reason,
        _ => return None,
    };
    let printable = reason.iter().filter(|byte| (b' '..=b'~').contains(byte));
    Some((status, printable.take(REASON_LEN_MAX).map(|&byte| char::from(byte)).collect()))
}

/// The value of the first field with this name in the `head` of an answer, without space around it
/// (RFC 9112 section 5).
pub(crate) fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (found, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    })
}
