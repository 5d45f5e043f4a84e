//! The memory that all connections of a node may hold, and how it is used.
//!
//! Decides how much of it one connection gets, and how much the connections of one peer get
//! together. No client of a gateway can use up the memory of the others. A peer may hold as much as
//! is still free (the dynamic thresholds of Choudhury and Hahne, 1998). A single peer therefore
//! gets half. It keeps what it has, because senders were told that their data arrived. So a second
//! peer gets a quarter, and a third an eighth. As their data is delivered, all converge to equal
//! shares. A node with one peer, such as a client, does not share.

use crate::blocks::{BLOCK, Blocks};
use crate::time::Instant;

/// How many times the free memory one peer may hold. With twice as much, the third greedy peer
/// would leave a fourth one a fortieth of all. With half as much, two thirds would stay unused
/// while only one client has no path.
const FREE_PARTS: usize = 1;
/// The same for the oldest segments of connections. They matter most, and each connection has few.
const FREE_PARTS_OLDEST: usize = 4;

/// The memory that the connections of one peer hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    used: usize,
    /// Blocks that they have borrowed.
    lent: usize,
    flows: usize,
}

/// How much memory all connections of a node may hold together, and the blocks that it comes in.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(in crate::flow) blocks: Blocks,
    /// Blocks that connections have borrowed.
    lent: usize,
    used: usize,
    max: usize,
    share: usize,
    /// Connections that are known.
    flows: usize,
    /// The account of the peer that is served now.
    account: Account,
    /// Whether there are other peers to share with.
    is_shared: bool,
}

impl Memory {
    /// Of how many of `max` the share of one connection is.
    const SHARES: usize = 8;
    /// Connections that a node knows at most, whatever becomes of them: some 30 MB.
    pub(crate) const FLOWS_MAX: usize = 1 << 16;

    /// Blocks beyond those that `max` bytes fill: so many small things may be kept in any case.
    const BLOCKS_MIN: usize = 64;

    /// `max` bytes, of which one connection gets at most an eighth.
    pub fn new(max: usize) -> Self {
        let share = max / Self::SHARES;
        let (blocks, account) = (Blocks::default(), Account::default());
        Self { blocks, lent: 0, used: 0, max, share, flows: 0, account, is_shared: false }
    }

    /// Swaps in the account of the peer to serve. Call it before and after each operation of a
    /// peer: the second call swaps the account back.
    pub(crate) const fn serve(&mut self, account: &mut Account) {
        std::mem::swap(&mut self.account, account);
    }

    /// Sets the number of peers.
    pub(crate) const fn share_among(&mut self, peers: usize) {
        self.is_shared = peers > 1;
    }

    /// Whether the present peer may hold `own` while `free` is left.
    const fn is_fair(&self, own: usize, free: usize, parts: usize) -> bool {
        !self.is_shared || own <= free.saturating_mul(parts)
    }

    /// Blocks for whatever is kept.
    pub(crate) const fn blocks(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// When [`Self::release`] is to be called again.
    pub const fn due(&self) -> Option<Instant> {
        self.blocks.due()
    }

    /// Gives back to the system what was not needed for a while. To be called now and then, and
    /// when it is due.
    pub fn release(&mut self, now: Instant) {
        self.blocks.release(now);
    }

    /// Bytes held.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether more than half is in use, and not only by other peers. Then some connections get
    /// none of the rest.
    pub(crate) const fn is_short(&self) -> bool {
        let Account { used, lent, .. } = self.account;
        let free =
            (self.max.saturating_sub(self.used), self.blocks_max().saturating_sub(self.lent));
        self.used > self.max / 2 && used > free.0 / 2
            || self.lent > self.blocks_max() / 2 && lent > free.1 / 2
    }

    /// Blocks that connections may borrow: a few bytes take a whole one.
    const fn blocks_max(&self) -> usize {
        self.max / BLOCK + Self::BLOCKS_MIN
    }

    /// Connections that are known.
    pub const fn flows(&self) -> usize {
        self.flows
    }

    /// Whether this peer has its maximum number of connections.
    pub(crate) const fn is_crowded(&self) -> bool {
        let free = Self::FLOWS_MAX.saturating_sub(self.flows);
        free == 0 || !self.is_fair(self.account.flows, free, FREE_PARTS)
    }

    pub(crate) const fn one_flow_more(&mut self) {
        self.flows += 1;
        self.account.flows += 1;
    }

    pub(crate) const fn flows_less(&mut self, count: usize) {
        self.flows = self.flows.saturating_sub(count);
        self.account.flows = self.account.flows.saturating_sub(count);
    }

    /// Bytes that one connection may hold.
    pub(crate) const fn share(&self) -> usize {
        self.share
    }

    /// Bytes that may be held.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Borrows so many blocks, if there are as many. Who gives them back says so with
    /// [`Self::returned`].
    pub(crate) const fn borrow(&mut self, blocks: usize) -> Result<(), NoRoom> {
        let Some(free) = self.blocks_max().checked_sub(self.lent + blocks) else {
            return Err(NoRoom::AtAll);
        };
        if !self.is_fair(self.account.lent + blocks, free + blocks, FREE_PARTS) {
            return Err(NoRoom::ForPeer);
        }
        self.lent += blocks;
        self.account.lent += blocks;
        Ok(())
    }

    /// The same, for what may take more than its bytes do: half of all may be lent so.
    pub(crate) const fn borrow_spaciously(&mut self, blocks: usize) -> Result<(), NoRoom> {
        let is_short = self.lent + blocks > self.blocks_max() / 2;
        if is_short { Err(NoRoom::AtAll) } else { self.borrow(blocks) }
    }

    /// So many borrowed blocks went back.
    pub(crate) const fn returned(&mut self, blocks: usize) {
        self.lent -= blocks;
        self.account.lent = self.account.lent.saturating_sub(blocks);
    }

    /// Blocks that connections have borrowed.
    #[cfg(test)]
    pub(crate) const fn lent(&self) -> usize {
        self.lent
    }

    /// Takes `bytes` for a connection that holds `held`, if its share and the whole allow it, less
    /// one share.
    pub(crate) const fn take(&mut self, held: usize, bytes: usize) -> Result<(), NoRoom> {
        if held + bytes > self.share {
            return Err(NoRoom::InShare);
        }
        if self.used + bytes > self.max - self.share {
            return Err(NoRoom::AtAll);
        }
        let free = self.max - self.share - self.used;
        if !self.is_fair(self.account.used + bytes, free, FREE_PARTS) {
            return Err(NoRoom::ForPeer);
        }
        self.used += bytes;
        self.account.used += bytes;
        Ok(())
    }

    /// The same for the oldest segments of a connection, for which as much as the share of one is
    /// left over: they matter most where there is no memory for more. Returns whether it fits.
    pub(crate) const fn take_for_oldest(&mut self, bytes: usize) -> bool {
        let free = self.max.saturating_sub(self.used);
        let fits =
            bytes <= free && self.is_fair(self.account.used + bytes, free, FREE_PARTS_OLDEST);
        if fits {
            self.used += bytes;
            self.account.used += bytes;
        }
        fits
    }

    pub(crate) const fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        self.account.used = self.account.used.saturating_sub(bytes);
    }
}

/// Why something is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// The connection has its share already.
    InShare,
    /// The peer's connections already have their share, and other peers need the rest.
    ForPeer,
    /// All connections together have all that there is.
    AtAll,
    /// There is little, and others gain more by it.
    ForThis,
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
