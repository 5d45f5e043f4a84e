//! `[saving]` as it is written, and what it means for the core.

use std::path::Path;

use super::*;
use crate::keys::OperatorKey;

fn raw(text: &str) -> (Source, RawSaving) {
    let source = Source::new(Path::new("test.toml"), text);
    let raw = source.parse().unwrap();
    (source, raw)
}

fn client(text: &str) -> Result<Saving, String> {
    let (source, raw) = raw(text);
    raw.validate(&source).map_err(|error| error.to_string())
}

#[test]
fn nothing_is_compressed_unless_a_rule_says_so() {
    let saving = client("").unwrap();
    assert_eq!(saving, Saving::default());
    assert!(saving.core(false).compress.is_empty() && saving.core(false).aggregates);
}

#[test]
fn headers_are_left_out_unless_that_is_switched_off() {
    let both = Features::COMPRESSED | Features::COMPACT;
    assert_eq!(client("").unwrap().features(), both);
    assert_eq!(client("headers = false").unwrap().features(), Features::COMPRESSED);
}

#[test]
fn rules_name_a_destination_and_a_coding() {
    let saving = client(
        "compress = [{ to = \"192.0.2.9:1883\" }, { to = \"10.0.0.0/8\", with = \"zstd\" }, \
         { to = \"fd00::/64\", with = \"senml\" }, { to = \"192.0.2.8\", with = \"join\" }]",
    );
    let rules = saving.unwrap().core(false).compress.rules().to_vec();
    let codings: Vec<_> = rules.iter().map(|rule| rule.coding).collect();
    let expected = [Coding::LZ4, Coding::ZSTD, Coding::with_dictionary(1), Coding::NONE];
    assert_eq!(codings, expected);
    assert_eq!(rules[0].end.port, Some(1_883));
}

#[test]
fn what_would_leak_or_mean_nothing_is_refused() {
    let refused = |list: &str| client(&format!("compress = [{list}]")).unwrap_err();
    assert!(refused("{ to = \"192.0.2.9:443\" }").contains("port 443 carries web pages"));
    assert!(refused("{ to = \"0.0.0.0/1\" }").contains("name a network of at least /8"));
    assert!(refused("{ to = \"10.0.0.0/8\", with = \"gzip\" }").contains("\"lz4\", \"zstd\""));
    let many = vec!["{ to = \"192.0.2.9\" }"; RULES_MAX + 1].join(", ");
    assert!(refused(&many).contains("more than 32 entries"));
    assert!(client("data = \"some\"").unwrap_err().contains("is no use of data"));
}

#[test]
fn the_data_saver_acts_on_metered_links_unless_told_otherwise() {
    let frugal = |text: &str, is_metered| client(text).unwrap().core(is_metered).frugal;
    assert_eq!([false, true].map(|metered| frugal("", metered)), [false, true]);
    assert!(frugal("data = \"save\"", false) && !frugal("data = \"normal\"", true));
    let saving = client("data = \"save\"\naggregate = false").unwrap();
    assert!(saving.core(false).aggregates, "as few bytes as possible");
}

#[test]
fn a_gateway_leaves_to_its_clients_what_is_theirs() {
    for text in ["compress = [{ to = \"192.0.2.9\" }]", "data = \"save\"", "pad = true"] {
        let (source, raw) = raw(text);
        let error = raw.validate_gateway(&source).unwrap_err().to_string();
        assert!(error.contains("belongs in client.toml"), "{error}");
    }
    let (source, raw) = raw("aggregate = false");
    assert!(!raw.validate_gateway(&source).unwrap().core(false).aggregates);
}

#[test]
fn a_rule_may_ask_for_a_dictionary_of_the_operator() {
    let operator = OperatorKey::generate().unwrap();
    let line = |number, name: &str| {
        let name = name.parse().unwrap();
        SignedDictionary::sign(&operator, number, &name, b"\"meter\":").unwrap().to_string()
    };
    let rule = "compress = [{ to = \"192.0.2.9\", with = \"meters\" }]";
    let with = |lines: &[String]| client(&format!("{rule}\ndictionaries = {lines:?}"));
    let saving = with(&[line(9, "meters")]).unwrap();
    assert_eq!(saving.core(false).compress.rules()[0].coding, Coding::with_dictionary(9));
    assert_eq!(saving.core(false).dictionaries.content(9), Some(&b"\"meter\":"[..]));
    assert!(saving.verify(operator.public()).is_ok());
    let error = saving.verify(OperatorKey::generate().unwrap().public()).unwrap_err().to_string();
    assert!(error.contains("meters is not signed by"), "{error}");

    let error = with(&[line(9, "pumps")]).unwrap_err();
    assert!(error.contains("\"senml\", \"syslog\", \"pumps\""), "{error}");
    for second in [line(9, "pumps"), line(10, "meters")] {
        let error = with(&[line(9, "meters"), second]).unwrap_err();
        assert!(error.contains("cannot be told apart"), "{error}");
    }
    let many: Vec<_> = (0..9).map(|number| line(8 + number % 8, "meters")).collect();
    assert!(with(&many).unwrap_err().contains("more than 8 entries"));
}
