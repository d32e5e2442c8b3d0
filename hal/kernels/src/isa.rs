//! Which vector instructions the CPU has.

/// A set of vector instructions the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every CPU of the architecture has (x86-64: SSE2).
    Baseline,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// aarch64, whose baseline has NEON.
    Neon,
}

impl Isa {
    /// Every instruction set, on whatever machine.
    pub const ALL: [Isa; 4] = [Isa::Baseline, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// The widest instruction set of this CPU.
    pub fn detected() -> Isa {
        #[cfg(target_arch = "aarch64")]
        return Isa::Neon;
        #[cfg(not(target_arch = "aarch64"))]
        [Isa::Avx512, Isa::Avx2].into_iter().find(|isa| isa.is_available()).unwrap_or(Isa::Baseline)
    }

    /// Whether this CPU runs code compiled for the instruction set.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Baseline => cfg!(not(target_arch = "aarch64")),
            Isa::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// The name used in reports, e.g. `avx512`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Baseline => "baseline",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
