//! `rove`: the one binary. Its code is in the library beside it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rove::main()
}
