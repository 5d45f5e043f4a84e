use std::path::Path;

use rove_host::config::Source;
use rove_os::links::LinkKind;

use super::super::Config;
use super::{LinkRules, LinkSeen, LinkSetting, LinkTerms, LinkUse, UsedBy, matches};

fn source_of(text: &str) -> Source {
    Source::new(Path::new("test.toml"), text)
}

fn rules(text: &str) -> LinkRules {
    Config::parse(&source_of(text)).unwrap().links
}

fn seen(name: &str, kind: LinkKind) -> LinkSeen<'_> {
    LinkSeen { name, kind, roaming: None, metered: None }
}

fn modem(rules: &LinkRules) -> LinkTerms {
    rules.terms(seen("wwan0", LinkKind::Cellular))
}

#[test]
fn a_pattern_stands_for_names() {
    let stands = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
    for (pattern, name) in [
        ("eth0", "eth0"),
        ("*", "eth0"),
        ("e*", "eth0"),
        ("*0", "eth0"),
        ("?th*0", "eth0"),
        ("*t*", "eth0"),
    ] {
        assert!(stands(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in
        [("eth", "eth0"), ("eth0?", "eth0"), ("w*", "eth0"), ("*1", "eth0"), ("", "eth0")]
    {
        assert!(!stands(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn the_first_rule_that_says_something_counts() {
    let rules = rules(
        "[[link]]\nname = \"wwan*\"\ncap = \"2GB/day\"\n\
         [[link]]\ntype = \"cellular\"\nuse = \"always\"\ncost = 5\n\
         [[link]]\nuse = \"never\"\ncost = 9\nat-cap = \"backup\"\n",
    );
    let terms = modem(&rules);
    assert_eq!((terms.usage, terms.cost, terms.at_cap), (LinkUse::Always, 5, LinkUse::Backup));
    assert_eq!(terms.cap.map(|cap| cap.to_string()).as_deref(), Some("2GB/day"));
    let cable = rules.terms(seen("eth0", LinkKind::Ethernet));
    // What is not used at all is not used at its cap either.
    assert_eq!((cable.usage, cable.cost, cable.at_cap), (LinkUse::Never, 9, LinkUse::Never));
    assert_eq!(cable.cap, None);
}

#[test]
fn a_metered_link_stands_by_unless_something_else_is_said() {
    let none = LinkRules::default();
    let cable = seen("eth0", LinkKind::Ethernet);
    let usual = LinkTerms { at_cap: LinkUse::Never, ..LinkTerms::default() };
    assert_eq!((none.terms(cable), usual.by), (usual, UsedBy::Nobody));
    let told = LinkSeen { metered: Some(true), ..cable };
    assert_eq!((none.terms(told).usage, none.terms(told).by), (LinkUse::Backup, UsedBy::Meter));
    assert_eq!(rules("[[link]]\nmetered = false\n").terms(told).usage, LinkUse::Always);
    // Of a modem it is so until somebody knows better.
    assert_eq!((modem(&none).usage, modem(&none).metered), (LinkUse::Backup, true));
    let told = LinkSeen { metered: Some(false), ..seen("wwan0", LinkKind::Cellular) };
    assert_eq!(none.terms(told), usual);
    for free in ["metered = false", "use = \"always\""] {
        assert_eq!(modem(&rules(&format!("[[link]]\n{free}\n"))).usage, LinkUse::Always);
    }
    assert_eq!(modem(&rules("[[link]]\nmetered = true\n")).usage, LinkUse::Backup);
    assert_eq!(
        modem(&rules("[[link]]\nmetered = true\nuse = \"always\"\n")).usage,
        LinkUse::Always
    );
}

#[test]
fn a_rule_about_roaming_is_for_links_that_are_known_to_roam() {
    let rules = rules("[[link]]\nroaming = true\nuse = \"never\"\n");
    assert_eq!(modem(&rules).usage, LinkUse::Backup);
    for (roaming, usage) in [(true, LinkUse::Never), (false, LinkUse::Backup)] {
        let link = LinkSeen { roaming: Some(roaming), ..seen("wwan0", LinkKind::Cellular) };
        assert_eq!(rules.terms(link).usage, usage);
    }
}

#[test]
fn what_is_set_comes_before_all_rules() {
    let mut rules =
        rules("[[link]]\nname = \"wwan0\"\nuse = \"never\"\ncost = 3\ncap = \"1GB/day\"\n");
    rules.set("wwan0", LinkSetting::parse("use", "backup").unwrap()).unwrap();
    assert_eq!((modem(&rules).usage, modem(&rules).cost), (LinkUse::Backup, 3));
    rules.set("wwan0", LinkSetting::parse("cap", "none").unwrap()).unwrap();
    assert_eq!(modem(&rules).cap, None);
    assert_eq!(rules.terms(seen("wwan1", LinkKind::Cellular)).usage, LinkUse::Backup);
    for (key, value) in [
        ("use", "now"),
        ("cost", "1001"),
        ("cost", "-1"),
        ("metered", "1"),
        ("cap", "5"),
        ("mtu", "9"),
    ] {
        assert!(LinkSetting::parse(key, value).is_err(), "{key} {value}");
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, said) in [
        ("[[link]]\ntype = \"lte\"\n", "test.toml:2: link.type: \"lte\" is no type of link"),
        ("[[link]]\nuse = \"often\"\n", "test.toml:2: link.use: \"often\" is no use"),
        ("[[link]]\ncost = 1001\n", "test.toml:2: link.cost: is no cost"),
        ("[[link]]\n\n[[link]]\ncap = \"5GB\"\n", "test.toml:4: link.cap: \"5GB\" is no cap"),
        ("[[link]]\nname = \"\"\n", "test.toml:2: link.name: is no name"),
        ("[[link]]\nspeed = 5\n", "test.toml:2: link.speed: unknown field"),
    ] {
        let error = Config::parse(&source_of(text)).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn it_is_known_who_said_when_a_link_is_used() {
    let mut rules = rules("[[link]]\nname = \"wwan*\"\nuse = \"backup\"\n");
    assert_eq!((modem(&rules).usage, modem(&rules).by), (LinkUse::Backup, UsedBy::Rule));
    rules.set("wwan0", LinkSetting::Cost(3)).unwrap();
    assert_eq!(modem(&rules).by, UsedBy::Rule);
    rules.set("wwan0", LinkSetting::Use(LinkUse::Never)).unwrap();
    assert_eq!((modem(&rules).usage, modem(&rules).by), (LinkUse::Never, UsedBy::Set));
}

#[test]
fn a_cap_that_changes_nothing_is_none() {
    for (text, usage) in [("backup", LinkUse::Backup), ("never", LinkUse::Never)] {
        assert_eq!(LinkSetting::parse("at-cap", text), Ok(LinkSetting::AtCap(usage)));
    }
    for (text, cure) in [("always", "leave out the cap"), ("no", "write backup or never")] {
        let error = LinkSetting::parse("at-cap", text).unwrap_err().to_string();
        assert!(error.contains(cure), "{error}");
    }
    let source = source_of("[[link]]\ncap = \"1GB/day\"\nat-cap = \"always\"\n");
    let error = Config::parse(&source).unwrap_err().to_string();
    assert!(error.contains("link.at-cap") && error.contains("write backup or never"), "{error}");
}
