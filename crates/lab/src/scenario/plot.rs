//! Rates over time, drawn: one panel for each cell, as Scalable Vector Graphics (SVG 1.1), which
//! every browser shows.
//!
//! Decides how they look; refuses to know what they mean.

use anyhow::Context as _;
use std::fmt::Write as _;

/// Width of the drawing and height of a panel, in pixels.
const SIZE: (f64, f64) = (900.0, 190.0);
/// The space around a panel: left, right, above, below.
const MARGINS: (f64, f64, f64, f64) = (50.0, 20.0, 26.0, 30.0);
/// About how many marks an axis has.
const MARKS: f64 = 8.0;

/// One transfer with outages beside one without.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// What stands above it.
    pub(super) title: String,
    /// The length of each interval, in nanoseconds.
    pub(super) interval_ns: u64,
    /// When the link was down, in nanoseconds after the start.
    pub(super) outages: Vec<(u64, u64)>,
    /// Mbit/s in each interval, without outages.
    pub(super) undisturbed: Vec<f64>,
    /// Mbit/s in each interval, with them.
    pub(super) disturbed: Vec<f64>,
}

/// Draws panels into a file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn plot(path: &str, panels: &[Panel]) -> anyhow::Result<()> {
    std::fs::write(path, drawing(panels)).with_context(|| format!("cannot write {path}"))
}

fn drawing(panels: &[Panel]) -> String {
    let (width, height) = (SIZE.0, SIZE.1 * panels.len().max(1) as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        let top = SIZE.1 * number as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">");
        Axes::of(panel).draw(panel, &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// How seconds and Mbit/s become pixels.
struct Axes {
    seconds: f64,
    mbps: f64,
}

impl Axes {
    fn of(panel: &Panel) -> Self {
        let intervals = panel.undisturbed.len().max(panel.disturbed.len()).max(1);
        let rates = panel.undisturbed.iter().chain(&panel.disturbed);
        let seconds = intervals as f64 * panel.interval_ns as f64 / 1e9;
        Self { seconds, mbps: rates.copied().fold(1.0, f64::max) }
    }

    fn x(&self, seconds: f64) -> f64 {
        MARGINS.0 + seconds / self.seconds * (SIZE.0 - MARGINS.0 - MARGINS.1)
    }

    fn y(&self, mbps: f64) -> f64 {
        SIZE.1 - MARGINS.3 - mbps / self.mbps * (SIZE.1 - MARGINS.2 - MARGINS.3)
    }

    fn draw(&self, panel: &Panel, svg: &mut String) {
        let (bottom, top) = (self.y(0.0), self.y(self.mbps));
        for &(from_ns, to_ns) in &panel.outages {
            let (from, to) = (self.x(from_ns as f64 / 1e9), self.x(to_ns as f64 / 1e9));
            let (width, height) = (to - from, bottom - top);
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 fill=\"#fbe3e0\"/>"
            );
        }
        for seconds in marks(self.seconds) {
            let x = self.x(seconds);
            let below = bottom + 14.0;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{seconds} s</text>"
            );
        }
        for mbps in marks(self.mbps) {
            let (left, right, y) = (MARGINS.0, SIZE.0 - MARGINS.1, self.y(mbps));
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {y:.1} H{right}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mbps}</text>",
                left - 5.0,
                y + 4.0
            );
        }
        let title = &panel.title;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"16\">{title}: Mbit/s at the receiver; grey without outages</text>",
            MARGINS.0
        );
        self.line(&panel.undisturbed, panel.interval_ns, "#aaa", svg);
        self.line(&panel.disturbed, panel.interval_ns, "#1f5fa8", svg);
    }

    /// A line with a step for each interval.
    fn line(&self, rates: &[f64], interval_ns: u64, colour: &str, svg: &mut String) {
        let mut path = format!("M{:.1} {:.1}", self.x(0.0), self.y(0.0));
        for (number, mbps) in rates.iter().enumerate() {
            let end = (number + 1) as f64 * interval_ns as f64 / 1e9;
            let _ = write!(path, " V{:.1} H{:.1}", self.y(*mbps), self.x(end));
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>");
    }
}

/// Round numbers from zero up to `end`: steps of 1, 2 or 5 times a power of ten.
fn marks(end: f64) -> Vec<f64> {
    let rough = end / MARKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|one| *one >= rough);
    let step = step.unwrap_or(end);
    (0..=(end / step) as u32).map(|number| f64::from(number) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::{Panel, drawing, marks};

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(marks(20.0), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(marks(7.5), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        for end in [0.3, 1.0, 36.0, 86.0, 99_999.0] {
            assert!((4..=10).contains(&marks(end).len()), "{end}: {:?}", marks(end));
        }
    }

    #[test]
    fn every_outage_and_both_transfers_are_drawn() {
        let panel = Panel {
            title: "2 x 1 s".to_owned(),
            interval_ns: 500_000_000,
            outages: vec![(1_000_000_000, 2_000_000_000), (3_000_000_000, 4_000_000_000)],
            undisturbed: vec![20.0; 6],
            disturbed: vec![20.0, 20.0, 0.0, 0.0, 20.0, 20.0, 0.0, 0.0, 20.0],
        };
        let svg = drawing(&[panel.clone(), panel]);
        assert_eq!(svg.matches("fill=\"#fbe3e0\"").count(), 4);
        assert_eq!(svg.matches("stroke=\"#1f5fa8\"").count(), 2);
        assert_eq!(svg.matches("2 x 1 s").count(), 2);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = drawing(&[]);
        assert!(empty.ends_with("</svg>\n"));
    }
}
