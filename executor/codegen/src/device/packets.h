// Moves with packets on some side: 8 bytes of payload, which are two units of packets, by one thread at a time.
//
// A unit is 4 bytes of payload, then 4 bytes of flag, and always appears whole; 16 bytes of packets are two of them. So
// packets of 8 and of 16 bytes have the same bytes, and each unit proves its own arrival.

union Words {
    u64 all;
    u32 word[2];
    u8 byte[8];
    Stored element[8 / sizeof(Stored)];
};

// 8 bytes of a raw area, of which those from `len` on are not there, element by element.
AP_DEVICE u64 read_elements(const u8 *from, u64 at, u64 len) {
    Words w;
    w.all = 0;
#pragma unroll
    for (u32 i = 0; i < 8 / sizeof(Stored); ++i) {
        const u64 place = at + i * sizeof(Stored);
        if (place < len) w.element[i] = load_plain<Stored>(from + place);
    }
    return w.all;
}

AP_INLINE u64 read_raw(const u8 *from, u64 at, u64 len) {
    if (at + 8 <= len && ((u64)(from + at) & 7) == 0) return load_plain<u64>(from + at);
    return read_elements(from, at, len);
}

AP_DEVICE void write_elements(u8 *to, u64 at, u64 len, u64 value) {
    Words w;
    w.all = value;
#pragma unroll
    for (u32 i = 0; i < 8 / sizeof(Stored); ++i) {
        const u64 place = at + i * sizeof(Stored);
        if (place < len) store_plain<Stored>(to + place, w.element[i]);
    }
}

AP_INLINE void write_raw(u8 *to, u64 at, u64 len, u64 value) {
    if (at + 8 <= len && ((u64)(to + at) & 7) == 0) {
        store_plain<u64>(to + at, value);
    } else {
        write_elements(to, at, len, value);
    }
}

AP_INLINE bool arrived(const Pair &pair, u32 flag) {
    return (u32)(pair.first >> 32) == flag && (u32)(pair.second >> 32) == flag;
}

AP_INLINE u64 payload(const Pair &pair) { return (u64)(u32)pair.first | pair.second << 32; }

AP_INLINE void write_packets(u8 *to, u64 at, u64 value, u32 flag) {
    const u64 high = (u64)flag << 32;
    store_pair(to + 2 * at, Pair{high | (u32)value, high | value >> 32});
}

// Payload from `len` on is zero in packets.
AP_INLINE u64 clipped(u64 value, u64 at, u64 len) {
    if (at + 8 <= len) return value;
    return at >= len ? 0 : value & ((1ull << 8 * (len - at)) - 1);
}

AP_INLINE bool is_packets(u32 side) { return (side & 3) == 3; }

// Where a side of a piece is, counted so that byte `at` of the payload is `at` bytes behind it, or twice that in packets.
AP_INLINE u8 *side_of(const Launch &l, u32 side, u64 offset) {
    return area(l, side) + (is_packets(side) ? 2 * offset : offset);
}

// Any number of sides. Words as of moves of bytes.
template <class Op> AP_DEVICE void move_packets_wide(const Launch &l, const u32 *o, u32 reads, u32 writes, Window w) {
    if (!still_runs()) return;
    const u32 *all = o + 1;
    const u32 flag = state().flag;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        const u64 *offsets = part.offsets;
        for (u64 at = (u64)AP_THREAD() * 8; at < part.padded; at += (u64)AP_THREADS() * 8) {
            typename Accumulator<Op, MANY, u64>::Type sums;
            u64 value = 0;
#pragma unroll 1
            for (u32 i = 0; i < reads; ++i) {
                const u8 *from = side_of(l, all[i], offsets[i] + part.start);
                if (is_packets(all[i])) {
                    Pair pair = load_pair(from + 2 * at);
                    for (u32 looks = 0; !arrived(pair, flag); pair = load_pair(from + 2 * at)) {
                        if (!goes_on(l, AT_PACKETS, o[0], looks)) return;
                    }
                    value = payload(pair);
                } else {
                    value = read_raw(from, at, part.len);
                }
                if (reads == 1) break;
                if (i == 0) sums.take(value);
                else sums.template combine<Op>(value);
            }
            if (reads > 1) value = sums.result();
#pragma unroll 1
            for (u32 i = 0; i < writes; ++i) {
                u8 *to = side_of(l, all[reads + i], offsets[reads + i] + part.start);
                if (is_packets(all[reads + i])) write_packets(to, at, clipped(value, at, part.len), flag);
                else write_raw(to, at, part.len, value);
            }
        }
    }
}

// Moves that a thread has in hand at once.
#define AT_ONCE 4

