use std::path::Path;

use super::*;

#[derive(Deserialize)]
struct RawFile {
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    device: Vec<Spanned<RawDevice>>,
}

impl FlowRules {
    /// The rules and devices of a file with this text.
    pub(crate) fn of_text(text: &str) -> Result<Self, String> {
        read(text)
    }
}

fn read(text: &str) -> Result<FlowRules, String> {
    let source = Source::new(Path::new("test.toml"), text);
    let raw: RawFile = source.parse().map_err(|error| error.to_string())?;
    FlowRules::validate(&raw.rule, &raw.device, &source).map_err(|error| error.to_string())
}

fn network(text: &str) -> Prefix {
    prefix(text.parse().unwrap())
}

#[test]
fn a_rule_has_conditions_and_properties() {
    let rules = read(
        "[[rule]]\nto = \"203.0.113.0/24:5060\"\nprotocol = \"udp\"\nclass = \"real-time\"\n\
         device = \"192.168.7.20\"\nstrength = 256\npriority = 1\ngoal = \"latency\"\n\
         copies = \"always\"\n",
    );
    let of = Selector {
        device: Some(network("192.168.7.20/32")),
        destination: Some(network("203.0.113.0/24")),
        port: Some(5060),
        protocol: Some(UDP),
        class: Some(Class::RealTime),
        user: None,
    };
    let asks = Asks {
        strength: Some(Strength::Bits256),
        level: Some(Level::First),
        copies: Some(Copies::Always),
        goal: Some(Goal::Latency),
    };
    let rules = rules.unwrap();
    assert_eq!(rules.core(), Overrides::new(&[Override { of, asks }]));
    assert_eq!((rules.label(1), rules.label(2), rules.label(0)), (Some("rule 1"), None, None));
}

#[test]
fn devices_follow_rules_and_the_smallest_is_the_first() {
    let rules = read(
        "[[device]]\nname = \"lan\"\naddress = \"192.168.7.0/24\"\npriority = 3\n\
         [[device]]\nname = \"tv\"\naddress = \"192.168.7.20\"\ngoal = \"data\"\n\
         [[device]]\nname = \"tv\"\naddress = \"fd00:7::20\"\n\
         [[rule]]\ndevice = \"tv\"\nport = 443\nstrength = 256\n",
    )
    .unwrap();
    let labels: Vec<_> = (1..=6).map_while(|number| rules.label(number)).collect();
    assert_eq!(labels, ["rule 1", "rule 1", "device tv", "device tv", "device lan"]);
    let name = |address: &str| {
        rules.device_of(address.parse().unwrap()).map(|device| device.name.as_str())
    };
    assert_eq!(name("192.168.7.20"), Some("tv"));
    assert_eq!(name("fd00:7::20"), Some("tv"));
    assert_eq!(name("192.168.7.21"), Some("lan"));
    assert_eq!(name("192.168.8.21"), None);
}

#[test]
fn what_cannot_be_is_refused_with_the_cure() {
    for (text, expected) in [
        ("[[rule]]\nport = 22\n", "rule: says nothing: add strength"),
        ("[[rule]]\nto = \"192.0.2.1:22\"\nport = 23\ngoal = \"data\"\n", "rule.port"),
        ("[[rule]]\ndevice = \"tv\"\ngoal = \"data\"\n", "neither the name of a [[device]]"),
        ("[[rule]]\ngoal = \"speed\"\n", "rule.goal: \"speed\" is not one of \"throughput\""),
        ("[[rule]]\ncopies = \"two\"\n", "is not one of \"never\", \"always\""),
        ("[[rule]]\npriority = 4\n", "rule.priority: 4 is no level"),
        ("[[rule]]\nstrength = 192\n", "rule.strength: 192 is not 128 or 256"),
        ("[[rule]]\nclass = \"games\"\ngoal = \"data\"\n", "rule.class"),
        ("[[rule]]\nprotocol = \"sctp\"\ngoal = \"data\"\n", "rule.protocol"),
        ("[[device]]\nname = \"a b\"\naddress = \"10.0.0.1\"\n", "device.name: \"a b\""),
        ("[[device]]\nname = \"10.1\"\naddress = \"x\"\n", "device.address"),
        ("[[device]]\nname = \"10.0.0.1\"\naddress = \"10.0.0.1\"\n", "give the device a name"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let many = "[[rule]]\ngoal = \"data\"\n".repeat(OVERRIDES_MAX + 1);
    assert!(read(&many).unwrap_err().contains("more than 128"));
    assert_eq!(read("").unwrap(), FlowRules::default());
}

#[test]
fn a_user_is_a_name_or_a_number_of_this_host() {
    let of = |user: &str| read(&format!("[[rule]]\nuser = \"{user}\"\ngoal = \"data\"\n"));
    for (user, number) in [("root", 0), ("0", 0), ("70001", 70_001)] {
        let asks = Asks { goal: Some(Goal::Data), ..Asks::default() };
        let of_user = Selector { user: Some(number), ..Selector::default() };
        let expected = Overrides::new(&[Override { of: of_user, asks }]);
        assert_eq!(of(user).unwrap().core(), expected);
    }
    let error = of("no such user").unwrap_err();
    assert!(error.contains("rule.user: no user in /etc/passwd"), "{error}");
    let source = Source::new(Path::new("test.toml"), "[[rule]]\nuser = \"0\"\ngoal = \"data\"\n");
    let raw: RawFile = source.parse().unwrap();
    let refused = FlowRules::validate_gateway(&raw.rule, &raw.device, &source).unwrap_err();
    assert!(refused.to_string().contains("belongs in client.toml"), "{refused}");
}

#[test]
fn a_strength_that_all_flows_have_is_said_to_be_idle() {
    let rules = read("[[rule]]\nport = 22\nstrength = 256\n").unwrap();
    assert!(rules.idle(Floor::BITS_128).is_empty());
    assert_eq!(rules.idle(Floor::BITS_256).len(), 1);
}
