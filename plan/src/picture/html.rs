//! The page: one file that loads nothing.

use super::words::escape;
use super::{Picture, data};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// In the order in which the page runs them.
const SCRIPTS: [&str; 7] = [
    include_str!("page/model.js"),
    include_str!("page/view.js"),
    include_str!("page/draw.js"),
    include_str!("page/panel.js"),
    include_str!("page/input.js"),
    include_str!("page/start.js"),
    include_str!("page/selftest.js"),
];

/// A page that shows the picture: one HTML file that needs no network.
///
/// What a plan's author wrote (names, texts) is data in it, never markup or script.
pub fn html(picture: &Picture<'_>) -> String {
    let script = SCRIPTS.concat();
    let title = escape(&picture.plan.name);
    let data = data::json(picture);
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + script.len() + data.len());
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(match name {
            "title" => &title,
            "style" => STYLE,
            "script" => &script,
            "data" => &data,
            _ => "",
        });
        rest = after;
    }
    page.push_str(rest);
    page
}
