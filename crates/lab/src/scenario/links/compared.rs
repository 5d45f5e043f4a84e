//! Comparison with other ways to carry the same connection over the same links: those that
//! Lukaszewski's thesis compares, and OpenVPN, which it used.
//!
//! This module decides which of them a run can measure. The row names the others, and the reason.
//! Each is measured as both links together are. If TCP carries the datagrams, it uses the
//! congestion control of the connection inside, if the machine lets namespaces choose that. The row
//! says which it used.

use super::{CALM_NS, Cell, Goodput};
use crate::ground::{Congestion, Mode, Terrain};
use crate::netns::Entered;
use crate::scenario::deploy::{By, Deployment, openvpn_installed};
use crate::scenario::settings::Setting;
use crate::scenario::table::figure;
use crate::scenario::testbed::Testbed;
use crate::scenario::values::Values;
use crate::scenario::{Outcome, Stage};
use serde_json::{Value, json};
use std::cell::OnceCell;

/// The setting of the comparison.
pub(in super::super) const COMPARE: Setting = Setting::choice(
    "compare",
    &["openvpn", "transports", "none"],
    "what else carries each TCP connection: Rove by one link over UDP and TCP, and by MPTCP, with \
     OpenVPN by the same ways where it is installed; without OpenVPN; nothing",
);

/// The column with the congestion control of TCP that carries datagrams.
const OUTSIDE: &str = "outside_cc";
/// The column with missing figures, and the reason.
const MISSING: &str = "not_compared";
/// The reason in virtual time, for Rove's streams and for other programs.
const NO_STREAMS: &str = "told in namespaces only";
const NO_PROGRAMS: &str = "another program does not run in virtual time";

/// A way to carry datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Rove by one link, which repairs nothing.
    UdpOneLink,
    /// Rove by one link, as one TCP connection.
    TcpOneLink,
    /// Rove by all links, as one connection of MPTCP.
    Mptcp,
    /// OpenVPN: by all links where that is MPTCP, else by one.
    OpenVpn(By),
}

/// The rate of one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    mbps: f64,
    /// Seconds until the length of the file had arrived.
    file_s: Option<f64>,
    /// The congestion control of TCP that carried it, if it was set.
    outside: Option<Congestion>,
}

/// The results of the selected ways, or why there is none.
#[derive(Debug, Default)]
pub(super) struct Compared(Vec<(Way, Result<Rate, String>)>);

impl Way {
    const TRANSPORTS: [Self; 3] = [Self::UdpOneLink, Self::TcpOneLink, Self::Mptcp];
    const OPENVPN: [Self; 3] =
        [Self::OpenVpn(By::Udp), Self::OpenVpn(By::Tcp), Self::OpenVpn(By::Mptcp)];

    /// The selected ways: none without Rove, or with a Rove that is broken on purpose.
    fn asked(stage: &Stage<'_>) -> Vec<Self> {
        let is_rove = stage.entered.is_none() || stage.rove.is_some();
        match stage.settings.text(COMPARE.key) {
            _ if stage.control() || !is_rove => Vec::new(),
            "transports" => Self::TRANSPORTS.to_vec(),
            "openvpn" => [Self::TRANSPORTS, Self::OPENVPN].concat(),
            _ => Vec::new(),
        }
    }

    /// The prefix of its columns.
    const fn name(self) -> &'static str {
        match self {
            Self::UdpOneLink => "udp_one_link",
            Self::TcpOneLink => "tcp_one_link",
            Self::Mptcp => "mptcp",
            Self::OpenVpn(By::Udp) => "openvpn_udp_one_link",
            Self::OpenVpn(By::Tcp) => "openvpn_tcp_one_link",
            Self::OpenVpn(By::Mptcp) => "openvpn_mptcp",
        }
    }

    /// Whether TCP carries datagrams.
    const fn is_by_tcp(self) -> bool {
        !matches!(self, Self::UdpOneLink | Self::OpenVpn(By::Udp))
    }

    fn deploy(self, stage: &Stage<'_>, testbed: &Testbed) -> anyhow::Result<Deployment> {
        match self {
            Self::UdpOneLink | Self::TcpOneLink => Deployment::start(testbed, stage.rove),
            Self::Mptcp => Deployment::start_by_mptcp(testbed, stage.rove),
            Self::OpenVpn(by) => Deployment::start_openvpn(testbed, by),
        }
    }
}

