//! Emulated networks on which every claim about Rove is shown.
