// A launch's begin and end: where peers' memory is, who must be waited for, and what the host can see of it.

#define NOBODY 0xffffffffu

AP_INLINE u64 *words(u64 address) { return (u64 *)address; }
AP_INLINE const u32 *numbers(u64 address) { return (const u32 *)address; }

// What all threads of a block know of the launch.
struct State {
    u64 number;
    u32 flag;
    // Any thread may set it to 0, and count in the next, at any time.
    u32 runs;
    u32 waits;
    u32 last;
};

AP_SHARED(State, state)

// Whether the block goes on, as far as this thread knows.
AP_INLINE bool still_runs() { return load_shared(&state().runs) != 0; }

AP_INLINE void end_early() { store_shared(&state().runs, 0); }

// Which of its rank's blocks this is.
AP_INLINE u32 block_of(const Launch &l) { return AP_BLOCK() - l.first_block; }

AP_INLINE ContextWords *context_of(const Launch &l) { return (ContextWords *)l.context; }

// How often a wait looks before it says where it is.
#define PATIENCE 256
// How many looks lie between two at the word that ends launches. It is the host's, and to look there takes longer than to look for a
// signal.
#define STRIDE 1024
// What a block that has ended early counts as among those that are over, beside one.
#define EARLY 0x10000u

AP_INLINE void note(const Launch &l, u32 kind, u32 index) {
    Progress *mine = (Progress *)l.progress + block_of(l);
    store_relaxed(&mine->at, state().number << 32 | kind << 28 | (index & 0xfffffffu));
    store_relaxed(&mine->waits, add_shared(&state().waits, 1) + 1);
}

// The launch cannot go on: it stays until the host has seen why, and ends it.
AP_INLINE void fail(const Launch &l, u32 kind, u32 index) {
    note(l, kind, index);
    end_early();
    while (!load_word(numbers(l.stop))) pause_briefly();
}

// What a wait does between two looks; false if the launch ends. `looks` begins with 0; `kind` and `index` tell the host what
// is waited for.
AP_INLINE bool goes_on(const Launch &l, u32 kind, u32 index, u32 &looks) {
    if (++looks < PATIENCE) return true;
    if (looks == PATIENCE) note(l, kind, index);
    if (!still_runs() || (looks % STRIDE == 0 && load_word(numbers(l.stop)))) {
        end_early();
        return false;
    }
    pause_briefly();
    return true;
}

// Looks until `done` says so; false if the launch ends before.
template <class Done> AP_INLINE bool look(const Launch &l, u32 kind, u32 index, const Done &done) {
    for (u32 looks = 0; !done();) {
        if (!goes_on(l, kind, index, looks)) return false;
    }
    return true;
}

// Where this rank sees a rank's arena, as far as it has asked for it before.
AP_INLINE u8 *arena(const Launch &l, u32 rank) {
    return (u8 *)(rank == l.rank ? l.arena : words(l.arenas)[rank]);
}

// The same, waiting until it is mapped; 0 if the launch ends before.
AP_INLINE u8 *await_arena(const Launch &l, u32 rank) {
    if (rank == l.rank) return (u8 *)l.arena;
    // Another block may have put it there a moment ago: with it comes what it wrote before.
    u8 *known = (u8 *)load_acquire(words(l.arenas) + rank);
    if (known) return known;
    const u64 *mapped = words(l.mapped_arenas) + rank;
    if (!look(l, AT_ARENA, rank, [&] { return load_acquire(mapped) != 0; })) return 0;
    const u64 address = load_relaxed(mapped);
    if (l.runtime_places) store_relaxed(words(l.runtime) + rank, address + words(l.runtime_places)[rank]);
    store_release(words(l.arenas) + rank, address);
    return (u8 *)address;
}

// What rank `from` writes into an arena.
AP_INLINE Inbox *inbox(u8 *arena, u32 from) { return (Inbox *)arena + from; }

// Where this rank sees a region of a peer; 0 if the launch ends before it is mapped.
AP_INLINE u64 await_region(const Launch &l, u32 peer, u64 region) {
    const u32 slot = (u32)region;
    u32 chunk = 0;
    while (chunk + 1 < CHUNKS && slot >= FIRST_CHUNK * ((2u << chunk) - 1)) ++chunk;
    const u64 *address = words(l.regions) + (u64)peer * CHUNKS + chunk;
    const u32 at = slot - FIRST_CHUNK * ((1u << chunk) - 1);
    const RegionEntry *entry = 0;
    const bool found = look(l, AT_REGION, peer, [&] {
        const u64 entries = load_acquire(address);
        if (!entries) return false;
        entry = (const RegionEntry *)entries + at;
        return load_acquire(&entry->region) == region;
    });
    return found ? load_relaxed(&entry->base) : 0;
}

