//! What repeats becomes a loop, so that source and compile time stay bounded.

use crate::skeleton::{Code, Item};

/// The longest run of nodes that is looked for as the body of a loop.
const LONGEST: usize = 24;

/// Steps, with what repeats folded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// One step, with the number of its operands.
    Step(Code, u32),
    /// Steps that are run once for each window of a pipeline.
    Pipeline(Vec<Node>),
    /// A body that is run so many times, each time with the operands that follow.
    Times(u32, Vec<Node>),
}

impl Node {
    /// How many operands it takes.
    pub fn operands(&self) -> u32 {
        match self {
            Node::Step(_, operands) => *operands,
            Node::Pipeline(body) => 3 + body.iter().map(Node::operands).sum::<u32>(),
            Node::Times(times, body) => times * body.iter().map(Node::operands).sum::<u32>(),
        }
    }

    /// How many steps stand in a text for it.
    pub fn steps(&self) -> usize {
        match self {
            Node::Step(..) => 1,
            Node::Pipeline(body) | Node::Times(_, body) => body.iter().map(Node::steps).sum(),
        }
    }
}

/// Folds the items of a block, until nothing repeats any more.
pub(crate) fn fold(items: &[Item]) -> Vec<Node> {
    let nodes = items.iter().map(|item| match item {
        Item::Step(code, operands) => Node::Step(code.clone(), *operands),
        Item::Pipeline(body) => Node::Pipeline(fold(body)),
    });
    let mut nodes: Vec<Node> = nodes.collect();
    loop {
        let folded = once(&nodes);
        if folded.len() == nodes.len() {
            return nodes;
        }
        nodes = folded;
    }
}

/// Replaces runs of equal bodies, from the front on, by loops.
fn once(nodes: &[Node]) -> Vec<Node> {
    let mut folded = Vec::new();
    let mut rest = nodes;
    while !rest.is_empty() {
        let repeats = |period: usize| {
            let (body, after) = rest.split_at(period);
            let again = after.chunks_exact(period).take_while(|next| *next == body).count();
            (period, again + 1)
        };
        let best = (1..=LONGEST.min(rest.len() / 2))
            .map(repeats)
            .filter(|(_, times)| *times > 1)
            // The most that is saved; of equal ones the shortest body.
            .max_by_key(|&(period, times)| (period * (times - 1), std::cmp::Reverse(period)));
        let taken = match best {
            Some((period, times)) => {
                folded.push(Node::Times(times as u32, rest[..period].to_vec()));
                period * times
            }
            None => {
                folded.push(rest[0].clone());
                1
            }
        };
        rest = &rest[taken..];
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skeleton::Row;

    /// Steps named by letters.
    fn items(text: &str) -> Vec<Item> {
        let code = |letter: char| {
            Item::Step(Code::Row { row: Row::Acquires, count: letter as u32, first: 0 }, 2)
        };
        text.chars().map(code).collect()
    }

    fn show(nodes: &[Node]) -> String {
        let one = |node: &Node| match node {
            Node::Step(Code::Row { count, .. }, _) => char::from_u32(*count).unwrap().to_string(),
            Node::Step(..) => "?".to_owned(),
            Node::Pipeline(body) => format!("<{}>", show(body)),
            Node::Times(times, body) => format!("{times}({})", show(body)),
        };
        nodes.iter().map(one).collect()
    }

    #[test]
    fn what_repeats_is_folded() {
        for (text, expected) in [
            ("", ""),
            ("abc", "abc"),
            ("aa", "2(a)"),
            ("abab", "2(ab)"),
            ("xababay", "x2(ab)ay"),
            ("aaab", "3(a)b"),
            ("aabaabaab", "3(aab)"),
            ("abbbabbb", "2(abbb)"),
            ("aabb", "2(a)2(b)"),
        ] {
            let nodes = fold(&items(text));
            assert_eq!(show(&nodes), expected, "{text}");
            let operands: u32 = nodes.iter().map(Node::operands).sum();
            assert_eq!(operands, 2 * text.len() as u32, "{text}");
            let steps: usize = nodes.iter().map(Node::steps).sum();
            assert_eq!(steps, expected.chars().filter(char::is_ascii_lowercase).count(), "{text}");
        }
    }

    #[test]
    fn a_loop_of_loops_is_one() {
        let text = format!("s{}e", "abb".repeat(100));
        assert_eq!(show(&fold(&items(&text))), "s100(abb)e");
        let pipeline = [Item::Pipeline(items("abab")), Item::Pipeline(items("abab"))];
        assert_eq!(show(&fold(&pipeline)), "2(<2(ab)>)");
    }
}
