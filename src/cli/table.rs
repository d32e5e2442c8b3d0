//! The result table in the columns users of nccl-tests know, and the same as JSON.

use super::counts::Blocks;
use super::shape::{Shape, bus_factor};
use antiphon::plan::model::Collective;
use antiphon::{DataType, ReduceOp};
use serde::Serialize;

/// The result of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Bytes of the message.
    pub bytes: u64,
    /// Elements, counted as NCCL does.
    pub count: u64,
    /// Name of the element type.
    pub dtype: &'static str,
    /// Name of the reduction, or `none`.
    pub op: &'static str,
    /// Median time of an iteration in microseconds, an iteration lasting as long as its slowest rank.
    pub p50_us: f64,
    /// 99th percentile of the same.
    pub p99_us: f64,
    /// `bytes` by the median time, in 10^9 bytes a second.
    pub algbw_gbs: f64,
    /// The same, scaled to the data that must move per rank.
    pub busbw_gbs: f64,
    /// Wrong elements over all ranks and checked launches; `None` where nothing was checked.
    pub wrong: Option<u64>,
    /// The plan that ran.
    pub plan: String,
    /// Elements of each block that each rank sent, in plans with runtime sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_counts: Option<Vec<Vec<u64>>>,
    /// Elements of each block that each rank received, in plans with runtime sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_counts: Option<Vec<Vec<u64>>>,
}

/// What all rows of a run have in common.
#[derive(Clone, Debug)]
pub struct Heading {
    /// What the plan computes.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: DataType,
    /// The reduction, where there is one.
    pub op: Option<ReduceOp>,
}

impl Row {
    /// The row of one size from the times of its iterations in nanoseconds.
    pub fn new(
        heading: &Heading,
        (shape, blocks): (&Shape, Option<&Blocks>),
        times: &mut [u64],
        wrong: Option<u64>,
        plan: &str,
    ) -> Self {
        times.sort_unstable();
        let (p50, p99) = (percentile(times, 50), percentile(times, 99));
        let bytes = shape.message();
        let algbw = if p50 == 0 { 0.0 } else { bytes as f64 / p50 as f64 };
        let collective = &heading.collective;
        let factor = match blocks {
            Some(blocks) => blocks.bus_factor(collective),
            None => bus_factor(collective, heading.ranks),
        };
        Row {
            bytes,
            count: shape.count,
            dtype: heading.dtype.name(),
            op: heading.op.map_or("none", ReduceOp::name),
            p50_us: p50 as f64 / 1e3,
            p99_us: p99 as f64 / 1e3,
            algbw_gbs: algbw,
            busbw_gbs: algbw * factor,
            wrong,
            plan: plan.to_owned(),
            send_counts: blocks.map(|blocks| blocks.send.clone()),
            receive_counts: blocks.map(|blocks| blocks.receive.clone()),
        }
    }

    /// The row as a line of the table.
    pub fn line(&self) -> String {
        let wrong = self.wrong.map_or("N/A".to_owned(), |wrong| wrong.to_string());
        format!(
            "{:>12} {:>12} {:>8} {:>6} {:>11} {:>11} {:>8.2} {:>8.2} {:>7}",
            self.bytes,
            self.count,
            self.dtype,
            self.op,
            microseconds(self.p50_us),
            microseconds(self.p99_us),
            self.algbw_gbs,
            self.busbw_gbs,
            wrong,
        )
    }
}

/// The two lines above the rows.
pub fn header() -> String {
    let names =
        ["size", "count", "type", "redop", "time p50", "time p99", "algbw", "busbw", "#wrong"];
    let units = ["(B)", "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", ""];
    let line = |cells: [&str; 9]| {
        let [a, b, c, d, e, f, g, h, i] = cells;
        let line = format!("{a:>12} {b:>12} {c:>8} {d:>6} {e:>11} {f:>11} {g:>8} {h:>8} {i:>7}");
        format!("#{}", line.get(1..).unwrap_or_default().trim_end())
    };
    format!("{}\n{}", line(names), line(units))
}

/// The smallest of the sorted `times` that `percent` per cent do not exceed; 0 of none.
pub fn percentile(times: &[u64], percent: usize) -> u64 {
    let position = (times.len() * percent).div_ceil(100);
    times.get(position.saturating_sub(1)).copied().unwrap_or(0)
}

/// Microseconds with four significant digits where that is more than none behind the point.
pub fn microseconds(value: f64) -> String {
    let digits = match value {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(collective: Collective, bytes: u64, times: &[u64], wrong: Option<u64>) -> Row {
        let heading = Heading {
            op: (collective == Collective::AllReduce).then_some(ReduceOp::Sum),
            collective,
            ranks: 4,
            dtype: DataType::F32,
        };
        let shape = Shape { input: bytes, output: bytes, count: bytes / 4 };
        Row::new(&heading, (&shape, None), &mut times.to_vec(), wrong, "demo")
    }

    #[test]
    fn the_table_lines_up() {
        let rows = [
            row(Collective::AllReduce, 4, &[512, 498, 1900], Some(0)),
            row(Collective::AllReduce, 1 << 20, &[123_456; 20], None),
            row(Collective::AllGather, 1 << 34, &[2_345_678_901; 3], Some(12)),
        ];
        let lines: Vec<_> = std::iter::once(header()).chain(rows.iter().map(Row::line)).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile(&times, 50), 100);
        assert_eq!(percentile(&times, 99), 198);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 50), 0);
    }

    #[test]
    fn bandwidth_is_bytes_by_time() {
        let row = row(Collective::AllReduce, 1_000_000, &[100_000], Some(0));
        assert_eq!((row.p50_us, row.algbw_gbs, row.busbw_gbs), (100.0, 10.0, 15.0));
    }

    #[test]
    fn json_has_the_documented_fields() {
        let row = row(Collective::AllReduce, 1 << 10, &[1000], Some(0));
        let json = serde_json::to_value(&row).unwrap();
        for field in ["bytes", "p50_us", "p99_us", "wrong"] {
            assert!(json.get(field).is_some_and(|value| value.is_number()), "{field} in {json}");
        }
    }
}
