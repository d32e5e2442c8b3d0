//! The timeline as a figure for papers: vector boxes and arrows, in colours that print.

use super::scene::{Lane, Scene};
use super::words::{bytes, duration, escape, place};
use super::{Clock, Family, Picture, faults};
use crate::simulate::OpSpan;
use std::fmt::Write;

/// Units left of the lanes.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
/// Units above the lanes: title, subtitle, axis.
const TOP: f64 = 78.0;
const LANE: f64 = 26.0;
const BOX: f64 = 18.0;
/// Units between the lanes of two ranks.
const RANK_GAP: f64 = 7.0;
/// A figure is this wide, or wide enough for the names of what the busiest lane does.
const WIDTHS: (f64, f64) = (960.0, 6000.0);
const PER_BOX: f64 = 44.0;
/// Width of a letter of a box's label.
const LETTER: f64 = 5.3;

/// Fill and edge of each family, in the order of [`Family::ALL`].
const COLOURS: [(&str, &str); Family::ALL.len()] = [
    ("#9ec5f2", "#2a68b0"),
    ("#f8c98b", "#b06a0c"),
    ("#9bdcc0", "#1d7f5b"),
    ("#d5bdf0", "#7443b0"),
    ("#d4dae3", "#667085"),
    ("#f3b6d3", "#ad3672"),
    ("#eef1f5", "#98a2b3"),
];

/// A figure of the picture: an SVG file, whatever the size of the plan.
pub fn svg(picture: &Picture<'_>) -> String {
    let scene = Scene::new(picture);
    let mut figure = Figure::new(picture, &scene);
    figure.lanes();
    figure.axis();
    figure.iterations();
    figure.boxes();
    figure.arrows();
    figure.faults();
    figure.finish()
}

struct Figure<'a> {
    picture: &'a Picture<'a>,
    scene: &'a Scene<'a>,
    width: f64,
    /// Units of one second.
    scale: f64,
    end: f64,
    /// Upper edge of each lane.
    tops: Vec<f64>,
    bottom: f64,
    body: String,
}

impl<'a> Figure<'a> {
    fn new(picture: &'a Picture<'a>, scene: &'a Scene<'a>) -> Self {
        let busiest = scene.lanes.iter().map(|lane| lane.spans.1 - lane.spans.0).max();
        let wanted = LEFT + RIGHT + f64::from(busiest.unwrap_or(0)) * PER_BOX;
        let width = wanted.clamp(WIDTHS.0, WIDTHS.1);
        let ends = scene.spans.iter().map(|(_, span)| span.end);
        let end = ends.fold(picture.timeline.end, f64::max);
        let scale = if end > 0.0 && end.is_finite() { (width - LEFT - RIGHT) / end } else { 0.0 };
        let mut tops = Vec::with_capacity(scene.lanes.len());
        let mut y = TOP;
        for (position, lane) in scene.lanes.iter().enumerate() {
            if position > 0 && lane.tb == 0 {
                y += RANK_GAP;
            }
            tops.push(y);
            y += LANE;
        }
        Figure { picture, scene, width, scale, end, tops, bottom: y, body: String::new() }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds * self.scale
    }