impl Rate {
    /// The result of a connection, of which this number of bytes is the file.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn of(goodput: &Goodput, file_bytes: u64) -> Result<Self, String> {
        let transfer = &goodput.run.transfer;
        let file_s = transfer.seconds_until(file_bytes);
        let broke = || transfer.broke.clone().unwrap_or_else(|| "it ended early".to_owned());
        Ok(Self { mbps: goodput.mbps.ok_or_else(broke)?, file_s, outside: None })
    }
}

impl Compared {
    /// Their columns in the row of a cell in which Rove has this rate in Mbit/s.
    pub(super) fn columns(&self, goodput_mbps: Option<f64>) -> Vec<(String, Value)> {
        let mut columns = Vec::new();
        for (way, rate) in &self.0 {
            let (name, rate) = (way.name(), rate.as_ref().ok());
            let mbps = rate.map(|rate| rate.mbps);
            let times = goodput_mbps.zip(mbps).map(|(all, one)| all / one);
            columns.push((format!("{name}_mbps"), figure(mbps)));
            columns.push((format!("{name}_file_s"), figure(rate.and_then(|rate| rate.file_s))));
            columns.push((format!("times_{name}"), figure(times)));
        }
        let outside = self.0.iter().find_map(|(_, rate)| rate.as_ref().ok()?.outside);
        columns.extend(outside.map(|it| (OUTSIDE.to_owned(), it.name().into())));
        columns.extend(self.missing().map(|why| (MISSING.to_owned(), why.into())));
        columns
    }

    /// The ways without a figure, each reason once.
    fn missing(&self) -> Option<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (way, rate) in &self.0 {
            let Err(reason) = rate else { continue };
            match reasons.last_mut().filter(|(last, _)| last == reason) {
                Some((_, names)) => names.push(way.name()),
                None => reasons.push((reason, vec![way.name()])),
            }
        }
        let said: Vec<String> =
            reasons.iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

impl<const N: usize> Cell<N> {
    /// The result of each selected way. On one link over UDP, Rove has already been measured.
    pub(super) fn compare(
        &self,
        stage: &Stage<'_>,
        udp_one_link: Result<Rate, String>,
        outcome: &mut Outcome,
    ) -> Compared {
        let mut compared = Compared::default();
        // Sub-flows are compared with the same single link each time.
        let is_first = self.spread.subflows == 1;
        for way in Way::asked(stage).into_iter().filter(|_| is_first) {
            let rate = match (way, stage.entered) {
                (Way::UdpOneLink, _) => udp_one_link.clone(),
                (Way::TcpOneLink | Way::Mptcp, None) => Err(NO_STREAMS.to_owned()),
                (Way::OpenVpn(_), None) => Err(NO_PROGRAMS.to_owned()),
                (_, Some(entered)) => self.by(stage, entered, way, outcome),
            };
            if let Err(why) = &rate {
                (stage.tell)(&format!("{}: not compared: {why}", way.name()));
            }
            compared.0.push((way, rate));
        }
        compared
    }

    /// The result of the same connection this way, or why there is none.
    fn by(
        &self,
        stage: &Stage<'_>,
        entered: &Entered,
        way: Way,
        outcome: &mut Outcome,
    ) -> Result<Rate, String> {
        let is_ours = !matches!(way, Way::OpenVpn(_));
        if !is_ours {
            openvpn_installed()?;
        }
        (stage.tell)(way.name());
        let (mut rate, outside) = (Err(String::new()), OnceCell::new());
        let deploy = |testbed: &Testbed| {
            if way.is_by_tcp() {
                let controlled = testbed.control_outside(self.congestion)?;
                outside.get_or_init(|| controlled);
            }
            way.deploy(stage, testbed)
        };
        let told =
            stage.on_hosts(entered, &self.terrain_of(stage, way), &deploy, &mut |ground, _| {
                ground.pause(CALM_NS)?;
                rate = Rate::of(&self.goodput(stage, ground)?, Self::file_bytes(stage));
                Ok(())
            });
        let mut told = told.map_err(|error| format!("{error:#}"))?;
        // A failure of another program is no fault of Rove's.
        let broke = if is_ours { told.broke.clone() } else { told.broke.take() };
        outcome.absorb(told);
        broke.map_or(rate, Err).map(|rate| Rate { outside: outside.get().copied(), ..rate })
    }

