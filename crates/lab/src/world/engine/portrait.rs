//! Both ends of a session as a reader of a failure wants to see them.

use super::World;
use crate::world::host_id::HostId;

impl World {
    /// Both ends of a session, for the report of a failure.
    pub(in crate::world) fn portrait(&self, client: usize) -> String {
        let gateway = self.gateways.serving(client);
        let ends = [
            ("client", &self.hosts[HostId::Client(client)], gateway.key),
            ("gateway", &self.hosts[gateway.host], self.clients[client].key),
        ];
        let lines = ends.map(|(name, host, peer)| {
            let status = host.node().status(peer).map(|status| {
                let paths = status.paths.iter().map(|p| {
                    format!(
                        "\n    #{} {:?} -> {} use {} shared {} {:?} {:?} mtu {} nat {} heard {:?}",
                        p.id,
                        p.route.local,
                        p.remote(),
                        p.in_use,
                        p.is_shared,
                        p.trust,
                        p.health,
                        p.mtu,
                        p.natted,
                        p.heard_at,
                    )
                });
                format!(
                    "{:?} handshaking {} waiting {}{}",
                    status.state,
                    status.handshaking,
                    status.waiting,
                    paths.collect::<String>()
                )
            });
            let drops: Vec<_> = host.node().drops().iter().map(|(r, n)| (r.label(), n)).collect();
            format!(
                "  {name} {:?} at {:?}: {}\n    cards {:?}\n    drops {drops:?}",
                host.power,
                host.clock(self.now_ns),
                status.unwrap_or_else(|| "no session".to_owned()),
                host.cards.iter().flatten().map(|c| (c.access, &c.addresses)).collect::<Vec<_>>(),
            )
        });
        format!("{}\n  refused {:?}", lines.join("\n"), self.clients[client].refused)
    }
}