    fn lane_spans(&self, lane: &Lane<'_>) -> &'a [(u32, &'a OpSpan)] {
        &self.scene.spans[lane.spans.0 as usize..lane.spans.1 as usize]
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to memory does not fail");
        self.body.push('\n');
    }

    fn lanes(&mut self) {
        let right = self.width - RIGHT;
        for (position, lane) in self.scene.lanes.iter().enumerate() {
            let (top, middle) = (self.tops[position], self.tops[position] + LANE / 2.0 + 3.5);
            if lane.tb == 0 {
                let Lane { rank, .. } = lane;
                self.put(format_args!(
                    r#"<text class="rank" x="8" y="{middle:.1}">rank {rank}</text>"#
                ));
            }
            let Lane { tb, .. } = lane;
            let x = LEFT - 10.0;
            self.put(format_args!(
                r#"<text class="tb" x="{x}" y="{middle:.1}">tb {tb}</text><rect class="lane" x="{LEFT}" y="{top:.1}" width="{:.1}" height="{LANE}"/>"#,
                right - LEFT
            ));
        }
    }

    fn axis(&mut self) {
        let (bottom, y) = (self.bottom, TOP - 8.0);
        if !matches!(self.picture.clock, Clock::Simulated(_)) || self.scale <= 0.0 {
            return;
        }
        let step = round_step(self.end / (self.width / 110.0));
        for number in 0..=(self.end / step) as u32 {
            let time = f64::from(number) * step;
            let (x, label) = (self.x(time), duration(time));
            self.put(format_args!(
                r#"<path class="grid" d="M{x:.1} {:.1}V{bottom:.1}"/><text class="tick" x="{x:.1}" y="{y:.1}">{label}</text>"#,
                TOP - 4.0
            ));
        }
    }

    /// A band behind each iteration of a pipeline.
    fn iterations(&mut self) {
        for (position, lane) in self.scene.lanes.iter().enumerate() {
            let top = self.tops[position] + 0.5;
            let key = |&(op, span): &(u32, &OpSpan)| {
                let named = self.scene.ops[op as usize];
                named.inner.map(|_| (named.at, span.iteration))
            };
            let spans = self.lane_spans(lane);
            for run in spans.chunk_by(|a, b| key(a) == key(b)) {
                let Some((_, iteration)) = key(&run[0]) else { continue };
                let (from, to) = (self.x(run[0].1.start), self.x(run[run.len() - 1].1.end));
                let class = if iteration % 2 == 0 { "even" } else { "odd" };
                let width = to - from;
                self.put(format_args!(
                    r#"<rect class="{class}" x="{from:.2}" y="{top:.1}" width="{width:.2}" height="{:.1}"><title>iteration {iteration}</title></rect>"#,
                    LANE - 1.0
                ));
            }
        }
    }

    fn boxes(&mut self) {
        for (position, lane) in self.scene.lanes.iter().enumerate() {
            let y = self.tops[position] + (LANE - BOX) / 2.0;
            for &(number, span) in self.lane_spans(lane) {
                let named = self.scene.ops[number as usize];
                let family = Family::of(named.op) as usize;
                let (start, ready, end) =
                    (self.x(span.start), self.x(span.ready), self.x(span.end));
                let kind = named.op.kind.name();
                let path = place(lane.rank, lane.tb, named.at, named.inner);
                let moved =
                    if span.bytes > 0 { format!(", {}", bytes(span.bytes)) } else { String::new() };
                self.put(format_args!(
                    r#"<g class="f{family}"><title>{kind} {path}{moved}</title>"#
                ));
                if ready - start > 0.05 {
                    self.put(format_args!(
                        r#"<rect class="wait" x="{start:.2}" y="{:.1}" width="{:.2}" height="{:.1}"/>"#,
                        y + 3.0,
                        ready - start,
                        BOX - 6.0
                    ));
                }
                let width = (end - ready).max(0.3);
                self.put(format_args!(
                    r#"<rect class="run" x="{ready:.2}" y="{y:.1}" width="{width:.2}" height="{BOX}" rx="1.5"/>"#
                ));
                if width > LETTER * kind.len() as f64 + 3.0 {
                    let (x, y) = (ready + width / 2.0, y + BOX / 2.0 + 3.2);
                    self.put(format_args!(r#"<text x="{x:.2}" y="{y:.1}">{kind}</text>"#));
                }
                self.body.push_str("</g>\n");
            }
        }
    }

    fn arrows(&mut self) {
        let lane_of = |at: u32| {
            let site = self.scene.spans[at as usize].1.site;
            self.scene.lane(site.rank, site.tb).unwrap_or(0) as usize
        };
        let arrows: Vec<_> = self
            .scene
            .arrows
            .iter()
            .map(|&(from, to)| {
                let ends =
                    (self.scene.spans[from as usize].1.end, self.scene.spans[to as usize].1.ready);
                (lane_of(from), lane_of(to), ends)
            })
            .collect();
        // Many arrows are a texture: thin enough that boxes show through.
        let class = match arrows.len() {
            0..=60 => "few",
            61..=400 => "some",
            _ => "many",
        };
        self.put(format_args!(r#"<g class="arrows {class}">"#));
        for (from, to, (left, ready)) in arrows {
            let down = self.tops[to] >= self.tops[from];
            let edge = |lane: usize, lower: bool| {
                let margin = (LANE - BOX) / 2.0;
                self.tops[lane] + if lower { LANE - margin } else { margin }
            };
            let (y0, y1) = (edge(from, down), edge(to, !down));
            let (x0, x1) = (self.x(left.min(ready)), self.x(ready));
            let bend = ((y1 - y0).abs() * 0.45).min(40.0) * if down { 1.0 } else { -1.0 };
            self.put(format_args!(
                r#"<path d="M{x0:.1} {y0:.1}C{x0:.1} {:.1} {x1:.1} {:.1} {x1:.1} {y1:.1}"/>"#,
                y0 + bend,
                y1 - bend
            ));
        }
        self.body.push_str("</g>\n");
    }

    /// Faults in place, numbered, and as text below.
    fn faults(&mut self) {
        let Some(report) = self.picture.report else { return };
        let found = faults::faults(self.scene, report);
        for (number, fault) in (1..).zip(&found) {
            let mut middles = Vec::with_capacity(fault.marks.len());
            for &(op, iteration, _) in &fault.marks {
                let Some((x, y, width)) = self.box_of(op, iteration) else {
                    middles.push(None);
                    continue;
                };
                middles.push(Some((x + width / 2.0, y + BOX / 2.0)));
                self.put(format_args!(
                    r#"<rect class="fault" x="{:.2}" y="{:.1}" width="{:.2}" height="{:.1}" rx="3"/><circle class="badge" cx="{:.2}" cy="{:.1}" r="6.5"/><text class="number" x="{:.2}" y="{:.1}">{number}</text>"#,
                    x - 2.0,
                    y - 2.0,
                    width + 4.0,
                    BOX + 4.0,
                    x + width,
                    y,
                    x + width,
                    y + 3.0
                ));
            }
            for &(from, to) in &fault.edges {
                let ends = middles[from as usize].zip(middles[to as usize]);
                if let Some(((x0, y0), (x1, y1))) = ends {
                    self.put(format_args!(
                        r#"<path class="conflict" d="M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}"/>"#
                    ));
                }
            }
        }
        self.bottom += 6.0;
        for (number, fault) in (1..).zip(&found) {
            for (line, text) in fault.text.lines().enumerate() {
                self.bottom += 14.0;
                let (y, text) = (self.bottom, escape(text.trim()));
                let lead = if line == 0 { format!("{number}. ") } else { "\u{2003}".to_owned() };
                self.put(format_args!(
                    r#"<text class="finding" x="8" y="{y:.1}">{lead}{text}</text>"#
                ));
            }
        }
    }

    /// Where an iteration of an operation is drawn: the first one, if that one never ran.
    fn box_of(&self, op: u32, iteration: u64) -> Option<(f64, f64, f64)> {
        let after = self.scene.lanes.partition_point(|lane| lane.first_op <= op);
        let position = after.checked_sub(1)?;
        let of_op = || {
            let spans = self.lane_spans(&self.scene.lanes[position]).iter();
            spans.filter(|(number, _)| *number == op).map(|(_, span)| *span)
        };
        let span = of_op().find(|span| span.iteration == iteration).or_else(|| of_op().next())?;
        let y = self.tops[position] + (LANE - BOX) / 2.0;
        let (start, end) = (self.x(span.start), self.x(span.end));
        Some((start, y, (end - start).max(0.3)))
    }

    fn finish(self) -> String {
        let Figure { picture, scene, width, mut bottom, body, .. } = self;
        let plan = picture.plan;
        let name = escape(&plan.name);
        let time = match picture.clock {
            Clock::Simulated(topology) => {
                let time = duration(picture.timeline.end);
                format!("{time} predicted on {}", escape(topology))
            }
            Clock::Order(why) => format!("order only: {}", escape(why)),
        };
        let facts = format!(
            "{}, {} ranks, {} in, {} out; {time}",
            escape(plan.collective.name()),
            plan.gpus.len(),
            bytes(picture.sizes.input),
            bytes(picture.sizes.output)
        );
        let mut legend = String::new();
        let mut x = LEFT;
        bottom += 22.0;
        for family in Family::ALL {
            let number = family as usize;
            let used = family != Family::Loop
                && scene.ops.iter().any(|named| Family::of(named.op) == family);
            if used {
                let _ = writeln!(
                    legend,
                    r#"<g class="f{number}"><rect class="run" x="{x:.1}" y="{:.1}" width="14" height="10" rx="1.5"/></g><text class="key" x="{:.1}" y="{bottom:.1}">{}</text>"#,
                    bottom - 9.0,
                    x + 19.0,
                    family.name()
                );
                x += 34.0 + 6.0 * family.name().len() as f64;
            }
        }
        let _ = writeln!(
            legend,
            r#"<g class="f4"><rect class="wait" x="{x:.1}" y="{:.1}" width="14" height="8"/></g><text class="key" x="{:.1}" y="{bottom:.1}">waiting</text>"#,
            bottom - 8.0,
            x + 19.0
        );
        let height = bottom + 14.0;
        let mut figure = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{name}">
<title>{name}</title>
<defs><marker id="head" viewBox="0 0 6 6" refX="5.4" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path d="M0 0.6L6 3L0 5.4z" fill="#344054"/></marker>
"##
        );
        for (number, (_, edge)) in COLOURS.iter().enumerate() {
            let _ = writeln!(
                figure,
                r##"<pattern id="h{number}" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" fill="#fff"/><path d="M0 0V4" stroke="{edge}" stroke-width="1.4" stroke-opacity=".55"/></pattern>"##
            );
        }
        figure.push_str("</defs>\n<style>\n");
        figure.push_str(STYLE);
        for (number, (fill, edge)) in COLOURS.iter().enumerate() {
            let _ = writeln!(
                figure,
                ".f{number} .run{{fill:{fill};stroke:{edge}}}.f{number} .wait{{fill:url(#h{number});stroke:{edge}}}"
            );
        }
        let _ = write!(
            figure,
            r##"</style>
<rect width="100%" height="100%" fill="#fff"/>
<text class="title" x="8" y="24">{name}</text>
<text class="facts" x="8" y="42">{facts}</text>
{body}{legend}</svg>
"##
        );
        figure
    }
}

const STYLE: &str = "text{font:9px Helvetica,Arial,sans-serif;fill:#1d2939;text-anchor:middle}
.title{font-size:15px;font-weight:700;text-anchor:start}.facts,.finding{font-size:11px;text-anchor:start;fill:#475467}
.finding{fill:#b42318}.rank{font-size:11px;font-weight:700;text-anchor:start}.tb{font-size:10px;text-anchor:end;fill:#667085}
.tick{font-size:9.5px;fill:#667085}.key{font-size:10px;text-anchor:start}.lane{fill:#f7f8fa}.grid{stroke:#e4e7ec;stroke-width:.7}
.even{fill:#e9eef6}.odd{fill:#dbe4f0}.run{stroke-width:.7}.wait{stroke-width:.4;stroke-opacity:.6}
.arrows path{fill:none;stroke:#344054}.few path{stroke-width:.8;stroke-opacity:.75;marker-end:url(#head)}
.some path{stroke-width:.6;stroke-opacity:.4;marker-end:url(#head)}
.many path{stroke-width:.35;stroke-opacity:.18}
.fault{fill:none;stroke:#d92d20;stroke-width:1.8}.badge{fill:#d92d20}.number{fill:#fff;font-weight:700}
.conflict{fill:none;stroke:#d92d20;stroke-width:1.4;stroke-dasharray:4 3}
";

/// The next larger of 1, 2 and 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let wanted = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.999);
    wanted.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_the_axis_are_round() {
        for (least, step) in [(1.0, 1.0), (1.2, 2.0), (3e-6, 5e-6), (6e-3, 1e-2), (0.2, 0.2)] {
            assert!(
                (round_step(least) / step - 1.0).abs() < 1e-9,
                "{least}: {}",
                round_step(least)
            );
        }
    }
}
