//! The page's table of symbols, held against the calls that the tests' programs made.
//!
//! The programs write down each call that passed, once it has returned, and the stand-in for the real library each that came to it
//! (`shown.h`). So a row is shown by a call that was run, with that outcome, and by nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the file in which programs write down what they called.
pub const SHOWN: &str = "ANTIPHON_TEST_SHOWN";

const PAGE: &str = include_str!("../../../../docs/nccl.md");

/// A row of the table: a symbol, and what is said of it.
#[derive(Clone, Debug)]
pub struct Row {
    pub symbol: String,
    /// By [`Column`]: a state, and the function of a program that shows it.
    pub cells: [String; 3],
}

/// Where calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// On the host.
    Host,
    /// On devices.
    Devices,
    /// Beside a library that is named, which has what Antiphon lacks.
    Beside,
}

/// The rows of the page.
pub fn rows() -> Vec<Row> {
    let lines = PAGE.lines().filter(|line| line.starts_with("| `nccl"));
    let row = |line: &str| {
        let mut cells = line.split('|').map(|cell| cell.trim().to_owned()).skip(1);
        let mut next = || cells.next().unwrap_or_else(|| panic!("{line} is too short"));
        Row { symbol: next().replace('`', ""), cells: [next(), next(), next()] }
    };
    lines.map(row).collect()
}

/// A file in which programs write down what they called.
pub struct Shown(PathBuf);

impl Shown {
    /// A new one, in a folder.
    pub fn at(folder: &Path) -> Self {
        let path = folder.join("shown");
        let _ = fs::remove_file(&path);
        Shown(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What is in it: an outcome, a symbol, and the function that called it.
    pub fn read(&self) -> BTreeSet<[String; 3]> {
        let text = fs::read_to_string(&self.0).expect("what the programs wrote down");
        let line = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            <[String; 3]>::try_from(words).unwrap_or_else(|words| panic!("{words:?} are no call"))
        };
        text.lines().map(line).collect()
    }
}

/// What a column says that the calls do not show.
pub fn unshown(rows: &[Row], column: Column, shown: &BTreeSet<[String; 3]>) -> Vec<String> {
    assert!(!rows.is_empty(), "the page has no table");
    let was = |outcome: &str, symbol: &str, by: &str| {
        shown.contains(&[outcome, symbol, by].map(str::to_owned))
    };
    let ever = |outcome: &str, symbol: &str| {
        shown.iter().any(|[known, of, _]| known == outcome && of == symbol)
    };
    let mut unshown = Vec::new();
    for Row { symbol, cells } in rows {
        let cell = &cells[column as usize];
        let (state, by) = cell.split_once(", `").unwrap_or((cell, ""));
        let by = by.trim_end_matches('`');
        let is_shown = match state {
            "works" => was("works", symbol, by),
            "refuses" => was("refuses", symbol, by) && !ever("works", symbol),
            // The library has got it, and the program what it makes of it.
            "forwards" => was("forwards", symbol, "real") && was("works", symbol, by),
            "" if column == Column::Beside => !ever("forwards", symbol),
            _ => false,
        };
        if !is_shown {
            unshown.push(format!("{symbol}, {column:?}: no call shows `{cell}`"));
        }
    }
    unshown
}
