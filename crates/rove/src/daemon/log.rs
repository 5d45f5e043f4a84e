//! Logs: to standard error, as text or JSON. Addresses and names appear at `debug`, secrets never.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Starts logging, once per process.
pub fn start(config: LogConfig, format: Option<LogFormat>) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let started = match format.unwrap_or(config.format) {
        LogFormat::Text => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A second start changes nothing, which is what a second start should do.
    drop(started);
}
