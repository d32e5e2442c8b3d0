//! One table of function pointers per instruction set, and the choice among them.

use std::sync::OnceLock;

use antiphon_types::{DataType, ReduceOp};

use super::element::{Bf16, F8E4m3, F8E5m2, F16, Max, Min, Prod, Sum};
use super::{Isa, copy, divide, isa, packet, reduce};

type Copy = unsafe fn(*mut u8, *const u8, usize);
type CopyTo = unsafe fn(&[*mut u8], *const u8, usize);
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
    copy: Copy,
    copy_to: CopyTo,
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

    /// See [`super::copy()`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn copy(&self, dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: passed on to the caller; a table is handed out only where the CPU has its instructions.
        unsafe { (self.copy)(dst, src, bytes) }
    }

    /// See [`super::copy_to`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn copy_to(&self, dsts: &[*mut u8], src: *const u8, bytes: usize) {
        // SAFETY: as in `copy`.
        unsafe { (self.copy_to)(dsts, src, bytes) }
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
        // SAFETY: as in `copy`; the loops get at least one source, and no more elements than fit `bytes`.
        unsafe {
            match srcs {
                [] => {}
                &[src] => (self.copy_to)(dsts, src, count * dtype.size()),
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
            // SAFETY: as in `copy`; the count is of whole elements within `bytes`.
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
        // SAFETY: as in `copy`.
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
        // SAFETY: as in `copy`.
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
        // SAFETY: as in `copy`.
        unsafe { (self.forward)(dsts, src, padded, flag) }
    }
}

/// Compiles every kernel with the features given and makes their table.
///
/// The loops are `#[inline(always)]`, so each is compiled anew inside the function that enables the features.
macro_rules! table {
    ($table:ident, $module:ident, $isa:expr, $lanes:ty, $units:ty, $(#[$features:meta])?) => {
        static $table: Kernels = Kernels {
            isa: $isa,
            copy: $module::copy,
            copy_to: $module::copy_to,
            // In the order of the codes. A block is 64 to 128 bytes of accumulators, and a quarter of that for the rest.
            reduce: [
                table!(@ops $module F16 32 8),
                table!(@ops $module Bf16 32 8),
                table!(@ops $module f32 32 8),
                table!(@ops $module f64 16 4),
                table!(@ops $module i8 64 16),
                table!(@ops $module u8 64 16),
                table!(@ops $module i32 32 8),
                table!(@ops $module u32 32 8),
                table!(@ops $module i64 16 4),
                table!(@ops $module u64 16 4),
                table!(@ops $module F8E4m3 32 8),
                table!(@ops $module F8E5m2 32 8),
            ],
            divide: [
                $module::divide::<F16, 16>,
                $module::divide::<Bf16, 16>,
                $module::divide::<f32, 16>,
                $module::divide::<f64, 8>,
                $module::divide::<i8, 16>,
                $module::divide::<u8, 16>,
                $module::divide::<i32, 16>,
                $module::divide::<u32, 16>,
                $module::divide::<i64, 8>,
                $module::divide::<u64, 8>,
                $module::divide::<F8E4m3, 16>,
                $module::divide::<F8E5m2, 16>,
            ],
            pack_to: $module::pack_to,
            unpack: $module::unpack,
            forward: $module::forward,
        };

        /// The loops, compiled with the features of the table.
        mod $module {
            use super::super::element::{Element, Op};

            $(#[$features])?
            pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
                // SAFETY: passed on to the caller.
                unsafe { super::copy::copy(dst, src, bytes) }
            }

            $(#[$features])?
            pub(super) unsafe fn copy_to(dsts: &[*mut u8], src: *const u8, bytes: usize) {
                // SAFETY: passed on to the caller.
                unsafe { super::copy::copy_to(dsts, src, bytes) }
            }

            $(#[$features])?
            pub(super) unsafe fn reduce<E: Element, O: Op, const L: usize, const S: usize>(
                dsts: &[*mut u8],
                srcs: &[*const u8],
                count: usize,
            ) {
                // SAFETY: passed on to the caller; the features include those of the lanes.
                unsafe { super::reduce::reduce::<E, O, $lanes, L, S>(dsts, srcs, count) }
            }

            $(#[$features])?
            pub(super) unsafe fn divide<E: Element, const L: usize>(
                dst: *mut u8,
                count: usize,
                n: u32,
            ) {
                // SAFETY: passed on to the caller; the features include those of the lanes.
                unsafe { super::divide::divide::<E, $lanes, L>(dst, count, n) }
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
    (@ops $module:ident $element:ident $block:literal $rest:literal) => {
        [
            $module::reduce::<$element, Sum, $block, $rest>,
            $module::reduce::<$element, Prod, $block, $rest>,
            $module::reduce::<$element, Min, $block, $rest>,
            $module::reduce::<$element, Max, $block, $rest>,
        ]
    };
}

table!(
    PLAIN,
    plain,
    if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Baseline },
    super::isa::Plain,
    super::packet::Plain,
);
#[cfg(target_arch = "x86_64")]
table!(
    AVX2,
    avx2,
    Isa::Avx2,
    super::isa::Avx2,
    super::super::packet_x86::Avx2,
    #[target_feature(enable = "avx2,fma,f16c,bmi2")]
);
#[cfg(target_arch = "x86_64")]
table!(
    AVX512,
    avx512,
    Isa::Avx512,
    super::isa::Avx512,
    super::super::packet_x86::Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
);
