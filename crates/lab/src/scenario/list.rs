//! Every scenario. A scenario knows none of the others, so that what they share does not know them.

use super::Scenario;
use super::asymmetric::Asymmetric;
use super::blackhole::Blackhole;
use super::bond::Bond;
use super::both_move::BothMove;
use super::busy_sessions::BusySessions;
use super::commute::Commute;
use super::competition::Competition;
use super::compress::CompressFlows;
use super::disconnects::Disconnects;
use super::failover::Failover;
use super::family::FamilyChange;
use super::first_download::FirstDownload;
use super::gso_mangled::GsoMangled;
use super::headers::Headers;
use super::hop::Hop;
use super::idle::Idle;
use super::latency_qos::LatencyQos;
use super::lossy_uplink::LossyUplink;
use super::many_flows::ManyFlows;
use super::mesh::Mesh;
use super::modes::Modes;
use super::nat_rebind::NatRebind;
use super::persist::Persist;
use super::priority::Priority;
use super::random_links::RandomLinks;
use super::restart_gateway::RestartGateway;
use super::resume_loss::ResumeLoss;
use super::roam_client::RoamClient;
use super::roam_gateway::RoamGateway;
use super::schedulers::Schedulers;
use super::shared_bottleneck::SharedBottleneck;
use super::split::Split;
use super::ssh_lid::SshLid;
use super::subflows::Subflows;
use super::subnets::Subnets;
use super::symmetric::Symmetric;
use super::tunnel::Tunnel;
use super::udp_blocked::UdpBlocked;
use super::udp_policed::UdpPoliced;
use super::voip::Voip;

/// Every scenario, in the order of `rove-lab list`.
pub const SCENARIOS: &[&dyn Scenario] = &[
    &Tunnel,
    &RoamClient,
    &RoamGateway,
    &Blackhole,
    &NatRebind,
    &FamilyChange,
    &ResumeLoss,
    &Idle,
    &RestartGateway,
    &Subnets,
    &Hop,
    &UdpBlocked,
    &UdpPoliced,
    &BothMove,
    &Persist,
    &Disconnects,
    &Commute,
    &SshLid,
    &ManyFlows,
    &Symmetric,
    &Asymmetric,
    &Split,
    &Failover,
    &Modes,
    &Schedulers,
    &Subflows,
    &Mesh,
    &Voip,
    &LatencyQos,
    &Priority,
    &FirstDownload,
    &LossyUplink,
    &BusySessions,
    &CompressFlows,
    &Headers,
    &Bond,
    &SharedBottleneck,
    &Competition,
    &GsoMangled,
    &RandomLinks,
];

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static dyn Scenario> {
    SCENARIOS.iter().copied().find(|scenario| scenario.about().name == name)
}
