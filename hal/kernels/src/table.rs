//! One table of function pointers per instruction set, and the choice among them.

use std::sync::OnceLock;

use antiphon_types::{DataType, ReduceOp};

use super::element::{Bf16, F8E4m3, F8E5m2, F16, Max, Min, Prod, Sum};
use super::{Isa, copy, divide, packet, reduce};

type Reduce = unsafe fn(&[*mut u8], &[*const u8], usize);
type Divide = unsafe fn(*mut u8, usize, u32);
type Pack = unsafe fn(&[*mut u8], *const u8, usize, usize, u32);
type Unpack = unsafe fn(*mut u8, *const u8, usize, usize, u32) -> usize;
type Forward = unsafe fn(&[*mut u8], *const u8, usize, u32) -> usize;

/// Operators with a loop of their own: an average is summed.
const OPS: usize = ReduceOp::ALL.len() - 1;
const DTYPES: usize = DataType::ALL.len();

/// The kernels compiled for one instruction set.
///
/// The functions of [`super`] are those of [`Kernels::active`]; the others are there to be compared with.
pub struct Kernels {
    isa: Isa,
    /// By the codes of data type and operator.
    reduce: [[Reduce; OPS]; DTYPES],
    divide: [Divide; DTYPES],
    pack_to: Pack,
    unpack: Unpack,
    forward: Forward,
}

impl Kernels {
    /// The kernels of the widest instruction set of this CPU.
    #[inline]
    pub fn active() -> &'static Kernels {
        static ACTIVE: OnceLock<&'static Kernels> = OnceLock::new();
        ACTIVE.get_or_init(|| Kernels::of(Isa::detected()))
    }

    /// The kernels of an instruction set, if this CPU has it.
    #[doc(hidden)]
    pub fn for_isa(isa: Isa) -> Option<&'static Kernels> {
        isa.is_available().then(|| Kernels::of(isa))
    }

    fn of(isa: Isa) -> &'static Kernels {
        match isa {
            Isa::Baseline | Isa::Neon => &PLAIN,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &AVX512,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => &PLAIN,
        }
    }

    /// The instruction set these kernels are compiled for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// See [`super::reduce()`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn reduce(
        &self,
        dtype: DataType,
        op: ReduceOp,
        dsts: &[*mut u8],
        srcs: &[*const u8],
        bytes: usize,
    ) {
        let op = match op {
            ReduceOp::Sum | ReduceOp::Avg => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => 2,
            ReduceOp::Max => 3,
        };
        let count = bytes >> dtype.size().trailing_zeros();
        // SAFETY: passed on to the caller. A table is handed out only where the CPU has its instructions; the loops get
        // two sources or more, a destination or more, and no more elements than fit `bytes`.
        unsafe {
            match srcs {
                _ if srcs.is_empty() || dsts.is_empty() => {}
                &[src] => copy::copy_to(dsts, src, count * dtype.size()),
                _ => self.reduce[dtype as usize][op](dsts, srcs, count),
            }
        }
    }

    /// See [`super::divide()`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn divide(&self, dtype: DataType, dst: *mut u8, bytes: usize, n: u32) {
        if n > 1 {
            // SAFETY: as in `reduce`; the count is of whole elements within `bytes`.
            unsafe { self.divide[dtype as usize](dst, bytes / dtype.size(), n) }
        }
    }

    /// See [`super::pack_to`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn pack_to(
        &self,
        dsts: &[*mut u8],
        src: *const u8,
        len: usize,
        padded: usize,
        flag: u32,
    ) {
        debug_assert!(len <= padded && padded.is_multiple_of(4));
        debug_assert!(dsts.iter().all(|dst| dst.addr().is_multiple_of(8)));
        // SAFETY: as in `reduce`.
        unsafe { (self.pack_to)(dsts, src, len, padded, flag) }
    }

    /// See [`super::unpack`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn unpack(
        &self,
        dst: *mut u8,
        src: *const u8,
        len: usize,
        padded: usize,
        flag: u32,
    ) -> usize {
        debug_assert!(padded.is_multiple_of(4) && src.addr().is_multiple_of(8));
        // SAFETY: as in `reduce`.
        unsafe { (self.unpack)(dst, src, len.min(padded), padded, flag) }
    }

    /// See [`super::forward`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn forward(
        &self,
        dsts: &[*mut u8],
        src: *const u8,
        padded: usize,
        flag: u32,
    ) -> usize {
        debug_assert!(padded.is_multiple_of(4) && src.addr().is_multiple_of(8));
        debug_assert!(dsts.iter().all(|dst| dst.addr().is_multiple_of(8)));
        // SAFETY: as in `reduce`.
        unsafe { (self.forward)(dsts, src, padded, flag) }
    }
}

