//! Typed reading that knows where it is.
//!
//! serde tells what is wrong and at which line and column, but not under which key. The readers of this crate
//! therefore go through [`FromJson`]: a `Deserialize` with a [`Trail`] at hand. On the way out of an error, each
//! object and list adds the step that led to it; without an error the trail costs nothing.

use crate::model::Buffer;
use crate::place::{Place, Step};
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

/// The steps from an error up to the top, and what readers of parts leave for the readers of the whole.
#[derive(Default)]
pub(super) struct Trail {
    steps: RefCell<Vec<Step>>,
    notes: RefCell<Vec<Note>>,
}

/// The buffer that an operation says its switch channel has; none where it does not say. One for each `glre`, in
/// the order in which they end in the file.
pub(super) type Note = Option<Buffer>;

impl Trail {
    /// Notes that the value in which an error was met lies behind `step`.
    #[cold]
    pub(super) fn leave(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }

    /// Notes the steps of `place`, which lies below everything noted afterwards.
    #[cold]
    pub(super) fn leave_all(&self, place: &Place) {
        self.steps.borrow_mut().extend(place.steps().iter().rev());
    }

    /// Leaves a note.
    pub(super) fn note(&self, note: Note) {
        self.notes.borrow_mut().push(note);
    }

    /// Takes the notes left since the last time.
    pub(super) fn take_notes(&self) -> Vec<Note> {
        self.notes.take()
    }

    /// The place of the error.
    pub(super) fn into_place(self) -> Place {
        Place::from_upward(self.steps.into_inner())
    }
}

/// A value that can be read from JSON.
pub(super) trait FromJson<'de>: Sized {
    /// Reads one value; on an error `trail` holds the steps from here to the fault.
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error>;
}

/// [`FromJson`] as serde wants it.
pub(super) struct Seed<'t, T>(&'t Trail, PhantomData<T>);

impl<'t, T> Seed<'t, T> {
    pub(super) fn new(trail: &'t Trail) -> Self {
        Seed(trail, PhantomData)
    }
}

impl<'de, T: FromJson<'de>> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<T, D::Error> {
        T::from_json(json, self.0)
    }
}

/// The error for a required key that the object lacks.
pub(super) fn missing<E: Error>(key: &str) -> E {
    E::custom(format_args!("missing key `{key}`"))
}

/// Reads the value of `key`, which must not have been read before.
pub(super) fn once<'de, T: FromJson<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    key: &'static str,
    map: &mut A,
    trail: &Trail,
) -> Result<(), A::Error> {
    let value = value(slot.is_some(), key, map, trail)?;
    *slot = Some(value);
    Ok(())
}

/// Reads the value of `key`, unless it has been read before.
fn value<'de, T: FromJson<'de>, A: MapAccess<'de>>(
    again: bool,
    key: &'static str,
    map: &mut A,
    trail: &Trail,
) -> Result<T, A::Error> {
    let value = match again {
        true => Err(A::Error::custom("saw this key twice in its object, allowed once")),
        false => map.next_value_seed(Seed::new(trail)),
    };
    value.inspect_err(|_| trail.leave(Step::Key(key)))
}

/// The fields of an object that have been read into place, one bit each.
#[derive(Default)]
pub(super) struct Seen(u32);

impl Seen {
    /// Reads the value of `key` into field number `field`, which must not have been read before.
    pub(super) fn read<'de, T: FromJson<'de>, A: MapAccess<'de>>(
        &mut self,
        field: u32,
        slot: &mut T,
        (key, map, trail): (&'static str, &mut A, &Trail),
    ) -> Result<(), A::Error> {
        *slot = value(self.0 & (1 << field) != 0, key, map, trail)?;
        self.0 |= 1 << field;
        Ok(())
    }
}

/// The keys of an object that its reader does not know.
#[derive(Default)]
pub(super) struct Unknown<'de>(BTreeSet<Cow<'de, str>>);

impl<'de> Unknown<'de> {
    /// Skips the value of an unknown key, which must not have been seen before.
    pub(super) fn skip<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        if let Some(twice) = self.0.get(&key) {
            return Err(A::Error::custom(format_args!(
                "saw the key `{twice}` twice, allowed once"
            )));
        }
        self.0.insert(key);
        map.next_value::<IgnoredAny>().map(drop)
    }
}

