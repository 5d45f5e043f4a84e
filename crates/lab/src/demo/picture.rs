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

/// Draws who is where.
pub(super) fn draw(screen: &mut Screen) {
    for line in PICTURE.lines() {
        screen.line(line);
    }
    screen.line("");
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_fits_a_terminal_of_80_columns() {
        assert!(super::PICTURE.lines().all(|line| line.chars().count() <= 78));
    }
}
