// Runtime blocks: places and lengths that come with each call.

AP_INLINE RuntimeBlock runtime_block(const Launch &l, const u32 *o) {
    const RuntimeBlock *table = (const RuntimeBlock *)words(l.runtime)[o[0] >> 2];
    return table[o[1] + (state().number & 1) * o[2]];
}

// A slice of a runtime block to a slice of another. Words: the place; of both the side, the entry in the owner's table and
// the table's entries; the slice's number and how many there are. Slices are whole multiples of `unit`, but for the last.
AP_DEVICE void move_block(const Launch &l, const u32 *o, u64 unit) {
    if (!still_runs()) return;
    const RuntimeBlock read = runtime_block(l, o + 1), written = runtime_block(l, o + 4);
    if (read.len != written.len) {
        if (AP_THREAD() == 0) fail(l, AT_UNEQUAL, o[0]);
        return;
    }
    const u64 part = (u64)o[7] | (u64)o[8] << 32, parts = (u64)o[9] | (u64)o[10] << 32;
    u64 start = 0, end = read.len;
    if (parts > 1) {
        const u64 units = (read.len + unit - 1) / unit, each = units / parts, rest = units % parts;
        start = (part * each + (part < rest ? part : rest)) * unit;
        end = start + (each + (part < rest)) * unit;
        if (start > read.len) start = read.len;
        if (end > read.len) end = read.len;
    }
    Sides<1, 1> sides;
    sides.from[0] = area(l, o[1]) + read.offset + start;
    sides.to[0] = area(l, o[4]) + written.offset + start;
    transfer<Sum, 1, 1>(sides, end - start);
}

