//! The goodput matrix, drawn: a line for each pair of links and their loss, as Scalable Vector
//! Graphics (SVG 1.1), which every browser shows.
//!
//! This module decides the layout, and which published figures are shown.

use super::super::links::name;
use super::super::{asymmetric, symmetric};
use super::{FIRST_S, LENGTH_S, Row, SEED};

/// Width of the drawing, in pixels as all lengths here.
const WIDTH: f64 = 1_120.0;
/// Where the first line of the first pair is.
const TOP: f64 = 178.0;
/// Height of a line.
const LINE: f64 = 19.0;
/// Space between two pairs.
const BETWEEN: f64 = 14.0;
/// The range of the shares of the sum, and that of the multiples of the better link.
const SUM: (f64, f64) = (210.0, 700.0);
const BEST: (f64, f64) = (760.0, 1_090.0);
/// The largest share of the sum in the drawing.
const SHARE_MAX: f64 = 1.05;
/// Round multiples of the better link.
const MULTIPLES: &[f64] = &[0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// How far from the middle of its line a mark is that would hide another.
const ASIDE: f64 = 4.5;

const INK: &str = "#22272e";
const FAINT: &str = "#6b7480";
const GRID: &str = "#e3e7ec";
const STRIPE: &str = "#f7f9fb";
const TARGET: &str = "#d9a400";

/// A kind of mark.
#[derive(Clone, Copy)]
struct Mark {
    /// Its meaning: a congestion control, a scheduler, or another program.
    word: &'static str,
    /// The text in the legend.
    label: &'static str,
    shape: Shape,
    colour: &'static str,
    /// How far below the middle of its line it is.
    aside: f64,
}

#[derive(Clone, Copy)]
enum Shape {
    Dot,
    Triangle,
    Diamond,
    Tick,
    Square,
    Ring,
    Cross,
    Plus,
    Star,
}

/// The default scheduler, by inner congestion control.
const DEFAULT: [Mark; 3] = [
    mark("cubic", "CUBIC", Shape::Dot, "#0b5cad", 0.0),
    mark("reno", "Reno", Shape::Triangle, "#2a9d8f", -ASIDE),
    mark("bbr", "BBR", Shape::Diamond, "#7b4bb3", ASIDE),
];

/// The others, with CUBIC.
const OTHERS: [Mark; 6] = [
    mark("rtt", "rtt", Shape::Tick, "#8d99a6", 0.0),
    mark("round-robin", "round-robin", Shape::Tick, "#c08552", 0.0),
    mark("loss", "loss", Shape::Tick, "#b56576", 0.0),
    mark("rate", "rate", Shape::Tick, "#6a994e", 0.0),
    mark("redundant", "redundant", Shape::Square, "#6b7480", 0.0),
    mark("latency", "latency", Shape::Ring, "#6b7480", 0.0),
];

/// Figures that others have measured or published.
const PUBLISHED: [Mark; 3] = [
    mark("hybrid", "mqvpn, hybrid", Shape::Cross, "#c62f2f", 0.0),
    mark("packets", "mqvpn, packets", Shape::Plus, "#c62f2f", 0.0),
    mark("mptcp", "OpenVPN over MPTCP", Shape::Star, "#e07a1f", 0.0),
];

/// Mbit/s with CUBIC of a whole file of 16,331,410 bytes on emulated links, by losses of 0, 0.5 and
/// 1 %, the best of several configurations of the same program: in the setting of Lukaszewski 2017,
/// Figures 3.5 and 3.6. The last two are links that no paper has, without loss.
const ELSEWHERE: &[(&str, &str, &[f64])] = &[
    ("10/20+10/20", "hybrid", &[18.5, 17.6, 17.1]),
    ("10/60+10/60", "hybrid", &[17.9, 15.6, 17.2]),
    ("10/20+10/20", "packets", &[10.1, 6.8, 4.7]),
    ("10/60+10/60", "packets", &[9.7, 2.7, 2.0]),
    ("10/20+10/20", "mptcp", &[16.2, 14.4, 11.6]),
    ("10/60+10/60", "mptcp", &[13.6, 6.4, 4.5]),
    ("10/10+40/60", "mptcp", &[42.7]),
    ("300/10+80/30", "packets", &[149.0]),
];

/// Draws it.
pub fn draw(rows: &[Row]) -> String {
    let groups = groups(rows);
    let lines: usize = groups.iter().map(|group| group.lines.len()).sum();
    let bottom = TOP + lines as f64 * LINE + groups.len() as f64 * BETWEEN;
    let multiples = Multiples::of(rows);
    let mut svg = Svg::new(bottom + 61.0);
    legend(&mut svg);
    svg.axes(&multiples, bottom - BETWEEN);
    let mut y = TOP;
    for (number, Group { pair, lines }) in groups.iter().enumerate() {
        let height = lines.len() as f64 * LINE;
        if number % 2 == 0 {
            let (left, width) = (16.0, WIDTH - 32.0);
            let top = y - BETWEEN / 2.0;
            svg.put(&format!(
                "<rect x=\"{left}\" y=\"{top:.1}\" width=\"{width}\" height=\"{:.1}\" \
                 fill=\"{STRIPE}\"/>",
                height + BETWEEN
            ));
        }
        svg.grid(&multiples, (y - BETWEEN / 2.0, y + height + BETWEEN / 2.0));
        let target = share_x(required(pair));
        svg.line((target, y - 2.0), (target, y + height + 2.0), TARGET, "1.6");
        svg.text((28.0, y + 13.5), "start", INK, 12.5, &pair.replace('+', " + "));
        for (loss, cells) in lines {
            draw_line(&mut svg, y + LINE / 2.0, loss, cells, &multiples);
            y += LINE;
        }
        y += BETWEEN;
    }
    let notes = [
        "Links: Mbit/s / ms of round trip. Loss: per cent each way, each packet by itself; bursty: \
         2 % in bursts of 3."
            .to_owned(),
        format!(
            "Others' figures: Mbit/s of the whole file on emulated links, slow start and all, as a \
             share of the same sum; beside them stand Rove's seconds {FIRST_S} to {LENGTH_S}."
        ),
    ];
    for (note, y) in notes.iter().zip([26.0, 41.0]) {
        svg.text((28.0, bottom + y), "start", FAINT, 10.5, note);
    }
    svg.end()
}

/// The cells of a pair, by loss.
struct Group<'a> {
    pair: &'a str,
    lines: Vec<(&'a str, Vec<&'a Row>)>,
}

