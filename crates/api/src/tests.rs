//! Requests and replies have the documented keys. A reader refuses any other shape and says why.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn status() -> GatewayStatus {
    GatewayStatus {
        running: false,
        operator: "a".to_owned(),
        gateway: "b".to_owned(),
        endpoints: vec!["vpn.example.org:4500".to_owned()],
        networks: vec!["10.77.0.0/24".to_owned()],
        inner: vec!["10.77.0.1".parse().unwrap()],
        enrolled: 1,
        open_invites: 0,
        recent: Vec::new(),
        problems: Vec::new(),
        sessions: None,
        host: None,
    }
}

/// Whether the value means the same after it went through JSON. Returns the JSON.
fn through_json<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) -> Value {
    let json = serde_json::to_value(value).unwrap();
    assert_eq!(serde_json::from_value::<T>(json.clone()).unwrap(), *value);
    json
}

#[test]
fn a_request_is_an_object_that_names_it() {
    let set = Request::SetLink { name: "wlan0".into(), setting: LinkSetting::Metered(true) };
    let json = json!({ "do": "set-link", "name": "wlan0", "setting": { "metered": true } });
    assert_eq!(through_json(&set), json);
    assert_eq!(
        through_json(&Request::Flows { meant: Vec::new(), user: None }),
        json!({ "do": "flows" })
    );
}

#[test]
fn a_request_of_another_version_is_refused_in_words() {
    for (line, cause) in [
        (r#"{"do":"fly"}"#, "unknown variant `fly`"),
        (r#"{"do":"set-mode"}"#, "missing field `mode`"),
        (r#"{"do":"set-mode","mode":"both"}"#, "unknown variant `both`"),
        (r#"{"do":"log","entries":5,"now":true}"#, "unknown field `now`"),
        (r#"{"do":"set-subflows","subflows":256}"#, "invalid value: integer `256`"),
    ] {
        let error = serde_json::from_str::<Request>(line).unwrap_err().to_string();
        assert!(error.contains(cause), "{line}: {error}");
    }
}

#[test]
fn a_reply_is_an_answer_or_one_line() {
    let answer = Reply::Ok(Answer::from(Reloaded { restart: true }));
    assert_eq!(serde_json::to_value(&answer).unwrap(), json!({ "ok": { "restart": true } }));
    let read: Reply<Reloaded> = serde_json::from_str(r#"{"ok":{"restart":true,"new":1}}"#).unwrap();
    assert_eq!(read, Reply::Ok(Reloaded { restart: true }), "a newer node says more");
    let refused: Reply<Reloaded> = serde_json::from_str(r#"{"error":"no: do this"}"#).unwrap();
    assert_eq!(refused, Reply::Error("no: do this".to_owned()));
    let missing = serde_json::from_str::<Reply<Reloaded>>(r#"{"ok":{}}"#).unwrap_err();
    assert!(missing.to_string().contains("missing field `restart`"), "{missing}");
    let done = Reply::Ok(Answer::from(Done {}));
    assert_eq!(serde_json::to_string(&done).unwrap(), r#"{"ok":{}}"#);
}

#[test]
fn only_what_runs_has_the_keys_of_what_runs() {
    let down = through_json(&ClientStatus::default());
    assert_eq!((&down["state"], &down["since"]), (&json!("down"), &Value::Null));
    assert_eq!(down.get("problems"), None);
    let running = Some(RunningClient { mtu: 1_420, ..RunningClient::default() });
    let up = through_json(&ClientStatus { running, ..ClientStatus::default() });
    assert_eq!((&up["mtu"], &up["inner_gateway"]), (&json!(1_420), &Value::Null));

    let stopped = through_json(&status());
    assert_eq!((stopped.get("nat"), stopped.get("sessions")), (None, None));
    let leaves = Some(Leaves { ipv4: Some(true), ipv6: None });
    let host = Some(GatewayHost { nat: true, forwarding: true, leaves, connections: None });
    let running = through_json(&GatewayStatus { host, ..status() });
    assert_eq!((&running["nat"], running.get("sessions")), (&json!(true), None));
    assert_eq!(running["leaves"], json!({ "ipv4": true, "ipv6": null }));
}

#[test]
fn what_is_measured_stays_as_it_is() {
    let felt = Felt { known: true, tx_bytes: u64::MAX, rx_mbps: 17.25, ..Felt::default() };
    assert_eq!(through_json(&felt)["tx_bytes"], u64::MAX);
    let path = Path {
        id: 7,
        local: None,
        remote: "192.0.2.1:4500".parse().unwrap(),
        state: PathState::InUse,
        transport: "udp".to_owned(),
        scheduler: None,
        repairs: false,
        controller: None,
        subflows: None,
        rtt_us: Some(20_500),
        rate_mbps: Some(0.1),
        rx_rate_mbps: None,
        loss: Some(1.0),
        queue_ms: None,
        share: Some(0.75),
        tx_bytes: 1,
        rx_bytes: u64::MAX,
        last_heard_ms: None,
        mtu: 1_232,
        split: 0,
        retransmitted: 0,
        copied_bytes: 0,
        feedback_datagrams: 0,
        feedback_bytes: 0,
        saved: Saved::default(),
        fallback: None,
    };
    let json = through_json(&PeerPath { path, peer: "laptop".to_owned() });
    assert_eq!((&json["state"], &json["loss"]), (&json!("in use"), &json!(1.0)));
    assert_eq!((&json["peer"], &json["rx_bytes"]), (&json!("laptop"), &json!(u64::MAX)));
}

#[test]
fn a_problem_has_a_part_or_no_such_key() {
    let [what, cause, cure] = ["what", "cause", "cure"].map(str::to_owned);
    let problem = Problem { part: None, what, since: 9, cause, cure };
    assert_eq!(through_json(&problem).get("part"), None);
    let part = Some("dns".to_owned());
    assert_eq!(through_json(&Problem { part, ..problem })["part"], "dns");
}

#[test]
fn a_wrong_word_is_told_with_the_right_ones() {
    assert_eq!("full-mesh".parse(), Ok(PathManager::FullMesh));
    assert_eq!(format!("{:>8}", LinkMode::Full), "    full");
    let error = "both".parse::<LinkMode>().unwrap_err().to_string();
    assert_eq!(error, "\"both\" is no mode: write full, backup or single");
    let error = "".parse::<RecoveryFor>().unwrap_err().to_string();
    assert_eq!(error, "\"\" is no recovery: write throughput or latency");
    for state in [PathState::Gone, PathState::Silent, PathState::InUse, PathState::Standby] {
        assert_eq!(through_json(&state), state.word());
        assert_eq!(state.word().parse(), Ok(state));
    }
}
