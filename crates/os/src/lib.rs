//! Every system call that Rove makes, and no protocol.