/// The pairs, in the order of the rows.
fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        if groups.last().is_none_or(|group| group.pair != row.pair) {
            groups.push(Group { pair: &row.pair, lines: Vec::new() });
        }
        let Some(Group { lines, .. }) = groups.last_mut() else { continue };
        match lines.last_mut() {
            Some((loss, cells)) if *loss == row.loss => cells.push(row),
            _ => lines.push((&row.loss, vec![row])),
        }
    }
    groups
}

fn draw_line(svg: &mut Svg, y: f64, loss: &str, cells: &[&Row], multiples: &Multiples) {
    let words = if loss == "bursty" { "bursty".to_owned() } else { format!("{loss} %") };
    svg.text((SUM.0 - 12.0, y + 4.0), "end", FAINT, 11.0, &words);
    for &(pair, word, mbps) in ELSEWHERE {
        let at = ["0", "0.5", "1"].iter().position(|one| *one == loss);
        let here = cells.first().filter(|cell| cell.pair == pair);
        let published = at.and_then(|at| mbps.get(at));
        // Any cell has the capacity of both.
        if let (Some(Row { mbps: Some(rate), of_sum: Some(share), .. }), Some(published)) =
            (here, published)
            && let Some(mark) = PUBLISHED.iter().find(|mark| mark.word == word)
        {
            svg.mark(mark, (share_x(published * share / rate), y));
        }
    }
    let others = OTHERS.iter().map(|mark| (mark, "cubic", mark.word));
    let default = DEFAULT.iter().rev().map(|mark| (mark, mark.word, "earliest"));
    for (mark, congestion, scheduler) in others.chain(default) {
        let is_it = |cell: &&&Row| cell.congestion == congestion && cell.scheduler == scheduler;
        let Some(cell) = cells.iter().find(is_it) else { continue };
        if let Some(share) = cell.of_sum {
            svg.mark(mark, (share_x(share), y + mark.aside));
        }
        if let Some(multiple) = cell.of_best {
            svg.mark(mark, (multiples.x(multiple), y + mark.aside));
        }
    }
}

