//! Nodes write down what they owe of open connections, and their next process breaks it off.

use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;
use rove_proto::node::Command;

use super::World;
use crate::world::host::Power;
use crate::world::host_id::HostId;
use crate::world::laws::Breach;

impl World {
    /// Something will be owed: once it is on the disk, the node hears of it. What a host that is
    /// not there any more wanted to write is lost.
    pub(in crate::world) fn write_down(
        &mut self,
        host: HostId,
        peer: PeerKey,
        tuple: Tuple,
    ) -> Result<(), Breach> {
        if self.hosts[host].power != Power::On {
            return Ok(());
        }
        self.owed.write(host, peer, tuple);
        self.command(host, Command::Recorded { peer, tuple })
    }

    /// A process begins, and hears what the one before it owed.
    pub(in crate::world) fn inherit_owed(&mut self, host: HostId) -> Result<(), Breach> {
        let mut inherited = self.owed.of(host).into_iter();
        inherited
            .try_for_each(|(peer, tuple)| self.command(host, Command::BreakOff { peer, tuple }))
    }
}
