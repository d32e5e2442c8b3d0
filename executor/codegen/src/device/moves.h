// Moves between raw areas: 16 bytes at a time where all sides allow it, elements at both ends.

// The sides of one piece of a move.
template <int reads, int writes> struct Sides {
    const u8 *from[reads];
    u8 *to[writes ? writes : 1];
};

template <int reads, int writes>
AP_INLINE void find(const Launch &l, const u32 *sides_at, const Parts &part, Sides<reads, writes> &sides) {
#pragma unroll
    for (int i = 0; i < reads; ++i) sides.from[i] = area(l, sides_at[i]) + part.offsets[i] + part.start;
#pragma unroll
    for (int i = 0; i < writes; ++i) sides.to[i] = area(l, sides_at[reads + i]) + part.offsets[reads + i] + part.start;
}

template <class Op, int reads, int writes> AP_INLINE void one(const Sides<reads, writes> &sides, u64 at) {
    Stored stored = load_plain<Stored>(sides.from[0] + at);
    if (reads > 1) {
        Wide sum = widened(stored);
#pragma unroll
        for (int i = 1; i < reads; ++i) {
            sum = Op::template apply<Wide>(sum, widened(load_plain<Stored>(sides.from[i] + at)));
        }
        stored = narrowed(sum);
    }
#pragma unroll
    for (int i = 0; i < writes; ++i) store_plain<Stored>(sides.to[i] + at, stored);
}

// `depth` times 16 bytes, `stride` apart, all of which are loaded before any is stored; those before `end`, if it is not known that
// all are.
template <class Op, int reads, int writes, int depth, bool all>
AP_INLINE void vectors(const Sides<reads, writes> &sides, u64 at, u64 stride, u64 end) {
    Vector in[depth][reads];
#pragma unroll
    for (int d = 0; d < depth; ++d) {
        if (!all && at + d * stride >= end) continue;
#pragma unroll
        for (int i = 0; i < reads; ++i) in[d][i] = load_vector(sides.from[i] + at + d * stride);
    }
#pragma unroll
    for (int d = 0; d < depth; ++d) {
        if (!all && at + d * stride >= end) continue;
        Vector out = in[d][0];
        if (reads > 1) {
            typename Accumulator<Op, reads, Vector>::Type sums;
            sums.take(in[d][0]);
#pragma unroll
            for (int i = 1; i < reads; ++i) sums.template combine<Op>(in[d][i]);
            out = sums.result();
        }
#pragma unroll
        for (int i = 0; i < writes; ++i) store_vector(sides.to[i] + at + d * stride, out);
    }
}

// Bytes from which on a move is long.
#define LONG 65536

// Vectors that are in flight at once, over all that is read: fewer where widening them takes many registers.
template <class Op, int reads> struct InFlight {
    static const int narrow = reads > 1 && sizeof(Stored) == 1 && sizeof(Wide) > 1 && reads > Pairs<Element, Op>::most;
    static const int vectors = narrow ? 4 : 8;
    static const int depth = reads >= vectors ? 1 : vectors / reads;
};

template <class Op, int reads, int writes> AP_INLINE void transfer(const Sides<reads, writes> &sides, u64 len) {
    // Elements before the first 16 bytes that are aligned on all sides; all of them, if sides differ.
    const u64 skew = (u64)sides.from[0] & 15;
    bool alike = true;
#pragma unroll
    for (int i = 1; i < reads; ++i) alike &= ((u64)sides.from[i] & 15) == skew;
#pragma unroll
    for (int i = 0; i < writes; ++i) alike &= ((u64)sides.to[i] & 15) == skew;
    // What is long begins where a line of memory does that is written.
    const u64 line = len < LONG ? 15 : 127, anchor = (u64)(writes ? sides.to[0] : sides.from[0]);
    u64 head = alike ? -anchor & line : len;
    if (head > len) head = len;
    const u64 body = (len - head) & ~15ull;
    const u64 stride = (u64)AP_THREADS() * 16;
    u64 at = head + (u64)AP_THREAD() * 16;
    const int depth = InFlight<Op, reads>::depth;
    const u64 end = head + body;
    for (; at + (depth - 1) * stride < end; at += depth * stride) vectors<Op, reads, writes, depth, true>(sides, at, stride, end);
    if (reads == 1) {
        if (at < end) vectors<Op, reads, writes, depth, false>(sides, at, stride, end);
    } else if (depth > 1) {
        // Sums are long: here what they are made of comes one after the other.
#pragma unroll 1
        for (; at < end; at += stride) vectors<Op, reads, writes, 1, true>(sides, at, stride, end);
    }
    // What is before the vectors and what is behind them, as if there were none between.
#pragma unroll 1
    for (u64 i = AP_THREAD() * sizeof(Stored); i < len - body; i += AP_THREADS() * sizeof(Stored)) {
        one<Op, reads, writes>(sides, i < head ? i : i + body);
    }
}

// Words: the move's number, its sides.
template <class Op, int reads, int writes> AP_DEVICE void move_bytes(const Launch &l, const u32 *o, Window w) {
    if (!still_runs()) return;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        Sides<reads, writes> sides;
        find<reads, writes>(l, o + 1, part, sides);
        transfer<Op, reads, writes>(sides, part.len);
    }
}

// Any number of sides, element by element: the bytes of a piece from `begin` to `end`.
template <class Op>
AP_DEVICE void elements(const Launch &l, const u32 *all, const u64 *offsets, u32 reads, u32 writes, u64 start, u64 begin, u64 end) {
    for (u64 at = begin + AP_THREAD() * sizeof(Stored); at < end; at += AP_THREADS() * sizeof(Stored)) {
        Stored stored = load_plain<Stored>(area(l, all[0]) + offsets[0] + start + at);
        if (reads > 1) {
            Wide sum = widened(stored);
#pragma unroll 1
            for (u32 i = 1; i < reads; ++i) {
                const u8 *from = area(l, all[i]) + offsets[i] + start + at;
                sum = Op::template apply<Wide>(sum, widened(load_plain<Stored>(from)));
            }
            stored = narrowed(sum);
        }
#pragma unroll 1
        for (u32 i = 0; i < writes; ++i) {
            store_plain<Stored>(area(l, all[reads + i]) + offsets[reads + i] + start + at, stored);
        }
    }
}

// Words as above.
template <class Op> AP_DEVICE void move_bytes_wide(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    if (!still_runs()) return;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        elements<Op>(l, o + 1, part.offsets, reads, writes, part.start, 0, part.len);
    }
}