/// Declares a structure that is read from an object: `field: Type = "key"`, then `or default` if the key may be
/// absent. Keys without a field are skipped; a key that appears twice is an error.
macro_rules! object {
    ($(#[$meta:meta])* $vis:vis $name:ident {
        $($(#[$fmeta:meta])* $field:ident : $type:ty = $key:literal $(or $default:expr)?,)*
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$fmeta])* $vis $field: $type,)* }

        impl<'de> $crate::json::typed::FromJson<'de> for $name {
            fn from_json<D: serde::Deserializer<'de>>(
                json: D,
                trail: &$crate::json::typed::Trail,
            ) -> Result<Self, D::Error> {
                struct Fields<'t>(&'t $crate::json::typed::Trail);
                impl<'de> serde::de::Visitor<'de> for Fields<'_> {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        use $crate::json::typed;
                        $(let mut $field: Option<$type> = None;)*
                        let mut unknown = typed::Unknown::default();
                        while let Some(key) = map.next_key_seed(typed::KeySeed)? {
                            match &*key {
                                $($key => typed::once(&mut $field, $key, &mut map, self.0)?,)*
                                _ => unknown.skip(key, &mut map)?,
                            }
                        }
                        Ok($name { $($field: typed::object!(@value $field $key $(or $default)?),)* })
                    }
                }
                json.deserialize_map(Fields(trail))
            }
        }
    };
    (@value $field:ident $key:literal) => { $field.ok_or_else(|| typed::missing($key))? };
    (@value $field:ident $key:literal or $default:expr) => { $field.unwrap_or_else(|| $default) };
}
pub(super) use object;

/// Reads a key, borrowed from the text where it has no escapes.
pub(super) struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_identifier(Text { expected: "a key" })
    }
}

/// Visits a string.
struct Text {
    expected: &'static str,
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Reads one of a set of names.
pub(super) fn name<'de, T, D: Deserializer<'de>>(
    json: D,
    allowed: &'static str,
    from_name: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let text = json.deserialize_str(Text { expected: allowed })?;
    from_name(&text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &allowed))
}

impl<'de> FromJson<'de> for String {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        json.deserialize_str(Text { expected: "a string" }).map(Cow::into_owned)
    }
}

impl<'de> FromJson<'de> for bool {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        serde::Deserialize::deserialize(json)
    }
}

/// The integer that a number with a point or an exponent is, as programs write that divide. The number comes within a few roundings
/// of the text's: so far below 2^53 these make a fraction of an integer, and never another one.
#[allow(clippy::cast_possible_truncation, reason = "it has no fraction, and fits")]
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 1_125_899_906_842_624.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

impl<'de> FromJson<'de> for u64 {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        struct Natural;
        impl Visitor<'_> for Natural {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from 0 to {}", u64::MAX)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
                Ok(value)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<u64, E> {
                whole(value)
                    .and_then(|whole| whole.try_into().ok())
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
            }
        }
        json.deserialize_u64(Natural)
    }
}

impl<'de> FromJson<'de> for i64 {
    fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = i64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an integer from {} to {}", i64::MIN, i64::MAX)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
                Ok(value)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
                value.try_into().map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
                whole(value).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
            }
        }
        json.deserialize_i64(Whole)
    }
}

impl<'de, T: FromJson<'de>> FromJson<'de> for Option<T> {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        T::from_json(json, trail).map(Some)
    }
}

impl<'de, T: FromJson<'de>> FromJson<'de> for Vec<T> {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        struct List<'t, T>(&'t Trail, PhantomData<T>);
        impl<'de, T: FromJson<'de>> Visitor<'de> for List<'_, T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list
                    .next_element_seed(Seed::new(self.0))
                    .inspect_err(|_| self.0.leave(Step::Index(items.len())))?
                {
                    items.push(item);
                }
                Ok(items)
            }
        }
        json.deserialize_seq(List(trail, PhantomData))
    }
}
