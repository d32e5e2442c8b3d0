//! Sections of documents that a task writes: what is measured stands between two marks, the rest is people's.

use std::fs;
use std::path::Path;

use crate::{Error, Result, repo};

/// Writes `section` between the marks named `name` in the document at `path`, relative to the workspace root. A document
/// without marks gets them at its end; without a document, there will be one.
pub fn write(path: &Path, name: &str, section: &str) -> Result<()> {
    let path = repo::root().join(path);
    let old = if path.exists() {
        fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?
    } else {
        String::new()
    };
    let new = replace(&old, name, section)?;
    fs::write(&path, new).map_err(Error::io(format!("write {}", path.display())))
}

/// The section between the marks named `name` in the document at `path`, relative to the workspace root.
///
/// # Errors
/// A document that cannot be read, or has no such marks.
pub fn read(path: &Path, name: &str) -> Result<String> {
    let path = repo::root().join(path);
    let document =
        fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?;
    let (begin, end) = marks(name);
    let section = document.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let section = section.map(|(section, _)| section.trim().to_owned());
    section.ok_or_else(|| {
        let path = path.display();
        Error::message(format!(
            "cannot read a table of {path}: it needs `{begin}` and then `{end}`"
        ))
    })
}

/// Where a section begins and ends.
fn marks(name: &str) -> (String, String) {
    (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"))
}

fn replace(document: &str, name: &str, section: &str) -> Result<String> {
    let (begin, end) = marks(name);
    let marked = format!("{begin}\n{}\n{end}", section.trim_end());
    match (document.find(&begin), document.find(&end)) {
        (Some(first), Some(last)) if first < last => {
            Ok([&document[..first], &marked, &document[last + end.len()..]].concat())
        }
        (None, None) if document.trim().is_empty() => Ok(format!("{marked}\n")),
        (None, None) => Ok(format!("{}\n\n{marked}\n", document.trim_end())),
        _ => Err(Error::message(format!(
            "cannot write the tables: the document needs `{begin}` and then `{end}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_or_added() {
        let (begin, end) = ("<!-- x: begin -->", "<!-- x: end -->");
        let document = format!("# Title\n\n{begin}\nold\n{end}\n\nkept\n");
        let written = replace(&document, "x", "new\n").unwrap();
        assert_eq!(written, format!("# Title\n\n{begin}\nnew\n{end}\n\nkept\n"));
        assert_eq!(replace(&written, "x", "new").unwrap(), written);
        assert_eq!(replace("# T\n", "x", "y").unwrap(), format!("# T\n\n{begin}\ny\n{end}\n"));
        assert!(replace(&format!("{end}{begin}"), "x", "y").is_err());
        assert!(replace(begin, "x", "y").is_err());
    }
}
