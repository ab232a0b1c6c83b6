//! The texts behind the options of `--help`. They are written in lines, and a terminal may be narrower: the lines of a
//! paragraph are joined, and `clap` wraps the paragraph once.

use clap::{Command, Error, Parser};

/// Reads the command line.
pub(crate) fn parse<C: Parser>() -> Result<C, Error> {
    let mut command = joined(C::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A command whose texts, and those of its subcommands, have one line for each paragraph.
fn joined(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help() {
        let text = join_lines(&text.to_string());
        command = command.after_help(text);
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    for name in names {
        command = command.mut_subcommand(name, joined);
    }
    command
}

/// Joins the lines of each paragraph. A block with an indented line, such as a list of examples, stays as it is.
fn join_lines(text: &str) -> String {
    let block = |block: &str| match block.lines().any(|line| line.starts_with(' ')) {
        true => block.to_owned(),
        false => block.lines().collect::<Vec<_>>().join(" "),
    };
    let blocks: Vec<String> = text.split("\n\n").map(block).collect();
    blocks.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_paragraph_are_joined_and_lists_stay() {
        let text = "Examples:\n  a  one\n  b  two\n\nA long\ntext.\n\nAnother.";
        let wanted = "Examples:\n  a  one\n  b  two\n\nA long text.\n\nAnother.";
        assert_eq!(join_lines(text), wanted);
    }

    /// On a terminal of 80 columns no word of a paragraph stands alone on its line.
    #[test]
    fn help_is_wrapped_once() {
        let command = Command::new("a").after_help("word ".repeat(12) + "\n" + &"word ".repeat(12));
        let mut command = joined(command).term_width(40);
        let help = command.render_help().to_string();
        let lines: Vec<&str> = help.lines().filter(|it| it.starts_with("word")).collect();
        let short = lines.iter().filter(|it| it.len() < 30).count();
        assert!(short <= 1, "{help}");
    }
}
