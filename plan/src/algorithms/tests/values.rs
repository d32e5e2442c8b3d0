//! What memory cells hold: inputs, and sums of them in the order in which they were added.

use std::rc::Rc;

/// One input cell: launch, rank, cell.
pub type Term = (u32, usize, usize);
/// What a cell holds; `None` is rubbish.
pub type Value = Option<Rc<Sum>>;

/// A value that was computed.
#[derive(Debug, PartialEq)]
pub enum Sum {
    /// An input.
    Input(Term),
    /// Two values or more, added one after the other to the first.
    Of(Vec<Rc<Sum>>),
}

/// An input.
pub fn input(term: Term) -> Value {
    Some(Rc::new(Sum::Input(term)))
}

/// One value added to another. A sum that is added as a whole stays one: it would round differently.
pub fn add(sum: Value, next: Value) -> Value {
    let (sum, next) = (sum?, next?);
    let mut terms = match &*sum {
        Sum::Input(_) => vec![sum.clone()],
        Sum::Of(terms) => terms.clone(),
    };
    terms.push(next);
    Some(Rc::new(Sum::Of(terms)))
}

/// The values added one after the other.
pub fn sum(values: impl IntoIterator<Item = Value>) -> Value {
    values.into_iter().reduce(add).flatten()
}

/// Whether the two are the same number, because they differ at most in which of two numbers is added to the other.
/// The packet reduction of the format adds its raw operand last, but where there are two it serves all the same.
pub fn commutes(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same(std::slice::from_ref(a), std::slice::from_ref(b)),
        _ => false,
    }
}

fn same(a: Terms<'_>, b: Terms<'_>) -> bool {
    match (last_step(a), last_step(b)) {
        (Ok(a), Ok(b)) => a == b,
        (Err((a, c)), Err((b, d))) => (same(a, b) && same(c, d)) || (same(a, d) && same(c, b)),
        _ => false,
    }
}

/// Values that were added one after the other.
type Terms<'a> = &'a [Rc<Sum>];

/// The input that a value is, or the two values that were added last.
fn last_step(value: Terms<'_>) -> Result<Term, (Terms<'_>, Terms<'_>)> {
    match value {
        [only] => match &**only {
            Sum::Input(term) => Ok(*term),
            Sum::Of(terms) => last_step(terms),
        },
        more => Err(more.split_at(more.len() - 1)),
    }
}

#[test]
fn two_numbers_may_be_added_either_way_round_and_three_may_not() {
    let of = |rank| input((1, rank, 0));
    let [a, b, c] = [of(0), of(1), of(2)];
    let add = |a: &Value, b: &Value| add(a.clone(), b.clone());
    let cases = [
        (add(&a, &b), add(&b, &a), true),
        (add(&add(&a, &b), &c), add(&c, &add(&b, &a)), true),
        (add(&add(&a, &b), &c), add(&a, &add(&b, &c)), false),
        (add(&add(&a, &b), &c), add(&add(&a, &c), &b), false),
        (add(&a, &b), a.clone(), false),
        (add(&a, &None), add(&a, &None), false),
    ];
    for (one, other, expected) in cases {
        assert_eq!(commutes(&one, &other), expected, "{one:?} {other:?}");
    }
    assert_eq!(sum([a.clone(), b.clone(), c.clone()]), add(&add(&a, &b), &c));
    assert_ne!(add(&a, &add(&b, &c)), add(&add(&a, &b), &c));
}
