//! What people see: plain lines, with colour and a moving line where there is a terminal.

use crate::emu::SECOND;
use std::io::{IsTerminal as _, Write};

/// Columns of a progress bar: what fits a terminal of 80 beside its figures.
const BAR: usize = 30;

/// Where the story is told. Failures to write are ignored: a reader who has closed the pipe has
/// seen enough, and the exit status still tells the outcome.
pub struct Screen {
    out: Box<dyn Write>,
    /// A terminal: colour, and a progress line that moves.
    live: bool,
    /// A progress line stands there without its end.
    open_line: bool,
    /// When progress was last shown, and how far it was.
    shown: Option<(u64, u64)>,
}

impl Screen {
    /// The standard output.
    pub fn stdout() -> Self {
        let out = std::io::stdout();
        let live = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { out: Box::new(out), live, open_line: false, shown: None }
    }

    /// A heading.
    pub fn title(&mut self, text: &str) {
        let text = self.painted("1", text);
        self.line(&text);
    }

    /// A plain line.
    pub fn line(&mut self, text: &str) {
        self.close_line();
        let _ = writeln!(self.out, "{text}");
    }

    /// Something that happened, under a short label.
    pub fn step(&mut self, label: &str, text: &str) {
        let label = self.painted("36", &format!("{label:>10}"));
        self.line(&format!("{label}  {text}"));
    }

    /// Something that befell the story.
    pub fn event(&mut self, label: &str, text: &str) {
        let text = self.painted("1;33", &format!("{label:>10}  {text}"));
        self.line(&text);
    }

    /// Something the reader should know but need not.
    pub fn note(&mut self, text: &str) {
        let text = self.painted("2", &format!("      note  {text}"));
        self.line(&text);
    }

    /// The point of it all.
    pub fn verdict(&mut self, good: bool, text: &str) {
        let text = self.painted(if good { "1;32" } else { "1;31" }, text);
        self.line(&text);
    }

    /// Shows how far a transfer is: a bar that moves, or a line a second.
    pub fn progress(&mut self, at_ns: u64, bytes: u64, length: u64) {
        let (last_ns, last_bytes) = *self.shown.get_or_insert((at_ns, bytes));
        let interval_ns = at_ns.saturating_sub(last_ns);
        let due_ns = if self.live { SECOND / 4 } else { SECOND };
        if interval_ns < due_ns {
            return;
        }
        self.shown = Some((at_ns, bytes));
        let rate = (bytes - last_bytes) as f64 * 8e3 / interval_ns as f64;
        let text = bar(bytes, length, rate);
        if self.live {
            let _ = write!(self.out, "\r{text}\x1b[K");
            let _ = self.out.flush();
            self.open_line = true;
        } else {
            self.line(&text);
        }
    }

    /// The transfer is over.
    pub fn progress_done(&mut self) {
        self.close_line();
        self.shown = None;
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.open_line) {
            let _ = writeln!(self.out);
        }
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.live { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// How far a transfer is, as one line.
fn bar(bytes: u64, length: u64, mbps: f64) -> String {
    let done = (u128::from(bytes) * BAR as u128 / u128::from(length.max(1))) as usize;
    let bar = format!("{}{}", "#".repeat(done), ".".repeat(BAR - done));
    let (megabytes, total) = (bytes as f64 / 1e6, length as f64 / 1e6);
    format!("            [{bar}] {megabytes:5.1} of {total:.1} MB  {mbps:5.1} Mbit/s")
}

#[cfg(test)]
mod tests {
    #[test]
    fn progress_fits_a_terminal_of_80_columns() {
        // A line that wraps cannot be drawn over.
        for bytes in [0, 1, 999_999_999, 1_000_000_000] {
            let line = super::bar(bytes, 1_000_000_000, 999.9);
            assert!(line.chars().count() < 80, "{line}");
        }
    }
}
