//! The command line as pages of a manual: of each subcommand what it does, how it is written, its arguments and flags.
//! All of it is what `--help` says, out of the same definition.

use clap::{Arg, ArgAction, Command};

/// Each subcommand that `--help` names under a heading of its own, and at the end the flags of all.
pub fn page(mut command: Command) -> String {
    command.build();
    let mut page = String::new();
    for below in visible(&command) {
        section(below, 2, &mut page);
    }
    page.push_str("## Flags of every subcommand\n\n");
    let global: Vec<_> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    flags(&global, &mut page);
    while page.ends_with("\n\n") {
        page.pop();
    }
    page
}

/// Subcommands in the order of `--help`, without hidden ones and `help` itself.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

/// A subcommand and those below it.
fn section(command: &Command, depth: usize, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    page.push_str(&format!("{} `{name}`\n\n", "#".repeat(depth)));
    let about = command.get_long_about().or(command.get_about());
    if let Some(about) = about {
        page.push_str(&format!("{}.\n\n", plain(&about.to_string()).trim_end_matches('.')));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    page.push_str(&format!("```text\n{}\n```\n\n", usage.trim()));
    let own = |arg: &&Arg| {
        !arg.is_hide_set()
            && !arg.is_global_set()
            && !matches!(
                arg.get_action(),
                ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong
            )
    };
    let own: Vec<_> = command.get_arguments().filter(own).collect();
    if !own.is_empty() {
        flags(&own, page);
    }
    for below in visible(command) {
        section(below, depth + 1, page);
    }
}

/// A table of arguments, those without a dash first.
fn flags(arguments: &[&Arg], page: &mut String) {
    page.push_str("| argument | default | meaning |\n|---|---|---|\n");
    let (bare, dashed): (Vec<&Arg>, Vec<&Arg>) =
        arguments.iter().partition(|arg| arg.is_positional());
    for arg in bare.into_iter().chain(dashed) {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        // Where no value stands for the default, the words do.
        let (help, told) = match help.rsplit_once(" [default: ") {
            Some((help, told)) => (help, told.strip_suffix(']').unwrap_or(told).to_owned()),
            None => (help.as_str(), String::new()),
        };
        let set: Vec<_> =
            arg.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let valued = arg.get_action().takes_values();
        let default = match (valued && !set.is_empty(), told.is_empty()) {
            (true, _) => format!("`{}`", set.join(" ")),
            (false, false) => plain(&told),
            (false, true) => String::new(),
        };
        let mut meaning = plain(help);
        if arg.is_required_set() {
            meaning.push_str(" (required)");
        }
        if valued && !arg.is_hide_possible_values_set() {
            let values: Vec<_> = arg
                .get_possible_values()
                .iter()
                .filter(|value| !value.is_hide_set())
                .map(|value| format!("`{}`", value.get_name()))
                .collect();
            if !values.is_empty() {
                meaning.push_str(&format!(": {}", values.join(", ")));
            }
        }
        let default = if default.is_empty() { " ".to_owned() } else { format!(" {default} ") };
        page.push_str(&format!("| {} |{default}| {meaning} |\n", spelled(arg)));
    }
    page.push('\n');
}

/// How an argument is written: `-E`, `--select SELECTOR`.
fn spelled(arg: &Arg) -> String {
    let mut value = String::new();
    if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| name.as_str().replace('|', "\\|")).collect();
        value =
            if names.is_empty() { arg.get_id().as_str().to_uppercase() } else { names.join(" ") };
        if arg.get_num_args().is_some_and(|range| range.max_values() > 1)
            || (arg.is_positional() && matches!(arg.get_action(), ArgAction::Append))
        {
            value.push('…');
        }
    }
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| {
        let gap = if value.is_empty() { "" } else { " " };
        format!("`--{long}{gap}{value}`")
    });
    let forms: Vec<_> = short.into_iter().chain(long).collect();
    if forms.is_empty() { format!("`{value}`") } else { forms.join(", ") }
}

/// Text of a help in a cell of a table: on one line, with nothing in it that Markdown would take for markup.
fn plain(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut out = String::new();
    for c in words.join(" ").chars() {
        if matches!(c, '|' | '<' | '*' | '_' | '[' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("tool")
            .arg(
                Arg::new("quiet")
                    .short('q')
                    .long("quiet")
                    .global(true)
                    .help("Say less")
                    .action(ArgAction::SetTrue),
            )
            .subcommand(
                Command::new("go")
                    .about("Goes somewhere")
                    .arg(
                        Arg::new("place")
                            .required(true)
                            .num_args(1..)
                            .value_name("PLACE")
                            .help("Where <to>"),
                    )
                    .arg(
                        Arg::new("how")
                            .long("how")
                            .value_parser(["walk", "run"])
                            .default_value("walk")
                            .help("In which way"),
                    )
                    .arg(Arg::new("seed").short('s').long("seed").help("Seed [default: random]"))
                    .arg(Arg::new("secret").long("secret").hide(true)),
            )
            .subcommand(Command::new("hidden").hide(true))
    }

    #[test]
    fn a_subcommand_has_usage_arguments_and_defaults() {
        insta::assert_snapshot!(page(command()), @r"
        ## `tool go`

        Goes somewhere.

        ```text
        tool go [OPTIONS] <PLACE>...
        ```

        | argument | default | meaning |
        |---|---|---|
        | `PLACE…` | | Where \<to> (required) |
        | `--how HOW` | `walk` | In which way: `walk`, `run` |
        | `-s`, `--seed SEED` | random | Seed |

        ## Flags of every subcommand

        | argument | default | meaning |
        |---|---|---|
        | `-q`, `--quiet` | | Say less |
        | `-h`, `--help` | | Print help |
        ");
    }

    #[test]
    fn every_visible_subcommand_and_flag_is_on_the_page() {
        use clap::CommandFactory;
        let page = page(crate::cli::Cli::command());
        let mut command = crate::cli::Cli::command();
        command.build();
        for below in visible(&command) {
            assert!(page.contains(&format!("## `tokgate {}`\n", below.get_name())));
            for long in
                below.get_arguments().filter(|it| !it.is_hide_set()).filter_map(Arg::get_long)
            {
                let known =
                    page.contains(&format!("`--{long} ")) || page.contains(&format!("`--{long}`"));
                assert!(known || long == "help", "{} --{long}", below.get_name());
            }
        }
        assert!(!page.contains("tokgate manual"));
    }
}
