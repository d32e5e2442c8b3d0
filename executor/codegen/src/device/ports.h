// Port channels: requests that a block hands to the proxy, through a queue of lines of eight words.
//
// Line 0 has the places claimed so far and a count of free places that some producer saw; line 1 how many places are free
// again, and whether the queue is closed; line 2 + (t mod n) the request of place t, which is there once its first word is
// t + 1.

AP_INLINE Link link_of(const Launch &l, u32 channel) { return ((const Link *)l.links)[channel]; }

// Hands a request over; its number.
AP_DEVICE u64 push(const Launch &l, const Link &link, u32 place, u64 kinds, const u64 *data) {
    u64 *lines = words(link.fifo);
    const u64 ticket = claim(lines, 1);
    if (ticket - load_acquire(lines + 1) >= link.capacity) {
        bool closed = false;
        look(l, AT_INSTRUCTION, place, [&] {
            const u64 tail = load_acquire(lines + 8);
            if (ticket < tail + link.capacity) {
                raise_release(lines + 1, tail);
                return true;
            }
            closed = load_acquire(lines + 9) != 0;
            return closed;
        });
        if (closed) fail(l, AT_CLOSED, place);
        if (!state().runs) return ticket;
    }
    u64 *request = lines + 8 * (2 + (ticket & (link.capacity - 1)));
    store_relaxed(request + 1, kinds);
    store_relaxed(request + 2, link.channel);
    for (u32 i = 0; i < 5; ++i) store_relaxed(request + 3 + i, data ? data[i] : 0);
    store_release(request, ticket + 1);
    return ticket;
}

// Words of each: the place, the move's number, the channel, what is read, what is written.
AP_DEVICE void posts(const Launch &l, const u32 *o, u32 count, u32 first, Window w) {
    if (!state().runs) return;
    const PortSide *sides = (const PortSide *)l.port_sides;
    for (u32 i = mine(first); i < count; i += AP_THREADS()) {
        const u32 *own = o + 5 * i, from = own[3], to = own[4];
        const bool packets = is_packets(from);
        const Link link = link_of(l, own[2]);
        const Pieces pieces = pieces_of(l, own[1]);
        for (u32 k = pieces.start; k < pieces.end; ++k) {
            const Piece piece = piece_at(l, k);
            u64 start, len, padded;
            if (!clip(piece, w, start, len, padded)) continue;
            const u64 bytes = packets ? 2 * padded : len;
            if (bytes == 0) continue;
            const u64 *offsets = offsets_of(l, piece), times = packets ? 2 : 1;
            const u64 data[5] = {
                sides[from].region, sides[from].start + odd_half(l, from) + times * (offsets[0] + start),
                sides[to].region, sides[to].start + odd_half(l, to) + times * (offsets[1] + start), bytes,
            };
            push(l, link, own[0], packets ? REQUEST_DATA | REQUEST_PACKETS : REQUEST_DATA, data);
        }
    }
}

// Words of each: the place, and the channel, all ones if nobody hears it.
AP_DEVICE void port_signals(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!state().runs) return;
    for (u32 i = mine(first); i < count; i += AP_THREADS()) {
        if (o[2 * i + 1] != NOBODY) push(l, link_of(l, o[2 * i + 1]), o[2 * i], REQUEST_SIGNAL, 0);
    }
}

// Words of each: the place, and the channel.
AP_DEVICE void flushes(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!state().runs) return;
    for (u32 i = mine(first); i < count; i += AP_THREADS()) {
        const Link link = link_of(l, o[2 * i + 1]);
        const u64 ticket = push(l, link, o[2 * i], REQUEST_FLUSH, 0);
        const u64 *done = words(link.done);
        look(l, AT_INSTRUCTION, o[2 * i], [&] { return load_acquire(done) > ticket; });
    }
}

