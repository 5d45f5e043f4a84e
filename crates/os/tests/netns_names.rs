//! Asking for a name on a host whose network is just coming.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use rove_os::{error::Error, names};
use support::{in_namespace, net};

#[test]
fn a_question_that_could_not_leave_leaves_as_soon_as_it_can() {
    in_namespace("a_question_that_could_not_leave_leaves_as_soon_as_it_can", || {
        let server = UdpSocket::bind("0.0.0.0:53").unwrap();
        let comes = Duration::from_millis(100);
        thread::spawn(move || {
            thread::sleep(comes);
            net::address("lo", "192.0.2.53/32");
        });
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = server.recv_from(&mut question) {
                // The same number and question, and the code for a name that is not there.
                (question[2], question[3]) = (0x81, 0x83);
                server.send_to(&question[..length], from).unwrap();
            }
        });
        let began = Instant::now();
        let patience = Duration::from_secs(5);
        let error =
            names::resolve("gw.example", &["192.0.2.53:53".parse().unwrap()], None, patience);
        assert!(matches!(error, Err(Error::NameUnknown { .. })), "{error:?}");
        // Before the second in which a question that was lost is repeated.
        let took = began.elapsed();
        assert!((comes..Duration::from_millis(700)).contains(&took), "{took:?}");
    });
}
