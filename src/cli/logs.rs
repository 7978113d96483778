//! How events are written: to standard error, as lines for people or as objects for programs.

use std::path::PathBuf;

use clap::ArgMatches;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::fmt::{SubscriberBuilder, fmt};

use crate::Settings;
use crate::config::LogFormat;

/// Begins to write what the library has to tell: warnings, or what RUST_LOG asks for.
pub fn begin(format: LogFormat) {
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines: SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> std::io::Stderr> =
        fmt().with_env_filter(wanted).with_writer(std::io::stderr as fn() -> _).with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        // One object a line, in UTC; the event's name is its message.
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}

/// The words that a command line may say.
pub fn words() -> impl TypedValueParser<Value = LogFormat> {
    PossibleValuesParser::new(["text", "json"])
        .map(|word| if word == "json" { LogFormat::Json } else { LogFormat::Text })
}

/// What the settings say, where neither the command line nor the environment does. Settings that cannot be read are the
/// command's to refuse.
pub fn of_settings(arguments: &ArgMatches) -> LogFormat {
    let file = settings_file(arguments).or_else(|| std::env::var_os("CALL_BUDGET_CONFIG").map(PathBuf::from));
    Settings::layered(file.as_deref()).map_or(LogFormat::Text, |settings| settings.log_format)
}

/// The file that `--config` of the command, or of the command in it, names.
fn settings_file(arguments: &ArgMatches) -> Option<PathBuf> {
    let own = arguments.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    own.or_else(|| arguments.subcommand().and_then(|(_, of_command)| settings_file(of_command)))
}
