//! The names of the plan format: how each is read. (How they are written is with the types in the model.)

use super::typed::{FromJson, Trail, name};
use crate::model::{Buffer, ChannelType, Collective, OpKind, Protocol};
use antiphon_types::ReduceOp;
use serde::Deserializer;

macro_rules! named {
    ($($type:ty, $allowed:literal, $from_name:expr;)*) => {$(
        impl<'de> FromJson<'de> for $type {
            fn from_json<D: Deserializer<'de>>(json: D, _: &Trail) -> Result<Self, D::Error> {
                name(json, $allowed, $from_name)
            }
        }
    )*};
}

named! {
    Collective, "the name of a collective", |text| Some(Collective::from_name(text));
    // The reference executor asks only whether the name is `LL`.
    Protocol, "`Simple` or `LL`", |text| Some(if text == "LL" { Protocol::LL } else { Protocol::Simple });
    Buffer, "`i`, `o` or `s`", |text| Buffer::ALL.into_iter().find(|buffer| buffer.name() == text);
    ChannelType, "`memory`, `port`, `switch` or `none`", channel_type;
    OpKind, "the name of an operation of the plan format", OpKind::from_name;
    ReduceOp, "`sum`, `prod`, `min` or `max`", |text| text.parse().ok();
}

/// The channel types under their names of all dialects.
pub(super) fn channel_type(text: &str) -> Option<ChannelType> {
    Some(match text {
        "memory" | "sm" => ChannelType::Memory,
        "port" | "proxy" => ChannelType::Port,
        "switch" | "nvls" => ChannelType::Switch,
        "none" => ChannelType::None,
        _ => return None,
    })
}
