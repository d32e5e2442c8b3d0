//! What chunks hold, symbolically: chunks of inputs and sums of them.

use super::collective::Origin;
use std::fmt;

/// What a chunk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The chunks of inputs of which it is the reduction, in ascending order, each as often as it went in.
    pub terms: Vec<Origin>,
    /// Whether there are more, left out.
    pub more: bool,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Origin { rank, index }) in self.terms.iter().enumerate() {
            let plus = if position == 0 { "" } else { " + " };
            write!(f, "{plus}({rank}, {index})")?;
        }
        if self.more { f.write_str(" + …") } else { Ok(()) }
    }
}

/// A content by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u32);

/// All contents that came up.
#[derive(Debug, Default)]
pub struct Contents(Vec<Node>);

#[derive(Clone, Copy, Debug)]
enum Node {
    Input(Origin),
    Sum(Id, Id),
}

impl Contents {
    /// A chunk of an input.
    pub fn input(&mut self, origin: Origin) -> Id {
        self.add(Node::Input(origin))
    }

    /// The sum of two contents.
    pub fn sum(&mut self, first: Id, second: Id) -> Id {
        self.add(Node::Sum(first, second))
    }

    fn add(&mut self, node: Node) -> Id {
        self.0.push(node);
        Id(self.0.len() as u32 - 1)
    }

    /// What a content is, up to so many terms: a sum of sums of the same thing doubles with every line of a program.
    pub fn resolve(&self, id: Id, most: usize) -> Content {
        let (mut terms, mut open) = (Vec::new(), vec![id]);
        while let Some(Id(next)) = open.pop() {
            if terms.len() == most {
                terms.sort_unstable();
                return Content { terms, more: true };
            }
            match self.0[next as usize] {
                Node::Input(origin) => terms.push(origin),
                Node::Sum(first, second) => open.extend([first, second]),
            }
        }
        terms.sort_unstable();
        Content { terms, more: false }
    }
}
