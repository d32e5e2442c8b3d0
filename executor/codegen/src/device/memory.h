// Pieces of moves, and windows of pipelines.

struct Window {
    u64 start;
    u64 unit;
};

#define NO_WINDOW (Window{0, ~0ull})

AP_INLINE Pieces pieces_of(u32 index) { return ((const Pieces *)state().moves)[index]; }
AP_INLINE Piece piece_at(u32 k) { return ((const Piece *)state().pieces)[k]; }
AP_INLINE const u64 *offsets_of(const Piece &piece) { return words(state().offsets) + piece.offsets; }

// The part of a piece that a window covers; false if it is empty.
AP_INLINE bool clip(const Piece &piece, const Window &w, u64 &start, u64 &len, u64 &padded) {
    const u64 end = piece.position + piece.padded;
    const u64 from = w.start > piece.position ? w.start : piece.position;
    const u64 limit = w.start + w.unit < w.start ? ~0ull : w.start + w.unit;
    const u64 to = limit < end ? limit : end;
    if (to <= from) return false;
    start = from - piece.position;
    padded = to - from;
    const u64 left = piece.len > start ? piece.len - start : 0;
    len = left < padded ? left : padded;
    return true;
}

AP_INLINE u64 loop_count(const Launch &l, const u32 *o) { return words(l.loops)[o[0]]; }

AP_INLINE Window loop_window(const u32 *o, u64 iteration) {
    const u64 unit = (u64)o[1] | (u64)o[2] << 32;
    return Window{iteration * unit, unit};
}

