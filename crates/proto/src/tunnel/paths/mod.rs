//! The paths to the peer: which there are, which are kept, and which carries.
//!
//! State, and queries on it: `list` (the paths), `plan` (how good each path is, when it is asked,
//! which are kept), `connector` (what a client remembers), `announced` (the gateway's addresses and
//! networks), `trust` (links that did badly), `unanswered` (links that never answered), `turns`
//! (addresses that are asked by turns), `candidate` (a way to the gateway), `policing` (policed
//! links), `last_words` (last feedback of paths that are gone), `listening` (a client that only
//! receives). What the tunnel does with it: `silence` (paths that owe an answer), `stream_trial`
//! (where UDP is policed), `links` (the shell's links, sockets and addresses), `standby` (make
//! before break), `moving` (paths come into use and go).

pub(crate) mod announced;
pub(crate) mod candidate;
pub(crate) mod connector;
pub(crate) mod last_words;
mod links;
pub(crate) mod list;
pub(crate) mod listening;
mod moving;
pub(crate) mod plan;
pub(crate) mod policing;
mod silence;
pub(crate) mod standby;
mod stream_trial;
pub(crate) mod trust;
pub(crate) mod turns;
pub(crate) mod unanswered;