/// Compiles every kernel with the features given and makes their table.
///
/// The loops are `#[inline(always)]`, so each is compiled anew inside the function that enables the features.
macro_rules! table {
    ($table:ident, $module:ident, $isa:expr, $vector:ty, $units:ty, $(#[$features:meta])?) => {
        static $table: Kernels = Kernels {
            isa: $isa,
            // In the order of the codes; with the elements of a short block, one vector or two.
            reduce: [
                table!(@narrow $module F16),
                table!(@narrow $module Bf16),
                table!(@plain $module f32 8),
                table!(@plain $module f64 4),
                table!(@plain $module i8 16),
                table!(@plain $module u8 16),
                table!(@plain $module i32 8),
                table!(@plain $module u32 8),
                table!(@plain $module i64 4),
                table!(@plain $module u64 4),
                table!(@narrow $module F8E4m3),
                table!(@narrow $module F8E5m2),
            ],
            divide: [
                $module::divide_narrow::<F16>,
                $module::divide_narrow::<Bf16>,
                $module::divide::<f32>,
                $module::divide::<f64>,
                $module::divide::<i8>,
                $module::divide::<u8>,
                $module::divide::<i32>,
                $module::divide::<u32>,
                $module::divide::<i64>,
                $module::divide::<u64>,
                $module::divide_narrow::<F8E4m3>,
                $module::divide_narrow::<F8E5m2>,
            ],
            pack_to: $module::pack_to,
            unpack: $module::unpack,
            forward: $module::forward,
        };

        /// The loops, compiled with the features of the table.
        mod $module {
            use super::super::element::{Element, Op};
            use super::super::vector::{Loops, Narrow};

            $(#[$features])?
            pub(super) unsafe fn reduce<E: Element, O: Op, const S: usize>(
                dsts: &[*mut u8],
                srcs: &[*const u8],
                count: usize,
            ) {
                // SAFETY: passed on to the caller.
                unsafe { super::reduce::reduce::<E, O, S>(dsts, srcs, count) }
            }

            $(#[$features])?
            pub(super) unsafe fn reduce_narrow<E: Narrow, O: Op>(
                dsts: &[*mut u8],
                srcs: &[*const u8],
                count: usize,
            ) {
                // SAFETY: passed on to the caller; the features include those of the vectors.
                unsafe { <$vector>::reduce::<E, O>(dsts, srcs, count) }
            }

            $(#[$features])?
            pub(super) unsafe fn divide<E: Element>(dst: *mut u8, count: usize, n: u32) {
                // SAFETY: passed on to the caller.
                unsafe { super::divide::divide::<E>(dst, count, n) }
            }

            $(#[$features])?
            pub(super) unsafe fn divide_narrow<E: Narrow>(dst: *mut u8, count: usize, n: u32) {
                // SAFETY: passed on to the caller; the features include those of the vectors.
                unsafe { <$vector>::divide::<E>(dst, count, n) }
            }

            $(#[$features])?
            pub(super) unsafe fn pack_to(
                dsts: &[*mut u8],
                src: *const u8,
                len: usize,
                padded: usize,
                flag: u32,
            ) {
                // SAFETY: passed on to the caller; the features include those of the units.
                unsafe {
                    match dsts {
                        &[dst] => super::packet::pack::<$units>(&[dst], src, len, padded, flag),
                        _ => super::packet::pack::<$units>(dsts, src, len, padded, flag),
                    }
                }
            }

            $(#[$features])?
            pub(super) unsafe fn unpack(
                dst: *mut u8,
                src: *const u8,
                len: usize,
                padded: usize,
                flag: u32,
            ) -> usize {
                // SAFETY: passed on to the caller; the features include those of the units.
                unsafe { super::packet::unpack::<$units>(dst, src, len, padded, flag) }
            }

            $(#[$features])?
            pub(super) unsafe fn forward(
                dsts: &[*mut u8],
                src: *const u8,
                padded: usize,
                flag: u32,
            ) -> usize {
                // SAFETY: passed on to the caller; the features include those of the units.
                unsafe { super::packet::forward::<$units>(dsts, src, padded, flag) }
            }
        }
    };
    (@plain $module:ident $element:ident $block:literal) => {
        [
            $module::reduce::<$element, Sum, $block>,
            $module::reduce::<$element, Prod, $block>,
            $module::reduce::<$element, Min, $block>,
            $module::reduce::<$element, Max, $block>,
        ]
    };
    (@narrow $module:ident $element:ident) => {
        [
            $module::reduce_narrow::<$element, Sum>,
            $module::reduce_narrow::<$element, Prod>,
            $module::reduce_narrow::<$element, Min>,
            $module::reduce_narrow::<$element, Max>,
        ]
    };
}

table!(
    PLAIN,
    plain,
    if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Baseline },
    super::super::vector::Plain,
    super::super::packet::Plain,
);
#[cfg(target_arch = "x86_64")]
table!(
    AVX2,
    avx2,
    Isa::Avx2,
    super::super::vector_x86::Avx2,
    super::super::packet_x86::Avx2,
    #[target_feature(enable = "avx2,fma,f16c,bmi2")]
);
#[cfg(target_arch = "x86_64")]
table!(
    AVX512,
    avx512,
    Isa::Avx512,
    super::super::vector_x86::Avx512,
    super::super::packet_x86::Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
);
