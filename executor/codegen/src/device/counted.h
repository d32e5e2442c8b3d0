// Moves that count their sides while they run: of the interpreting kernel, and where a text has many kinds of them.

#define WIDEST 8

// The sides of a piece, where they are few.
struct Counted {
    u8 *from[WIDEST], *to[WIDEST];
};

// Vectors that are in flight at once.
#define IN_FLIGHT (sizeof(Stored) == 1 && sizeof(Wide) > 1 ? 2 : 4)

// The vectors of a piece from `begin` to `end`, which is a multiple of 16 bytes behind it.
template <class Op> AP_INLINE void counted_vectors(const Counted &sides, u32 reads, u32 writes, u64 begin, u64 end) {
    const u64 stride = (u64)AP_THREADS() * 16;
    for (u64 at = begin + (u64)AP_THREAD() * 16; at < end; at += IN_FLIGHT * stride) {
        Vector in[IN_FLIGHT];
#pragma unroll
        for (int d = 0; d < IN_FLIGHT; ++d) {
            if (at + d * stride < end) in[d] = load_vector(sides.from[0] + at + d * stride);
        }
        if (reads > 1) {
            typename Accumulator<Op, WIDEST, Vector>::Type sums[IN_FLIGHT];
#pragma unroll
            for (int d = 0; d < IN_FLIGHT; ++d) sums[d].take(in[d]);
#pragma unroll 1
            for (u32 i = 1; i < reads; ++i) {
                const u8 *from = sides.from[i] + at;
#pragma unroll
                for (int d = 0; d < IN_FLIGHT; ++d) {
                    if (at + d * stride < end) in[d] = load_vector(from + d * stride);
                }
#pragma unroll
                for (int d = 0; d < IN_FLIGHT; ++d) sums[d].template combine<Op>(in[d]);
            }
#pragma unroll
            for (int d = 0; d < IN_FLIGHT; ++d) in[d] = sums[d].result();
        }
#pragma unroll 1
        for (u32 i = 0; i < writes; ++i) {
            u8 *to = sides.to[i] + at;
#pragma unroll
            for (int d = 0; d < IN_FLIGHT; ++d) {
                if (at + d * stride < end) store_vector(to + d * stride, in[d]);
            }
        }
    }
}

// Words: the move's number, its sides. Many sides are walked element by element.
template <class Op> AP_DEVICE void move_bytes_counted(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    if (!still_runs()) return;
    const u32 *all = o + 1;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        const u64 *offsets = part.offsets;
        u64 head = part.len, body = 0;
        if (reads <= WIDEST && writes <= WIDEST) {
            Counted sides;
            u64 skews = 0;
#pragma unroll 1
            for (u32 i = 0; i < reads; ++i) {
                sides.from[i] = area(l, all[i]) + offsets[i] + part.start;
                skews |= 1ull << ((u64)sides.from[i] & 15);
            }
#pragma unroll 1
            for (u32 i = 0; i < writes; ++i) {
                sides.to[i] = area(l, all[reads + i]) + offsets[reads + i] + part.start;
                skews |= 1ull << ((u64)sides.to[i] & 15);
            }
            // All sides alike: elements up to the first 16 bytes that are aligned, then vectors.
            if ((skews & (skews - 1)) == 0) {
                head = (16 - ((u64)sides.from[0] & 15)) & 15;
                if (head > part.len) head = part.len;
                body = (part.len - head) & ~15ull;
                counted_vectors<Op>(sides, reads, writes, head, head + body);
            }
        }
        elements<Op>(l, all, offsets, reads, writes, part.start, 0, head);
        elements<Op>(l, all, offsets, reads, writes, part.start, head + body, part.len);
    }
}

#ifdef AP_MULTICAST

// Words as of moves over switch channels: what no multicast reaches is walked element by element.
template <class Op> AP_DEVICE void move_multicast_counted(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    if (!still_runs()) return;
    fence_alias();
    const u32 *all = o + 1;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        const u64 *offsets = part.offsets;
        const bool combined = Combined<Element, Op>::known && reads > 1;
        const u64 from = combined ? multicast_side(l, all[reads + writes], all, offsets, reads, part.start) : 0;
        const u64 to = multicast_side(l, all[reads + writes + 1], all + reads, offsets + reads, writes, part.start);
        u64 places = from | to;
        for (u32 i = 0; !from && i < reads; ++i) places |= (u64)area(l, all[i]) + offsets[i] + part.start;
        for (u32 i = 0; !to && i < writes; ++i) places |= (u64)area(l, all[reads + i]) + offsets[reads + i] + part.start;
        // What several sources make member by member, elements do.
        const bool reached = from ? true : to && reads == 1;
        const u64 body = reached && (places & 15) == 0 ? part.len & ~15ull : 0;
        for (u64 at = (u64)AP_THREAD() * 16; at < body; at += (u64)AP_THREADS() * 16) {
            const Vector v = from ? Combined<Element, Op>::load((const u8 *)from + at)
                                  : load_vector(area(l, all[0]) + offsets[0] + part.start + at);
            if (to) multicast_store((u8 *)to + at, v);
            for (u32 i = 0; !to && i < writes; ++i) {
                store_vector(area(l, all[reads + i]) + offsets[reads + i] + part.start + at, v);
            }
        }
        elements<Op>(l, all, offsets, reads, writes, part.start, body, part.len);
    }
    fence_alias();
}

#else

template <class Op> AP_INLINE void move_multicast_counted(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    move_bytes_counted<Op>(l, o, reads, writes, w);
}

#endif