// Finds what a block touches of a peer: `entry` is the peer times two, plus one if that includes its buffers.
AP_INLINE void resolve(const Launch &l, u32 entry) {
    const u32 peer = entry >> 1;
    if (!await_arena(l, peer) || !(entry & 1)) return;
    const Descriptor *d = &inbox((u8 *)l.arena, peer)->descriptors[state().number & 1];
    if (!look(l, AT_DESCRIPTOR, peer, [&] { return load_acquire(&d->count) == state().number; })) return;
    if (load_relaxed(&d->fingerprint) != l.fingerprint) {
        return fail(l, AT_MISMATCH, peer);
    }
    Resolved *found = (Resolved *)l.resolved + ((u64)block_of(l) * l.world + peer) * 2;
    for (u32 side = 0; side < 2; ++side) {
        const u64 region = load_relaxed(side ? &d->output_region : &d->input_region);
        const u64 offset = load_relaxed(side ? &d->output_offset : &d->input_offset);
        u64 base = 0;
        if (region != FOREIGN) {
            base = found[side].base;
            if (found[side].region != region) {
                base = await_region(l, peer, region);
                if (!base) return;
                found[side].base = base;
                found[side].region = region;
            }
        }
        found[side].address = base + offset;
    }
}

// Where this rank sees a side of a move: word / 4 is the rank, word % 4 the area.
AP_INLINE u8 *area(const Launch &l, u32 side) {
    const u32 rank = side >> 2, kind = side & 3;
    if (kind & 2) {
        const ScratchPlaces &places = ((const ScratchPlaces *)l.scratch)[rank];
        const u64 odd = state().number & 1;
        const u64 at = kind == 2 ? places.raw + odd * places.raw_half : places.packets + odd * places.packets_half;
        return arena(l, rank) + at;
    }
    if (rank == l.rank) return (u8 *)(kind ? l.output : l.input);
    return (u8 *)((const Resolved *)l.resolved)[((u64)block_of(l) * l.world + rank) * 2 + kind].address;
}

// How far a side of a move is behind where it is in even launches.
AP_INLINE u64 odd_half(const Launch &l, u32 side) {
    if (!(side & 2) || !(state().number & 1)) return 0;
    const ScratchPlaces &places = ((const ScratchPlaces *)l.scratch)[side >> 2];
    return side & 1 ? places.packets_half : places.raw_half;
}

// Where signals of a channel of a rank arrive.
AP_INLINE u64 *inbound(const Launch &l, u32 rank, u32 channel) {
    return (u64 *)(arena(l, rank) + l.counters + (u64)channel * LINE);
}

// How launches tell a rank of themselves: by memory that is mapped, by a link, or not at all.
AP_INLINE u32 way(const Launch &l, u32 peer) { return l.ways ? numbers(l.ways)[peer] : NEAR; }

// Has a word of a peer on another node set, behind all that was handed over for it before.
AP_DEVICE void tell(const Launch &l, u32 link, const u64 *word, u64 value);

// The same for some bytes of this rank's own memory, which stay as they are until they have landed.
AP_DEVICE void send(const Launch &l, u32 link, const u64 *from, const u64 *to, u64 bytes);

// Tells a peer on another node where this rank's buffers are, by their addresses here.
AP_INLINE void publish_far(const Launch &l, u32 link, Descriptor *there) {
    // Each thread that does so puts the same there.
    Descriptor *d = &context_of(l)->outgoing[state().number & 1];
    store_relaxed(&d->fingerprint, l.fingerprint);
    store_relaxed(&d->input_region, FOREIGN);
    store_relaxed(&d->input_offset, l.input);
    store_relaxed(&d->output_region, FOREIGN);
    store_relaxed(&d->output_offset, l.output);
    send(l, link, &d->fingerprint, &there->fingerprint, 5 * sizeof(u64));
    tell(l, link, &there->count, state().number);
}

// Tells a peer where this rank's buffers are.
AP_INLINE void publish(const Launch &l, u32 peer) {
    u8 *there = await_arena(l, peer);
    if (!there) return;
    Descriptor *d = &inbox(there, l.rank)->descriptors[state().number & 1];
    const u32 by = way(l, peer);
    if (by != NEAR) return publish_far(l, by, d);
    store_relaxed(&d->fingerprint, l.fingerprint);
    store_relaxed(&d->input_region, l.input_region);
    store_relaxed(&d->input_offset, l.input_offset);
    store_relaxed(&d->output_region, l.output_region);
    store_relaxed(&d->output_offset, l.output_offset);
    store_release(&d->count, state().number);
}

AP_INLINE void find_groups(const Launch &l);

