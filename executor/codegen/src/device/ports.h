// Port channels: requests that a block hands to the proxy, through a queue of lines of eight words.
//
// Line 1 has how many places are free again, and whether the queue is closed; line 2 + (t mod n) the request of place t, which
// is there once its first word is t + 1. The host reads them. What producers alone use, the places claimed so far and a count
// of free places that one of them saw, is in the device's own memory.

AP_INLINE const Link &link_of(const Launch &l, u32 channel) { return ((const Link *)l.links)[channel]; }

// Hands a request over; its number. `kind` and `index` say what is waited for while the queue is full.
AP_DEVICE u64 push(const Launch &l, const Link &link, u32 kind, u32 index, u64 kinds, const u64 *data) {
    u64 *claims = words(link.claims), *lines = words(link.fifo);
    const u64 ticket = claim(claims, 1);
    if (ticket - load_acquire(claims + 1) >= link.capacity) {
        bool closed = false;
        look(l, kind, index, [&] {
            const u64 tail = load_acquire(lines + 8);
            if (ticket < tail + link.capacity) {
                raise_release(claims + 1, tail);
                return true;
            }
            closed = load_acquire(lines + 9) != 0;
            return closed;
        });
        if (closed) fail(l, AT_CLOSED, index);
        if (!still_runs()) return ticket;
    }
    u64 *request = lines + 8 * (2 + (ticket & (link.capacity - 1)));
    store_relaxed(request + 1, kinds);
    store_relaxed(request + 2, link.peer);
    for (u32 i = 0; i < 5; ++i) store_relaxed(request + 3 + i, data ? data[i] : 0);
    store_release(request, ticket + 1);
    raise_release(words(link.asked), ticket + 1);
    return ticket;
}

// Words of launches, for ranks of other nodes.
AP_DEVICE void tell(const Launch &l, u32 link, const u64 *word, u64 value) {
    if (!still_runs()) return;
    const u64 data[5] = {0, 0, FOREIGN, (u64)word, value};
    push(l, link_of(l, link), AT_LANDING, link, REQUEST_SIGNAL | REQUEST_VALUE, data);
}

AP_DEVICE void send(const Launch &l, u32 link, const u64 *from, const u64 *to, u64 bytes) {
    if (!still_runs()) return;
    const u64 data[5] = {FOREIGN, (u64)from, FOREIGN, (u64)to, bytes};
    push(l, link_of(l, link), AT_LANDING, link, REQUEST_DATA, data);
}

// Waits until all that was handed over for a peer before is done.
AP_DEVICE void flush(const Launch &l, const Link &link, u32 kind, u32 index) {
    const u64 ticket = push(l, link, kind, index, REQUEST_FLUSH, 0);
    if (!still_runs()) return;
    const u64 *done = words(link.done);
    look(l, kind, index, [&] { return load_acquire(done) > ticket; });
}

// Words of each: the place, the move's number, the channel, what is read, what is written.
AP_DEVICE void posts(const Launch &l, const u32 *o, u32 count, u32 first, Window w) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) {
        const u32 *own = o + 5 * i, from = own[3], to = own[4];
        const bool packets = is_packets(from);
        for (Parts part = parts_of(own[1], w); advance(part);) {
            const u64 bytes = packets ? 2 * part.padded : part.len, times = packets ? 2 : 1;
            if (bytes == 0) continue;
            const u64 data[5] = {
                FOREIGN, (u64)area(l, from) + times * (part.offsets[0] + part.start),
                FOREIGN, (u64)area(l, to) + times * (part.offsets[1] + part.start), bytes,
            };
            push(l, link_of(l, own[2]), AT_INSTRUCTION, own[0], packets ? REQUEST_DATA | REQUEST_PACKETS : REQUEST_DATA, data);
        }
    }
}

// Words of each: the place, and the channel, all ones if nobody hears it.
AP_DEVICE void port_signals(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) {
        if (o[2 * i + 1] == NOBODY) continue;
        const Link &link = link_of(l, o[2 * i + 1]);
        const u64 data[5] = {0, 0, FOREIGN, (u64)inbound(l, link.peer, link.paired), 0};
        push(l, link, AT_INSTRUCTION, o[2 * i], REQUEST_SIGNAL, data);
    }
}

// Words of each: the place, and the channel.
AP_DEVICE void flushes(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) flush(l, link_of(l, o[2 * i + 1]), AT_INSTRUCTION, o[2 * i]);
}

// Waits until nothing is under way any more that the launch has handed over: it may still be read, and is not yet written.
// Every thread of the launch's last block calls it.
AP_DEVICE void land(const Launch &l) {
    for (u32 i = mine(0); i < l.link_count; i += doers()) {
        const Link &link = link_of(l, i);
        if (!link.leads || load_acquire(words(link.done)) >= load_acquire(words(link.asked))) continue;
        flush(l, link, AT_LANDING, i);
    }
}
