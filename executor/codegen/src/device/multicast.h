// Moves over switch channels: one instruction for all members where the device has it, else each member by its own address.

#ifdef AP_MULTICAST

// What a device combines on the way, of 16 bytes of elements.
template <class E, class Op> struct Combined {
    static const bool known = false;
    static __device__ Vector load(const u8 *from) { return load_vector(from); }
};
#define AP_COMBINED(element, op, function)                                             \
    template <> struct Combined<element, op> {                                         \
        static const bool known = true;                                                \
        static __device__ Vector load(const u8 *from) { return function(from); }       \
    }
AP_COMBINED(element_f32, Sum, multicast_sum_f32);
AP_COMBINED(element_f16, Sum, multicast_sum_f16);
AP_COMBINED(element_bf16, Sum, multicast_sum_bf16);
AP_COMBINED(element_u32, Sum, multicast_sum_u32);
AP_COMBINED(element_u32, Min, multicast_min_u32);
AP_COMBINED(element_u32, Max, multicast_max_u32);
AP_COMBINED(element_i32, Sum, multicast_sum_u32);
AP_COMBINED(element_i32, Min, multicast_min_i32);
AP_COMBINED(element_i32, Max, multicast_max_i32);

// Where the multicast of a switch channel has the bound area in this launch; 0 if there is none for it. What the block has
// not heard of a member, which it does not touch then, fits none or is not used.
AP_INLINE u64 find_group(const Launch &l, u32 channel) {
    const u64 *list = (const u64 *)load_acquire(words(l.groups) + channel);
    if (!list) return 0;
    const u64 count = load_relaxed(list), members = load_relaxed(list + 1), kind = load_relaxed(list + 2);
    const u64 *ranks = list + GROUPS_HEAD, *group = ranks + members;
    for (u64 k = 0; k < count; ++k, group += 1 + members) {
        if (kind == 2) return load_relaxed(group);
        u64 first = 0, i = 0;
        for (; i < members; ++i) {
            const u32 rank = (u32)load_relaxed(ranks + i);
            u64 region = kind ? l.output_region : l.input_region, offset = kind ? l.output_offset : l.input_offset;
            if (rank != l.rank) {
                const Descriptor *d = &inbox((u8 *)l.arena, rank)->descriptors[state().number & 1];
                region = load_relaxed(kind ? &d->output_region : &d->input_region);
                offset = load_relaxed(kind ? &d->output_offset : &d->input_offset);
            }
            if (i == 0) first = offset;
            if (region != load_relaxed(group + 1 + i) || offset != first) break;
        }
        if (i == members) return load_relaxed(group) + first;
    }
    return 0;
}

// Finds the multicasts of the launch for the block.
AP_INLINE void find_groups(const Launch &l) {
    if (!l.groups) return;
    u64 *found = words(l.multicasts) + (u64)block_of(l) * l.switch_count;
    for (u32 i = AP_THREAD(); i < l.switch_count; i += AP_THREADS()) found[i] = find_group(l, i);
    AP_SYNC();
}

// Where a group's multicast has a side's bytes; 0 if it has none, or the members' bytes are at different places.
AP_INLINE u64 multicast_side(const Launch &l, u32 channel, const u32 *sides, const u64 *offsets, u32 count, u64 start) {
    if (channel == NOBODY || !l.multicasts) return 0;
    const u64 base = words(l.multicasts)[(u64)block_of(l) * l.switch_count + channel];
    if (base == 0) return 0;
    for (u32 i = 1; i < count; ++i) {
        if (offsets[i] != offsets[0] || odd_half(l, sides[i]) != odd_half(l, sides[0])) return 0;
    }
    return base + odd_half(l, sides[0]) + offsets[0] + start;
}

// The sides of a move of which one or both are groups. `from` and `to` are 0 where a side is not reached by multicast.
template <class Op, int reads, int writes>
AP_INLINE void transfer_multicast(const Sides<reads, writes> &sides, u64 from, u64 to, u64 len) {
    for (u64 at = (u64)AP_THREAD() * 16; at < len; at += (u64)AP_THREADS() * 16) {
        Vector v;
        if (from) {
            v = Combined<Element, Op>::load((const u8 *)from + at);
        } else {
            v = load_vector(sides.from[0] + at);
            if (reads > 1) {
                typename Accumulator<Op, reads, Vector>::Type sums;
                sums.take(v);
#pragma unroll
                for (int i = 1; i < reads; ++i) sums.template combine<Op>(load_vector(sides.from[i] + at));
                v = sums.result();
            }
        }
        if (to) {
            multicast_store((u8 *)to + at, v);
            continue;
        }
#pragma unroll
        for (int i = 0; i < writes; ++i) store_vector(sides.to[i] + at, v);
    }
}

// Words: the move's number, its sides, the switch channels of all that is read and of all that is written, all
// ones where they are no group.
template <class Op, int reads, int writes> AP_DEVICE void move_multicast(const Launch &l, const u32 *o, Window w) {
    if (!still_runs()) return;
    // What the members wrote by their own addresses is read, and what is written is read, by another one.
    fence_alias();
    for (Parts part = parts_of(o[0], w); advance(part);) {
        const u32 *all = o + 1;
        const u64 *offsets = part.offsets;
        u64 from = Combined<Element, Op>::known && reads > 1 ? multicast_side(l, all[reads + writes], all, offsets, reads, part.start) : 0;
        u64 to = multicast_side(l, all[reads + writes + 1], all + reads, offsets + reads, writes, part.start);
        Sides<reads, writes> sides;
        find<reads, writes>(l, all, part, sides);
        // 16 bytes at a time on every side that is used, and elements one by one where that does not go.
        u64 places = from | to;
        if (!from) {
#pragma unroll
            for (int i = 0; i < reads; ++i) places |= (u64)sides.from[i];
        }
        if (!to) {
#pragma unroll
            for (int i = 0; i < writes; ++i) places |= (u64)sides.to[i];
        }
        const u64 body = (from | to) && (places & 15) == 0 ? part.len & ~15ull : 0;
        if (body) transfer_multicast<Op, reads, writes>(sides, from, to, body);
#pragma unroll
        for (int i = 0; i < reads; ++i) sides.from[i] += body;
#pragma unroll
        for (int i = 0; i < writes; ++i) sides.to[i] += body;
        transfer<Op, reads, writes>(sides, part.len - body);
    }
    fence_alias();
}

#else

AP_INLINE void find_groups(const Launch &) {}

template <class Op, int reads, int writes> AP_INLINE void move_multicast(const Launch &l, const u32 *o, Window w) {
    move_bytes<Op, reads, writes>(l, o, w);
}

#endif

template <class Op> AP_INLINE void move_multicast_wide(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    move_bytes_wide<Op>(l, o, reads, writes, w);
}