fn legend(svg: &mut Svg) {
    let title = "One TCP connection over two links: Rove's goodput";
    svg.text((28.0, 36.0), "start", INK, 20.0, title);
    let what = format!(
        "production core in virtual time, seconds {FIRST_S} to {LENGTH_S} of each transfer, seed \
         {SEED}"
    );
    svg.text((28.0, 56.0), "start", FAINT, 12.0, &what);
    let rows: [(&str, &[Mark]); 3] = [
        ("default scheduler, congestion control inside:", &DEFAULT),
        ("other schedulers, CUBIC inside:", &OTHERS),
        ("others, CUBIC inside, left side only:", &PUBLISHED),
    ];
    for (number, (what, marks)) in rows.into_iter().enumerate() {
        let y = 82.0 + 19.0 * number as f64;
        svg.text((28.0, y), "start", FAINT, 11.5, what);
        let mut x = 300.0;
        for mark in marks {
            svg.mark(mark, (x, y - 4.0));
            svg.text((x + 10.0, y), "start", INK, 11.5, mark.label);
            x += 44.0 + 6.6 * mark.label.len() as f64;
        }
    }
    svg.line((760.0, 68.0), (760.0, 82.0), TARGET, "1.6");
    svg.text((770.0, 80.0), "start", INK, 11.5, "what there must be at least");
}

/// The least share of the sum of a pair.
fn required(pair: &str) -> f64 {
    let is_symmetric = symmetric::PAIRS.iter().any(|one| name(one) == pair);
    if is_symmetric { symmetric::SHARE_OF_SUM_MIN } else { asymmetric::SHARE_OF_SUM_MIN }
}

fn share_x(share: f64) -> f64 {
    SUM.0 + share.clamp(0.0, SHARE_MAX) / SHARE_MAX * (SUM.1 - SUM.0)
}

/// The axis of multiples of the better link: logarithmic.
struct Multiples {
    from: f64,
    to: f64,
}

impl Multiples {
    fn of(rows: &[Row]) -> Self {
        let all = || rows.iter().filter_map(|row| row.of_best);
        let (least, most) = (all().fold(1.0, f64::min), all().fold(1.0, f64::max));
        let from = MULTIPLES.iter().rev().copied().find(|one| *one <= least * 0.95);
        let to = MULTIPLES.iter().copied().find(|one| *one >= most * 1.05);
        Self { from: from.unwrap_or(MULTIPLES[0]), to: to.unwrap_or(100.0) }
    }

    fn x(&self, multiple: f64) -> f64 {
        let part = (multiple.clamp(self.from, self.to) / self.from).ln();
        BEST.0 + part / (self.to / self.from).ln() * (BEST.1 - BEST.0)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        MULTIPLES.iter().copied().filter(|one| (self.from..=self.to).contains(one))
    }
}

/// The drawing so far.
struct Svg(String);

impl Svg {
    fn new(height: f64) -> Self {
        let mut svg = Self(String::new());
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        ));
        svg
    }

    fn put(&mut self, element: &str) {
        self.0.push_str(element);
        self.0.push('\n');
    }

    fn end(mut self) -> String {
        self.put("</svg>");
        self.0
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: &str) {
        let ((x, y), (to_x, to_y)) = (from, to);
        self.put(&format!(
            "<path d=\"M{x:.1} {y:.1} L{to_x:.1} {to_y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>"
        ));
    }

    fn text(&mut self, at: (f64, f64), anchor: &str, colour: &str, size: f64, text: &str) {
        let (x, y) = at;
        self.put(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"{colour}\">{text}</text>"
        ));
    }

    /// The meaning of the axes, above, with their numbers above and below.
    fn axes(&mut self, multiples: &Multiples, bottom: f64) {
        let middle = |(from, to)| f64::midpoint(from, to);
        let what = "of what both links can carry";
        self.text((middle(SUM), TOP - 36.0), "middle", INK, 13.0, what);
        let what = "times the better link alone";
        self.text((middle(BEST), TOP - 36.0), "middle", INK, 13.0, what);
        for y in [TOP - 16.0, bottom + 18.0] {
            for percent in (0..=100).step_by(20) {
                let x = share_x(f64::from(percent) / 100.0);
                self.text((x, y), "middle", FAINT, 10.5, &format!("{percent} %"));
            }
            for multiple in multiples.marks() {
                self.text((multiples.x(multiple), y), "middle", FAINT, 10.5, &multiple.to_string());
            }
        }
    }

    /// The lines behind a pair.
    fn grid(&mut self, multiples: &Multiples, (top, bottom): (f64, f64)) {
        for percent in (0..=100).step_by(10) {
            let x = share_x(f64::from(percent) / 100.0);
            let width = if percent == 100 { "1.4" } else { "0.8" };
            self.line((x, top), (x, bottom), GRID, width);
        }
        for multiple in multiples.marks() {
            let x = multiples.x(multiple);
            let is_one = multiple == 1.0;
            let (colour, width) = if is_one { (TARGET, "1.6") } else { (GRID, "0.8") };
            self.line((x, top), (x, bottom), colour, width);
        }
    }

    fn mark(&mut self, mark: &Mark, (x, y): (f64, f64)) {
        let Mark { shape, colour, .. } = *mark;
        let filled = format!("fill=\"{colour}\" fill-opacity=\"0.9\"");
        let hollow = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"");
        let title = format!("<title>{}</title>", mark.label);
        let circle = |radius: f64, style: &str| {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {style}>{title}</circle>")
        };
        let path = |d: &str, style: &str| {
            format!("<path transform=\"translate({x:.1} {y:.1})\" d=\"{d}\" {style}>{title}</path>")
        };
        self.put(&match shape {
            Shape::Dot => circle(3.6, &filled),
            Shape::Ring => circle(3.4, &hollow),
            Shape::Triangle => path("M0 -3.4 L3.6 3 H-3.6 Z", &filled),
            Shape::Diamond => path("M0 -3.8 L3.8 0 L0 3.8 L-3.8 0 Z", &filled),
            Shape::Tick => path("M0 -7 V7", &hollow),
            Shape::Square => path("M-3.2 -3.2 H3.2 V3.2 H-3.2 Z", &hollow),
            Shape::Cross => path("M-3.6 -3.6 L3.6 3.6 M3.6 -3.6 L-3.6 3.6", &hollow),
            Shape::Plus => path("M-4.4 0 H4.4 M0 -4.4 V4.4", &hollow),
            Shape::Star => path("M-4.2 0 H4.2 M-2.1 -3.7 L2.1 3.7 M2.1 -3.7 L-2.1 3.7", &hollow),
        });
    }
}

