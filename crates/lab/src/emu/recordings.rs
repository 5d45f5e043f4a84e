//! Mobile networks as somebody met them on the way, recorded in both directions at the same time
//! (`testdata/linktraces`).

use super::trace::{Trace, TraceError};

/// A recorded network: its name, and what it could deliver down and up.
type Recording = (&'static str, &'static str, &'static str);

const VERIZON: Recording = (
    "verizon-lte",
    include_str!("../../testdata/linktraces/verizon-lte.down"),
    include_str!("../../testdata/linktraces/verizon-lte.up"),
);
const T_MOBILE: Recording = (
    "tmobile-lte",
    include_str!("../../testdata/linktraces/tmobile-lte.down"),
    include_str!("../../testdata/linktraces/tmobile-lte.up"),
);

/// What a recorded network could deliver up and down; `None` of a name that nobody has recorded.
pub(super) fn recorded(name: &str) -> Option<Result<(Trace, Trace), TraceError>> {
    let (_, down, up) = [VERIZON, T_MOBILE].into_iter().find(|known| known.0 == name)?;
    Some(Trace::parse_counts(up).and_then(|up| Ok((up, Trace::parse_counts(down)?))))
}

#[cfg(test)]
mod tests {
    use super::{T_MOBILE, VERIZON};
    use crate::emu::{LinkConfig, MS, PipeConfig, Rate, SECOND};

    #[test]
    fn each_can_be_had_and_has_the_mean_rate_of_its_recording() {
        let mean = |pipe: &PipeConfig| match &pipe.rate {
            Rate::Trace(trace) => trace.mean_bits_per_second() / 10_000,
            Rate::Unlimited | Rate::BitsPerSecond(_) | Rate::Changing(_) => 0,
        };
        for ((name, ..), means) in [(VERIZON, [527, 591]), (T_MOBILE, [1_599, 1_121])] {
            let link = LinkConfig::recorded_as(name, 50 * MS).unwrap().unwrap();
            let close = |is: u64, said: u64| is.abs_diff(said) <= 1;
            let is = [mean(&link.down), mean(&link.up)];
            assert!(close(is[0], means[0]) && close(is[1], means[1]), "{name}: {is:?}");
            for pipe in [&link.down, &link.up] {
                let Rate::Trace(trace) = &pipe.rate else { panic!() };
                assert!(trace.period_ns().abs_diff(120 * SECOND) < 2 * SECOND, "{name}");
            }
        }
        assert!(LinkConfig::recorded_as("two tins and a string", MS).is_none());
    }
}
