//! What the shell must send.