const fn mark(
    word: &'static str,
    label: &'static str,
    shape: Shape,
    colour: &'static str,
    aside: f64,
) -> Mark {
    Mark { word, label, shape, colour, aside }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, ELSEWHERE, OTHERS, PUBLISHED, Row, draw};
    use crate::ground::SCHEDULERS;
    use crate::scenario::matrix::Conditions;

    fn row(pair: &str, loss: &str, congestion: &str, scheduler: &str) -> Row {
        let [pair, loss, congestion, scheduler] =
            [pair, loss, congestion, scheduler].map(str::to_owned);
        let (mbps, of_sum, of_best) = (Some(18.0), Some(0.9), Some(2.0));
        Row { pair, loss, congestion, scheduler, mbps, of_sum, of_best }
    }

    #[test]
    fn every_cell_is_drawn_and_what_is_known_of_others() {
        let legend = draw(&[]);
        let count = |rows: &[Row], what: &str| {
            let of = |svg: &str| svg.matches(&format!("<title>{what}</title>")).count();
            of(&draw(rows)) - of(&legend)
        };
        let far = row("10/20+10/20", "0.5", "bbr", "earliest");
        let rows = [far.clone(), row("10/20+10/20", "1", "cubic", "latency")];
        assert_eq!(
            (count(&rows, "BBR"), count(&rows, "latency"), count(&rows, "CUBIC")),
            (2, 2, 0)
        );
        assert_eq!((count(&rows, "mqvpn, hybrid"), count(&rows, "OpenVPN over MPTCP")), (2, 2));
        let nothing = [Row { mbps: None, of_sum: None, of_best: None, ..far }];
        assert_eq!((count(&nothing, "BBR"), count(&nothing, "mqvpn, hybrid")), (0, 0));
        let svg = draw(&rows);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("whole file") && svg.contains("seconds 5 to 10"), "{svg}");
    }

    #[test]
    fn every_scheduler_has_a_mark_and_every_figure_of_others_a_pair() {
        let words: Vec<&str> = OTHERS.iter().map(|mark| mark.word).collect();
        assert!(SCHEDULERS[1..].iter().all(|name| words.contains(name)), "{words:?}");
        let all = Conditions::all();
        for (pair, word, _) in ELSEWHERE {
            assert!(all.iter().any(|one| one.pair() == *pair), "{pair}");
            assert!(PUBLISHED.iter().any(|mark| mark.word == *word), "{word}");
        }
        let known = |name: &str| DEFAULT.iter().any(|mark| mark.word == name);
        assert!(all.iter().all(|one| known(one.congestion.name())));
    }
}