// As above, with the number of sides and their kinds known: `from` and `to` have a bit for each that is packets.
template <class Op, int reads, int writes, u32 from, u32 to> AP_DEVICE void move_packets(const Launch &l, const u32 *o, Window w) {
    if (!still_runs()) return;
    const u32 flag = state().flag;
    for (Parts part = parts_of(o[0], w); advance(part);) {
        const u64 *offsets = part.offsets;
        u8 *sides[reads + writes];
#pragma unroll
        for (int i = 0; i < reads + writes; ++i) sides[i] = side_of(l, o[1 + i], offsets[i] + part.start);
        for (u64 at = (u64)AP_THREAD() * 8; at < part.padded; at += (u64)AP_THREADS() * 8) {
            // All packets are on their way before one is looked at. What never arrives goes nowhere.
            u64 values[reads];
#pragma unroll
            for (int i = 0; i < reads; ++i) {
                if (!(from >> i & 1)) values[i] = read_raw(sides[i], at, part.len);
            }
            if (from) {
                u32 looks = 0;
                for (;;) {
                    Pair pairs[reads];
#pragma unroll
                    for (int i = 0; i < reads; ++i) {
                        if (from >> i & 1) pairs[i] = load_pair(sides[i] + 2 * at);
                    }
                    bool all = true;
#pragma unroll
                    for (int i = 0; i < reads; ++i) {
                        if (!(from >> i & 1)) continue;
                        all &= arrived(pairs[i], flag);
                        values[i] = payload(pairs[i]);
                    }
                    if (all) break;
                    if (!goes_on(l, AT_PACKETS, o[0], looks)) return;
                }
            }
            u64 value = values[0];
            if (reads > 1) {
                typename Accumulator<Op, reads, u64>::Type sums;
                sums.take(values[0]);
#pragma unroll
                for (int i = 1; i < reads; ++i) sums.template combine<Op>(values[i]);
                value = sums.result();
            }
#pragma unroll
            for (int i = 0; i < writes; ++i) {
                if (to >> i & 1) write_packets(sides[reads + i], at, clipped(value, at, part.len), flag);
                else write_raw(sides[reads + i], at, part.len, value);
            }
        }
    }
}


// Several moves in a row with one source and one destination each, one of them packets, the other raw: they need nothing of each
// other, so what several of them read is on its way before any of it is looked at. Their words follow each other, `stride` for each.
template <u32 from, u32 to> AP_DEVICE void move_packets_each(const Launch &l, const u32 *o, u32 count, u32 stride, Window w) {
    if (!still_runs()) return;
    const u32 flag = state().flag;
    for (u32 first = 0; first < count; first += AT_ONCE, o += AT_ONCE * stride) {
        u8 *reads[AT_ONCE], *writes[AT_ONCE];
        u64 lens[AT_ONCE], paddeds[AT_ONCE], longest = 0;
        bool whole = true;
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; ++i) {
            paddeds[i] = 0;
            if (first + i >= count) continue;
            const u32 *own = o + i * stride;
            const Pieces pieces = pieces_of(own[0]);
            if (pieces.start == pieces.end) continue;
            whole &= pieces.end - pieces.start == 1;
            const Piece piece = piece_at(pieces.start);
            u64 start, padded;
            if (!clip(piece, w, start, lens[i], padded)) continue;
            const u64 *offsets = offsets_of(piece);
            reads[i] = side_of(l, own[1], offsets[0] + start);
            writes[i] = side_of(l, own[2], offsets[1] + start);
            paddeds[i] = padded;
            longest = padded > longest ? padded : longest;
        }
        if (!whole) {
            for (u32 i = 0; i < AT_ONCE && first + i < count; ++i) move_packets<Sum, 1, 1, from, to>(l, o + i * stride, w);
            continue;
        }
        for (u64 at = (u64)AP_THREAD() * 8; at < longest; at += (u64)AP_THREADS() * 8) {
            u64 values[AT_ONCE];
            if (from) {
                for (u32 looks = 0;;) {
                    Pair pairs[AT_ONCE];
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; ++i) {
                        if (at < paddeds[i]) pairs[i] = load_pair(reads[i] + 2 * at);
                    }
                    u32 missing = AT_ONCE;
#pragma unroll
                    for (u32 i = 0; i < AT_ONCE; ++i) {
                        if (at >= paddeds[i]) continue;
                        if (!arrived(pairs[i], flag)) missing = i;
                        values[i] = payload(pairs[i]);
                    }
                    if (missing == AT_ONCE) break;
                    if (!goes_on(l, AT_PACKETS, o[missing * stride], looks)) return;
                }
            } else {
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i) {
                    if (at < paddeds[i]) values[i] = read_raw(reads[i], at, lens[i]);
                }
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; ++i) {
                if (at >= paddeds[i]) continue;
                if (to) write_packets(writes[i], at, clipped(values[i], at, lens[i]), flag);
                else write_raw(writes[i], at, lens[i], values[i]);
            }
        }
    }
}