// Every thread of the block calls it first; false if the launch shall not run.
AP_DEVICE bool begin(const Launch &l, const BlockEntry &b) {
    u32 stopped = 0;
    if (AP_THREAD() == 0) {
        // Asked first and looked at last: the answer comes from the host.
        stopped = load_word(numbers(l.stop));
        // It is added to when the last block of a launch is over, so it is the same for all blocks.
        const u64 number = load_relaxed(&context_of(l)->count);
        state().number = number;
        // What has ended has begun: the end is told behind all of this. Nothing here waits for the host's memory.
        if (block_of(l) == 0) {
            store_relaxed(words(l.marks) + 3, l.given);
            store_relaxed(words(l.marks), number);
        }
        // Never 0, which is what memory holds before the first packet.
        state().flag = (u32)(number % 0xffffffffull) + 1;
        state().runs = 1;
        state().waits = 0;
        // Whether scratch was cut otherwise in the last launch.
        state().last = context_of(l)->shape != l.shape;
    }
    AP_SYNC();
    const bool other = state().last != 0;
    const u64 least = state().number - (other ? 1 : 2);
    if (other || state().number > 2) {
        const u32 count = other ? l.world : l.behind_count;
        for (u32 i = AP_THREAD(); i < count; i += AP_THREADS()) {
            const u32 peer = other ? i : numbers(l.behind)[i];
            if (peer == l.rank || way(l, peer) == NOBODY) continue;
            const u64 *completed = &inbox((u8 *)l.arena, peer)->completed;
            look(l, AT_COMPLETION, peer, [&] { return load_acquire(completed) >= least; });
        }
    }
    // Each block puts them there, for it reads them itself, and they are the same.
    const u64 *own = words(l.own_blocks);
    for (u32 i = AP_THREAD(); i < 2 * l.own_block_count; i += AP_THREADS()) {
        u64 *there = words(words(l.runtime)[l.rank]) + (state().number & 1) * 2 * l.own_block_count;
        store_relaxed(there + i, load_relaxed(own + i));
    }
    if (stopped) end_early();
    AP_SYNC();
    if (still_runs()) {
        if (block_of(l) == 0) {
            for (u32 i = AP_THREAD(); i < l.reader_count; i += AP_THREADS()) publish(l, numbers(l.readers)[i]);
        }
        for (u32 i = AP_THREAD(); i < b.peer_count; i += AP_THREADS()) resolve(l, numbers(l.peers)[b.peers + i]);
    }
    AP_SYNC();
    find_groups(l);
    const bool goes = still_runs();
    // Before anybody goes on, and may end the block for all.
    AP_SYNC();
    return goes;
}

AP_INLINE void land(const Launch &l);

// Every thread of the block calls it last.
AP_DEVICE void finish(const Launch &l) {
    AP_SYNC();
    if (AP_THREAD() == 0) {
        // A block that has ended early has not done its part, and a rank that has not is never said to be through.
        const u32 part = still_runs() ? 1 : 1 + EARLY;
        const u32 over = fetch_add_word(&context_of(l)->finished, part) + part;
        state().last = over % EARLY == l.block_count;
        if (over >= EARLY) end_early();
    }
    AP_SYNC();
    if (!state().last) return;
    if (l.ways && still_runs()) {
        // Behind all that was handed over, so that it says as much as what follows says to ranks that are near.
        for (u32 peer = AP_THREAD(); peer < l.world; peer += AP_THREADS()) {
            const u32 by = way(l, peer);
            if (peer == l.rank || by == NEAR || by == NOBODY) continue;
            u8 *there = await_arena(l, peer);
            if (there) tell(l, by, &inbox(there, l.rank)->completed, state().number);
        }
    }
    AP_SYNC();
    if (still_runs()) land(l);
    AP_SYNC();
    if (still_runs()) {
        for (u32 peer = AP_THREAD(); peer < l.world; peer += AP_THREADS()) {
            if (peer == l.rank || way(l, peer) != NEAR) continue;
            u8 *there = await_arena(l, peer);
            if (there) store_release(&inbox(there, l.rank)->completed, state().number);
        }
        for (u32 i = AP_THREAD(); i < l.late_count; i += AP_THREADS()) {
            const u32 peer = numbers(l.late)[i];
            const u64 *completed = &inbox((u8 *)l.arena, peer)->completed;
            look(l, AT_COMPLETION, peer, [&] { return load_acquire(completed) >= state().number; });
        }
    }
    AP_SYNC();
    if (AP_THREAD() != 0) return;
    ContextWords *context = context_of(l);
    context->finished = 0;
    context->shape = l.shape;
    store_relaxed(&context->count, state().number + 1);
    if (l.given) store_relaxed(words(l.marks) + 2, l.given);
    store_release(words(l.marks) + 1, state().number);
}

