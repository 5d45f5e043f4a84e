//! Reading and writing the few shapes that invites are made of. Reading never panics.

/// Takes values off the front of some bytes.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes are left.
    pub(super) const fn rest(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Bytes behind their length in one byte.
    pub(super) fn short(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.byte()?);
        self.take(length)
    }

    /// Bytes behind their length in two bytes.
    pub(super) fn long(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        self.take(length)
    }
}

/// Appends `bytes`, at most 255 of them, behind their length. What does not fit is a bug of the
/// caller: its bounds are constants.
pub(super) fn put_short(to: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u8::MAX), "bounded by the caller's constants");
    to.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    to.extend(bytes);
}

/// Appends `bytes`, at most 65,535 of them, behind their length.
pub(super) fn put_long(to: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u16::MAX), "bounded by the caller's constants");
    to.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    to.extend(bytes);
}
