//! Places inside a plan file, for messages: `gpus[3].threadblocks[2].ops[17].dst_buff[0]`.

use std::fmt;

/// A way from the top of a plan to one of its values, spelled with the keys of the plan format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    steps: Vec<Step>,
}

/// One step of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The value of this key of an object.
    Key(&'static str),
    /// The element at this position of a list.
    Index(usize),
}

impl Place {
    /// The whole file.
    pub const fn top() -> Self {
        Place { steps: Vec::new() }
    }

    /// The value of `key` at this place.
    #[must_use]
    pub fn key(mut self, key: &'static str) -> Self {
        self.steps.push(Step::Key(key));
        self
    }

    /// Element `position` of the list at this place.
    #[must_use]
    pub fn index(mut self, position: usize) -> Self {
        self.steps.push(Step::Index(position));
        self
    }

    /// Element `position` of the list `key` at this place.
    #[must_use]
    pub fn at(self, key: &'static str, position: usize) -> Self {
        self.key(key).index(position)
    }

    /// The steps from the top.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The place reached from the top by the steps of `upward`, last step first.
    pub(crate) fn from_upward(mut upward: Vec<Step>) -> Self {
        upward.reverse();
        Place { steps: upward }
    }

    /// This place, seen from `outer`.
    pub(crate) fn under(self, mut outer: Place) -> Self {
        outer.steps.extend(self.steps);
        outer
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("the top level");
        }
        for (position, step) in self.steps.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_a_json_path() {
        let op = Place::top().at("gpus", 3).at("threadblocks", 2).at("ops", 17);
        assert_eq!(op.to_string(), "gpus[3].threadblocks[2].ops[17]");
        let side = Place::top().at("dst_buff", 0).under(op);
        assert_eq!(side.to_string(), "gpus[3].threadblocks[2].ops[17].dst_buff[0]");
        assert_eq!(Place::top().to_string(), "the top level");
    }
}
