//! The topology, drawn.

use super::Screen;

const PICTURE: &str = r"
   client                                        gateway            server
  +-------+   home 198.51.100.2                  +-------+         +-------+
  |       |=================+   ( the  )         |       |  cable  |       |
  | wlan0 |                 +==( Inter- )========| eth0  |---------| files |
  |       |- - - - - - - - -+   ( net  )         |       |         |       |
  +-------+   cafe 203.0.113.3         192.0.2.2 +-------+         +-------+
  10.77.0.2 <============= the tunnel ===========> 10.77.0.1       10.20.0.2
                 20 Mbit/s, 40 ms";

/// Whether there are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addresses {
    /// The hosts have those of the picture.
    Shown,
    /// There are no hosts.
    Hidden,
}

/// Draws who is where.
pub(super) fn draw(screen: &mut Screen, addresses: Addresses) {
    for line in PICTURE.lines() {
        match addresses {
            Addresses::Shown => screen.line(line),
            Addresses::Hidden => screen.line(&without_addresses(line)),
        }
    }
    screen.line("");
}

/// The line with blanks in place of every address: of every word with three dots.
fn without_addresses(line: &str) -> String {
    let blank = |word: &str| match word.matches('.').count() {
        3 => " ".repeat(word.len()),
        _ => word.to_owned(),
    };
    line.split(' ').map(blank).collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_fits_a_terminal_of_80_columns() {
        assert!(super::PICTURE.lines().all(|line| line.chars().count() <= 78));
    }

    #[test]
    fn addresses_can_be_left_out() {
        let line = "  |  home 198.51.100.2  |  20 Mbit/s";
        assert_eq!(super::without_addresses(line), "  |  home               |  20 Mbit/s");
    }
}
