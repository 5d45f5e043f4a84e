//! Randomness of the operating system, and no generator of our own.

use std::io;

use crate::error::Error;

/// Fills `bytes` from the kernel's generator (getrandom(2)), which blocks only until the machine
/// has gathered its first entropy after boot.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids the call. There is no weaker source to fall back to.
pub fn fill(mut bytes: &mut [u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a live, writable slice.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => bytes = &mut bytes[got..],
            Err(_) => {
                let source = io::Error::last_os_error();
                if source.kind() != io::ErrorKind::Interrupted {
                    return Err(Error::os("read random numbers from the kernel", source));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_readings_differ_and_reach_the_last_byte() {
        let (mut one, mut two) = ([0; 4_096], [0; 4_096]);
        super::fill(&mut one).unwrap();
        super::fill(&mut two).unwrap();
        assert_ne!(one, two);
        // The chance of sixteen zero bytes at the end is 2^-128.
        assert_ne!(one[4_080..], [0; 16]);
    }
}
