//! How much of a connection is worth keeping (Alshalan 2017, section 4.5.3).

/// Packets of which a sender must be relieved so that it is as fast afterwards as with `flight`
/// packets in flight (Equation 4.8): those, or if a time-out has slowed it down already, those of
/// its slow start (4.6) and of the congestion avoidance after it (4.7).
pub(crate) fn packets(flight: u32, slowed_down: bool) -> u32 {
    if !slowed_down {
        return flight;
    }
    let slow_start = (flight / 2).max(1).next_power_of_two().saturating_mul(2) - 1;
    let rounds = (flight + 1).saturating_sub(slow_start);
    let avoidance = rounds.saturating_mul(flight.saturating_add(slow_start)) / 2;
    slow_start.saturating_add(avoidance).max(flight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equations_of_the_thesis() {
        assert_eq!(packets(64, false), 64);
        // 4.6: 2^(ceil(log2(32)) + 1) - 1 = 63; 4.7: (64 - 63 + 1) * (64 + 63) / 2 = 127.
        assert_eq!(packets(64, true), 63 + 127);
        // Slow start alone passes it.
        assert_eq!(packets(40, true), 63);
        assert_eq!(packets(0, true), 1);
    }
}
