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

// The parts of a move's pieces that a window covers, one after the other.
struct Parts {
    u32 next, end;
    Window window;
    // Of the part: where it begins in its piece, its bytes, and those of its packets; and where the piece's sides are.
    u64 start, len, padded;
    const u64 *offsets;
};

AP_INLINE Parts parts_of(u32 move, const Window &w) {
    const Pieces pieces = pieces_of(move);
    Parts parts;
    parts.next = pieces.start;
    parts.end = pieces.end;
    parts.window = w;
    return parts;
}

// Goes on to the next part; false behind the last.
AP_INLINE bool advance(Parts &part) {
    while (part.next < part.end) {
        const Piece piece = piece_at(part.next++);
        if (!clip(piece, part.window, part.start, part.len, part.padded)) continue;
        part.offsets = offsets_of(piece);
        return true;
    }
    return false;
}

AP_INLINE u64 loop_count(const Launch &l, const u32 *o) { return words(l.loops)[o[0]]; }

AP_INLINE Window loop_window(const u32 *o, u64 iteration) {
    const u64 unit = (u64)o[1] | (u64)o[2] << 32;
    return Window{iteration * unit, unit};
}

