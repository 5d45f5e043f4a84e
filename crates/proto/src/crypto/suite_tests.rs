use super::*;

#[test]
fn floors_order_the_suites() {
    for suite in Suite::ALL {
        assert!(suite.meets(Floor::BITS_128));
        assert!(!suite.meets(Floor(2)), "no suite is stronger than the strongest floor");
    }
    assert!(!Suite::Aes128Gcm.meets(Floor::BITS_256));
    assert!(Suite::Aes256Gcm.meets(Floor::BITS_256));
    assert!(Suite::ChaCha20Poly1305.meets(Floor::BITS_256));
}
