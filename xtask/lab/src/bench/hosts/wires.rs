//! The numbers of the wire, the FIFO and the bootstrap: each is an example of its crate, whose words are shown as they are.

use std::process::Command;

use crate::{Result, repo};

/// After so many seconds a program is ended.
const LIMIT_SECONDS: &str = "600";

/// One program to run.
struct Program {
    title: &'static str,
    package: &'static str,
    example: &'static str,
    arguments: Vec<String>,
}

/// Runs all of them, `rounds` rounds where they have rounds; their part of the section.
pub fn section(rounds: usize) -> String {
    let program =
        |title, package, example, arguments| Program { title, package, example, arguments };
    let programs = [
        program(
            "The TCP wire beside plain sockets",
            "antiphon-port",
            "wire_speed",
            vec![rounds.to_string()],
        ),
        program("The FIFO", "antiphon-port", "fifo_speed", vec![]),
        program("Forming a job", "antiphon-bootstrap", "forming", vec![]),
    ];
    programs.iter().map(part).collect()
}

/// What a program says, or why it said nothing.
fn part(program: &Program) -> String {
    let head = format!("{}\n\n`{}`:", program.title, line(program));
    run(program).map_or_else(
        |error| {
            println!("SKIP {}: {error}", program.example);
            format!("### {head} not measured.\n\n")
        },
        |said| block(&head, &said),
    )
}

fn run(program: &Program) -> Result<String> {
    let &Program { title, package, example, ref arguments } = program;
    let mut build = repo::cargo();
    build.args(["build", "--quiet", "--release", "--package", package, "--example", example]);
    repo::capture(&format!("build {example}"), &mut build)?;
    let built = repo::target_dir().join("release/examples").join(example);
    // In the foreground, so that whoever interrupts this task interrupts the program.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", LIMIT_SECONDS]).arg(built).args(arguments);
    let said = repo::capture(&format!("run {example}"), &mut command)?;
    println!("{title}\n{said}");
    Ok(said)
}

fn line(program: &Program) -> String {
    let Program { package, example, arguments, .. } = program;
    let after =
        if arguments.is_empty() { String::new() } else { format!(" -- {}", arguments.join(" ")) };
    format!("cargo run --release -p {package} --example {example}{after}")
}

fn block(head: &str, said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    format!("### {head}\n\n```text\n{}\n```\n\n", lines.join("\n").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_shown_with_the_command() {
        let program =
            Program { title: "T", package: "p", example: "e", arguments: vec!["3".into()] };
        assert_eq!(line(&program), "cargo run --release -p p --example e -- 3");
        assert_eq!(block("T", "a \nb\n"), "### T\n\n```text\na\nb\n```\n\n");
    }
}
