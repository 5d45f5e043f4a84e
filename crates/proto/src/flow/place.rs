//! Names a flow within the table of its session.

/// Where a flow stands in its table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(pub(super) u32);

#[cfg(test)]
impl Place {
    /// The place of this number.
    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }
}