    /// The links of a way.
    fn terrain_of(&self, stage: &Stage<'_>, way: Way) -> Terrain {
        let all = || Terrain { mode: Mode::Full, ..self.terrain(stage) };
        let one = || self.terrain_alone(self.by_rate()[0], Mode::Single);
        match way {
            Way::UdpOneLink | Way::OpenVpn(By::Udp | By::Tcp) => one(),
            Way::TcpOneLink => Terrain { transport: "tcp", ..one() },
            Way::Mptcp => Terrain { transport: "mptcp", ..all() },
            Way::OpenVpn(By::Mptcp) => all(),
        }
    }
}

/// The reason why one of these ways has no figure in any row, if any.
pub(in super::super) fn why_missing(rows: &[Value], ways: &[&str]) -> Option<String> {
    let reasons = rows.iter().find_map(|row| row.get(MISSING)?.as_str())?;
    let of_way = |reason: &str| {
        let (names, why) = reason.split_once(": ")?;
        names.split(", ").any(|name| ways.contains(&name)).then(|| why.to_owned())
    };
    reasons.split("; ").find_map(of_way)
}

/// The version and options of OpenVPN, or why it is not compared; `None` if nobody asked.
pub(super) fn openvpn(stage: &Stage<'_>) -> Option<Values> {
    let asked = Way::asked(stage);
    let by = asked.iter().filter_map(|way| match way {
        Way::OpenVpn(by) => Some((format!("{}_options", way.name()), json!(by.options()))),
        Way::UdpOneLink | Way::TcpOneLink | Way::Mptcp => None,
    });
    let mut values: Values = by.collect();
    let here = stage.entered.ok_or_else(|| NO_PROGRAMS.to_owned());
    let (version, absent) = match here.and_then(|_| openvpn_installed()) {
        Ok(version) => (Some(version), None),
        Err(why) => (None, Some(why)),
    };
    let is_asked = !values.is_empty();
    values.extend([("version".to_owned(), json!(version)), ("absent".to_owned(), json!(absent))]);
    is_asked.then_some(values)
}

#[cfg(test)]
mod tests {
    use super::{COMPARE, Compared, Rate, Way, openvpn, why_missing};
    use crate::ground::Congestion;
    use crate::scenario::settings::Settings;
    use crate::scenario::table::Row;
    use crate::scenario::{Grid, Stage};
    use serde_json::{Value, json};

    #[test]
    fn a_way_without_a_figure_stands_there_with_its_reason() {
        let had = |mbps, outside| Ok(Rate { mbps, file_s: Some(30.0), outside });
        let missing = |why: &str| Err(why.to_owned());
        let rates = vec![
            (Way::UdpOneLink, had(4.5, None)),
            (Way::TcpOneLink, missing("it broke")),
            (Way::Mptcp, missing("it broke")),
            (Way::OPENVPN[0], missing("it is not there")),
            (Way::OPENVPN[1], had(5.0, Some(Congestion::Reno))),
        ];
        let row: Row = Compared(rates).columns(Some(18.0)).into_iter().collect();
        assert_eq!(row.len(), 5 * 3 + 2);
        assert_eq!(
            (&row["udp_one_link_mbps"], &row["times_udp_one_link"]),
            (&json!(4.5), &json!(4.0))
        );
        assert_eq!(row["openvpn_tcp_one_link_file_s"], 30.0);
        let without = ["mptcp_mbps", "mptcp_file_s", "times_mptcp", "openvpn_udp_one_link_mbps"];
        assert!(without.iter().all(|key| row[*key] == Value::Null), "{row:?}");
        let why = "tcp_one_link, mptcp: it broke; openvpn_udp_one_link: it is not there";
        assert_eq!((&row["not_compared"], &row["outside_cc"]), (&json!(why), &json!("reno")));
        let rows = [Value::Object(row)];
        assert_eq!(why_missing(&rows, &["mptcp"]).as_deref(), Some("it broke"));
        assert_eq!(why_missing(&rows, &["udp_one_link"]), None, "another one lacks it");
        let whole = Compared(vec![(Way::UdpOneLink, had(4.5, None))]).columns(None);
        let whole: Row = whole.into_iter().collect();
        assert_eq!((whole.len(), &whole["times_udp_one_link"]), (3, &Value::Null));
    }

    #[test]
    fn what_is_asked_for_is_compared_with_and_nothing_with_what_is_broken() {
        let asked = |set: &[&str]| {
            let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
            let settings = Settings::parse(&[COMPARE], &texts).unwrap();
            let stage = Stage::quiet(1, &settings, Grid::Default);
            (Way::asked(&stage).len(), openvpn(&stage).is_some())
        };
        assert_eq!(asked(&[]), (6, true));
        assert_eq!(asked(&["compare=transports"]), (3, false));
        assert_eq!(asked(&["compare=none"]), (0, false));
        assert_eq!(asked(&["control=true"]), (0, false));
    }
}
