//! Cryptography: library primitives, put together.
