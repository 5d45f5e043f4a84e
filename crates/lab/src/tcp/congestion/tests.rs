use super::*;
use crate::emu::{MS, SECOND};

fn told(sample: &RateSample, now_ns: u64) -> Told<'_> {
    Told {
        now_ns,
        sample,
        in_flight: 0,
        una: now_ns,
        next: now_ns + 10,
        delivered: 0,
        delivered_ns: now_ns,
        srtt_ns: Some(40 * MS),
        repair: Repair::None,
    }
}

/// The window after `rounds` round trips of 40 ms in which all of it was acknowledged.
fn grow(control: &mut Control, window: &mut Window, start_ns: u64, rounds: u64) {
    let sample = RateSample::default();
    for round in 0..rounds {
        let now_ns = start_ns + round * 40 * MS;
        let all = window.segments;
        for _ in 0..all {
            control.grow(&told(&sample, now_ns), window, 1);
        }
    }
}

#[test]
fn reno_doubles_then_adds_one_a_round_trip_and_halves() {
    let mut control = Control::new(CongestionControl::Reno, 1_448, 0);
    let mut window = Window::new();
    grow(&mut control, &mut window, 0, 2);
    assert_eq!(window.segments, 40);
    window.threshold = control.threshold_after_loss(&window);
    assert_eq!(window.threshold, 20);
    window.segments = 20;
    grow(&mut control, &mut window, SECOND, 10);
    assert_eq!(window.segments, 30);
}

#[test]
fn cubic_is_back_at_the_window_of_the_loss_after_k() {
    let mut control = Control::new(CongestionControl::Cubic, 1_448, 0);
    let mut window = Window::new();
    window.segments = 2_000;
    window.threshold = control.threshold_after_loss(&window);
    assert_eq!(window.threshold, 1_400);
    window.segments = 1_400;
    // K = cube root of 600 / 0.4 = 11.45 s: 286 round trips.
    grow(&mut control, &mut window, SECOND, 286);
    assert!((1_980..=2_010).contains(&window.segments), "{}", window.segments);
    let flat = window.segments;
    grow(&mut control, &mut window, SECOND + 286 * 40 * MS, 150);
    assert!(window.segments > flat + 50, "and beyond: {}", window.segments);
}

#[test]
fn a_small_cubic_is_no_slower_than_reno() {
    let mut control = Control::new(CongestionControl::Cubic, 1_448, 0);
    let mut window = Window::new();
    window.segments = 200;
    window.threshold = control.threshold_after_loss(&window);
    window.segments = 140;
    // RFC 9438, 4.3: 3 (1 - beta) / (1 + beta) = 0.53 segments a round trip.
    grow(&mut control, &mut window, SECOND, 133);
    assert!((205..=215).contains(&window.segments), "{}", window.segments);
}

#[test]
fn silence_halves_the_window_down_to_the_first() {
    let mut window = Window::new();
    window.segments = 100;
    window.restart(450 * MS, 200 * MS);
    assert_eq!(window.segments, 25);
    window.restart(10 * SECOND, 200 * MS);
    assert_eq!(window.segments, WINDOW_FIRST);
}
