//! What the ranks run on, as far as the choice of a built-in algorithm goes.

use antiphon_plan::algorithms::devices::DeviceClass;
use antiphon_types::{DataType, ReduceOp};

/// What the ranks run on. All ranks of a communicator say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Devices {
    /// The processors of their machines.
    #[default]
    Host,
    /// GPUs.
    Gpus {
        /// Of which kind.
        class: DeviceClass,
        /// Thread blocks of a rank at most, at least 1.
        most_blocks: u32,
    },
}

impl Devices {
    /// GPUs of a class, as many as a topology of the simulator has.
    pub fn of(class: DeviceClass) -> Self {
        Devices::Gpus { class, most_blocks: u32::MAX }
    }

    /// Whether a switch may combine for them.
    pub(crate) fn have_multicast(self) -> bool {
        matches!(self, Devices::Gpus { class: DeviceClass::NvidiaMulticast, .. })
    }

    /// The same for calls that may not be left to a switch.
    pub(crate) fn without_multicast(self) -> Self {
        match self {
            Devices::Host => Devices::Host,
            Devices::Gpus { class, most_blocks } => {
                Devices::Gpus { class: class.without_multicast(), most_blocks }
            }
        }
    }
}

/// Whether a switch combines such values, as the device library's instructions do.
pub(crate) fn combined(op: ReduceOp, dtype: DataType) -> bool {
    use DataType::{Bf16, F16, F32, I32, U32};
    match op {
        ReduceOp::Sum | ReduceOp::Avg => matches!(dtype, F16 | Bf16 | F32 | I32 | U32),
        ReduceOp::Min | ReduceOp::Max => matches!(dtype, I32 | U32),
        ReduceOp::Prod => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::selection::{Candidate, Question, Rule, Selected, Spread};
    use antiphon_plan::algorithms::{Algorithm, SumOrder};
    use antiphon_plan::model::Collective;

    fn spread(class: DeviceClass) -> Spread {
        Spread { ranks: 8, nodes: 1, crowded: true, devices: Devices::of(class) }
    }

    fn chosen(question: &Question<'_>) -> (Algorithm, usize, String) {
        let choice = Registry::new().choose(question).unwrap();
        assert_eq!(choice.rule, Rule::Size);
        let Candidate::BuiltIn(Selected::Sized(built_in)) = choice.candidate else {
            panic!("nothing is registered")
        };
        (built_in.algorithm, built_in.shape.blocks, choice.to_string())
    }

    #[test]
    fn gpus_go_by_what_is_predicted_for_their_class() {
        for class in DeviceClass::ALL {
            let all_reduce = |bytes| {
                chosen(&Question::new(&Collective::AllReduce, spread(class), bytes, DataType::F32))
            };
            let (small, blocks, _) = all_reduce(64);
            assert_eq!((small, blocks), (Algorithm::AllReduceOneShotPackets, 1), "{class:?}");
            let (large, blocks, said) = all_reduce(1 << 30);
            assert!(blocks > 1, "{said}");
            let through = class == DeviceClass::NvidiaMulticast;
            assert_eq!(large == Algorithm::AllReduceSwitch, through, "{said}");
            assert_eq!(said.contains("allreduce_switch"), through, "{said}");
            let predicted =
                format!("predicts for `{}`: {blocks} thread blocks", class.topology_name());
            assert!(said.contains(&predicted), "{said}");
        }
    }

    #[test]
    fn a_switch_serves_what_it_combines_and_no_reproducible_sums() {
        let large = Question::new(
            &Collective::AllReduce,
            spread(DeviceClass::NvidiaMulticast),
            1 << 30,
            DataType::F16,
        );
        let reproducible = Question { reproducible: true, ..large };
        let cases = [
            (large, true),
            (Question { op: Some(ReduceOp::Avg), ..large }, true),
            (Question { op: Some(ReduceOp::Max), ..large }, false),
            (Question { dtype: DataType::F64, ..large }, false),
            (reproducible, false),
            // Integers have the same bits in any order.
            (Question { dtype: DataType::I32, ..reproducible }, true),
        ];
        for (question, switch) in cases {
            let (algorithm, _, said) = chosen(&question);
            assert_eq!(algorithm == Algorithm::AllReduceSwitch, switch, "{question}: {said}");
            assert!(switch || algorithm.sum_order() == SumOrder::Ranks, "{said}");
        }
    }

    #[test]
    fn a_device_that_runs_few_blocks_gets_few() {
        let devices = Devices::Gpus { class: DeviceClass::Amd, most_blocks: 3 };
        let spread = Spread { devices, ..spread(DeviceClass::Amd) };
        for bytes in [64, 1 << 20, 1 << 30] {
            let question = Question::new(&Collective::AllGather, spread, bytes, DataType::U8);
            assert!(chosen(&question).1 <= 3);
        }
    }

    #[test]
    fn what_is_combined_is_what_the_device_library_says() {
        let library = include_str!("../../codegen/src/device/multicast.h");
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
            for dtype in DataType::ALL {
                let operator = format!("{op:?}");
                let line = format!("AP_COMBINED(element_{}, {operator},", dtype.name());
                assert_eq!(library.contains(&line), combined(op, dtype), "{line}");
            }
        }
    }
}
