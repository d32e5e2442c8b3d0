// Signals, semaphores, barriers. Each is done by one thread; of several in a row, each by another (`mine`).

// A signal to where this device cannot add: the count is stored. Blocks with the same channel do so one after the other, in the
// order of their numbers, so that it never falls. Who has the number before stores at once, also when the launch ends early.
AP_DEVICE void signal_by_count(u64 *sent, u64 *counter) {
    const u64 before = fetch_add_relaxed(sent, 1);
    while (load_acquire(sent + 1) != before) pause_briefly();
    // Also of a relaxed signal: whoever reads its count hears of the ones before it, which a plain store would not pass on.
    store_release(counter, before + 1);
    store_release(sent + 1, before + 1);
}

// Words of each: the peer, the peer's channel, and the channel.
template <bool release> AP_DEVICE void signals(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) {
        if (o[3 * i + 1] == NOBODY) continue;
        u64 *counter = inbound(l, o[3 * i], o[3 * i + 1]);
        if (l.sent) signal_by_count(words(l.sent) + 2 * o[3 * i + 2], counter);
        else if (release) add_release(counter, 1);
        else add_relaxed(counter, 1);
    }
}

// Words of each: the place, and the channel.
template <bool acquire> AP_DEVICE void waits(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) {
        const u32 channel = o[2 * i + 1];
        const u64 expected = fetch_add_relaxed(words(l.expected) + channel, 1) + 1;
        const u64 *counter = inbound(l, l.rank, channel);
        look(l, AT_INSTRUCTION, o[2 * i], [&] { return (acquire ? load_acquire(counter) : load_relaxed(counter)) >= expected; });
    }
}

// Words of each: the place, and the semaphore.
AP_DEVICE void acquires(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) {
        u64 *semaphore = words(l.semaphores) + o[2 * i + 1];
        const i64 before = (i64)fetch_add(semaphore, ~0ull);
        if (before > 0) continue;
        look(l, AT_INSTRUCTION, o[2 * i], [&] { return (i64)load_acquire(semaphore) >= before; });
    }
}

// Words of each: the semaphore.
AP_DEVICE void releases(const Launch &l, const u32 *o, u32 count, u32 first) {
    if (!still_runs()) return;
    for (u32 i = mine(first); i < count; i += doers()) fetch_add(words(l.semaphores) + o[i], 1);
}

// Words: the place, the barrier, how many blocks meet.
AP_DEVICE void barrier(const Launch &l, const u32 *o) {
    AP_SYNC();
    if (AP_THREAD() == 0 && still_runs()) {
        u64 *arrived = words(l.barriers) + o[1];
        const u64 blocks = o[2], full = (fetch_add(arrived, 1) / blocks + 1) * blocks;
        look(l, AT_INSTRUCTION, o[0], [&] { return load_acquire(arrived) >= full; });
    }
    AP_SYNC();
}

