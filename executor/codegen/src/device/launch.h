// A launch's begin and end: where peers' memory is, who must be waited for, and what the host can see of it.

#define NOBODY 0xffffffffu

AP_INLINE u64 *words(u64 address) { return (u64 *)address; }
AP_INLINE const u32 *numbers(u64 address) { return (const u32 *)address; }

// Ranks, from the first on, of which a block keeps in its own memory what it has found.
#define KEPT_RANKS 32
// Words of 8 bytes that it has there for its tables.
#define KEPT_WORDS 1024

// What all threads of a block know of the launch.
struct State {
    // Where the block's tables are: in `tables`, if that has room. Moves, pieces and offsets go by the rank's numbers, so these places
    // are before what is there of them.
    u64 operands, moves, pieces, offsets;
    // Of each rank that the block touches, where its arena is, and its areas of this launch.
    u64 arenas[KEPT_RANKS];
    u64 areas[KEPT_RANKS * 4];
    u64 tables[KEPT_WORDS];
    u64 number;
    u32 flag;
    // Any thread may set it to 0, and count in the next, at any time.
    u32 runs;
    u32 waits;
    u32 last;
};

AP_SHARED(State, state)

// The block's own copy of its rank's launch: a parameter is read by its address in functions that are called, which takes as long as
// any memory's, and one that is indexed might be copied by each thread.
AP_SHARED(Launch, own_launch)

// Every thread of the block calls it before all else; what is known of the block. That is on its way while the copy is made.
AP_INLINE BlockEntry own(const Launch &parameter) {
    const BlockEntry entry = ((const BlockEntry *)parameter.blocks)[AP_BLOCK() - parameter.first_block];
    const u64 *from = (const u64 *)&parameter;
    u64 *to = (u64 *)&own_launch();
    for (u32 i = AP_THREAD(); i < sizeof(Launch) / 8; i += AP_THREADS()) to[i] = from[i];
    AP_SYNC();
    return entry;
}

// Things of which single threads do each, one behind the other if there are more: how many threads do any. Of those that go in
// step one does: others would wait with it, and perhaps for what they have yet to do themselves.
AP_INLINE u32 doers() { return (AP_THREADS() + AP_IN_STEP() - 1) / AP_IN_STEP(); }

// The first of a row of them that this thread does, if the one of number `first` does the row's first; NOBODY if it does none.
AP_INLINE u32 mine(u32 first) {
    if (AP_THREAD() % AP_IN_STEP() != 0) return NOBODY;
    return (AP_THREAD() / AP_IN_STEP() + doers() - first % doers()) % doers();
}

// Whether the block goes on, as far as this thread knows.
AP_INLINE bool still_runs() { return load_shared(&state().runs) != 0; }

AP_INLINE void end_early() { store_shared(&state().runs, 0); }

// Which of its rank's blocks this is.
AP_INLINE u32 block_of(const Launch &l) { return AP_BLOCK() - l.first_block; }

AP_INLINE ContextWords *context_of(const Launch &l) { return (ContextWords *)l.context; }

AP_INLINE Marks *marks_of(const Launch &l) { return (Marks *)l.marks; }

// How often a wait looks before it says where it is, and looks for the first time at the word that ends launches.
#define PATIENCE 256
// How many looks lie between two at that word. It is the host's: to look there takes longer than to look for a signal, and of many
// who do, one waits for the other. So a launch that waits for nothing does not look there at all.
#define STRIDE 1024
// What a block that has ended early counts as among those that are over, beside one.
#define EARLY 0x10000u

AP_INLINE void note(const Launch &l, u32 kind, u32 index) {
    Progress *mine = (Progress *)l.progress + block_of(l);
    store_relaxed(&mine->at, state().number << 32 | kind << 28 | (index & 0xfffffffu));
    store_relaxed(&mine->waits, add_shared(&state().waits, 1) + 1);
}

// The launch cannot go on: it stays until the host has seen why, and ends it.
AP_DEVICE void fail(const Launch &l, u32 kind, u32 index) {
    note(l, kind, index);
    end_early();
    while (!load_word(numbers(l.stop))) pause_briefly();
}

// What a wait does between two looks that has lasted for some time. Apart from the code that waits: what is short is soon fetched.
AP_DEVICE bool waits_on(const Launch &l, u32 kind, u32 index, u32 looks) {
    if (looks == PATIENCE) note(l, kind, index);
    if (!still_runs() || ((looks == PATIENCE || looks % STRIDE == 0) && load_word(numbers(l.stop)))) {
        end_early();
        return false;
    }
    pause_briefly();
    return true;
}

// What a wait does between two looks; false if the launch ends. `looks` begins with 0; `kind` and `index` tell the host what
// is waited for.
AP_INLINE bool goes_on(const Launch &l, u32 kind, u32 index, u32 &looks) {
    return ++looks < PATIENCE || waits_on(l, kind, index, looks);
}

// Looks until `done` says so; false if the launch ends before.
template <class Done> AP_INLINE bool look(const Launch &l, u32 kind, u32 index, const Done &done) {
    for (u32 looks = 0; !done();) {
        if (!goes_on(l, kind, index, looks)) return false;
    }
    return true;
}

// Where this rank sees a rank's arena, if the block touches that.
AP_INLINE u8 *arena(const Launch &l, u32 rank) {
    if (rank < KEPT_RANKS) return (u8 *)state().arenas[rank];
    return (u8 *)(rank == l.rank ? l.arena : words(l.arenas)[rank]);
}

// Waits until a rank's arena is mapped that no launch has found yet; 0 if the launch ends before.
AP_DEVICE u8 *await_mapped(const Launch &l, u32 rank) {
    const u64 *mapped = words(l.mapped_arenas) + rank;
    if (!look(l, AT_ARENA, rank, [&] { return load_acquire(mapped) != 0; })) return 0;
    const u64 address = load_relaxed(mapped);
    if (l.runtime_places) store_relaxed(words(l.runtime) + rank, address + words(l.runtime_places)[rank]);
    store_release(words(l.arenas) + rank, address);
    return (u8 *)address;
}

// The same as `arena`, waiting until it is mapped; 0 if the launch ends before.
AP_INLINE u8 *await_arena(const Launch &l, u32 rank) {
    if (rank == l.rank) return (u8 *)l.arena;
    // Another block may have put it there a moment ago: with it comes what it wrote before.
    u8 *known = (u8 *)load_acquire(words(l.arenas) + rank);
    return known ? known : await_mapped(l, rank);
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
    u64 base = 0;
    const bool found = look(l, AT_REGION, peer, [&] {
        const u64 entries = load_acquire(address);
        if (!entries) return false;
        const RegionEntry *entry = (const RegionEntry *)entries + at;
        if (load_acquire(&entry->region) != region) return false;
        // The entry of a region that is freed too early may become another's at any moment.
        base = load_acquire(&entry->base);
        return load_relaxed(&entry->region) == region;
    });
    return found ? base : 0;
}

// Where scratch of this launch is in a rank's arena: raw (2), or packets (3).
AP_INLINE u64 scratch(const Launch &l, u32 rank, u32 kind) {
    const ScratchPlaces &places = ((const ScratchPlaces *)l.scratch)[rank];
    const u64 odd = state().number & 1;
    return kind == 2 ? places.raw + odd * places.raw_half : places.packets + odd * places.packets_half;
}

// Finds a rank's arena, and keeps where it is.
AP_INLINE void find_arena(const Launch &l, u32 rank) {
    const bool kept = rank < KEPT_RANKS;
    // On their way together with the arena's place.
    const u64 raw = kept ? scratch(l, rank, 2) : 0, packets = kept ? scratch(l, rank, 3) : 0;
    const u64 there = (u64)await_arena(l, rank);
    if (!kept) return;
    state().arenas[rank] = there;
    state().areas[rank * 4 + 2] = there + raw;
    state().areas[rank * 4 + 3] = there + packets;
}

// Finds the buffers of a peer, whose arena was found.
AP_DEVICE void resolve(const Launch &l, u32 peer) {
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
        if (peer < KEPT_RANKS) state().areas[peer * 4 + side] = base + offset;
    }
}

// Where this rank sees a side of a move of which the block keeps nothing.
AP_DEVICE u8 *area_beyond(const Launch &l, u32 side) {
    const u32 rank = side >> 2, kind = side & 3;
    if (kind & 2) return arena(l, rank) + scratch(l, rank, kind);
    if (rank == l.rank) return (u8 *)(kind ? l.output : l.input);
    return (u8 *)((const Resolved *)l.resolved)[((u64)block_of(l) * l.world + rank) * 2 + kind].address;
}

// Where this rank sees a side of a move: word / 4 is the rank, word % 4 the area.
AP_INLINE u8 *area(const Launch &l, u32 side) {
    return side >> 2 < KEPT_RANKS ? (u8 *)state().areas[side] : area_beyond(l, side);
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
AP_DEVICE void publish(const Launch &l, u32 peer) {
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

// Copies the block's tables to its own memory, or says where they are.
AP_INLINE void fetch_tables(const Launch &l, const BlockEntry &b) {
    const BlockRange r = ((const BlockRange *)l.ranges)[block_of(l)];
    // Words of 8 bytes each has, one behind the other.
    const u64 operands = ((u64)b.operand_count + 1) / 2, pieces = r.piece_count * (u64)(sizeof(Piece) / 8);
    const bool fit = operands + r.move_count + pieces + r.offset_count <= KEPT_WORDS;
    u64 *moves_to = state().tables + operands, *pieces_to = moves_to + r.move_count, *offsets_to = pieces_to + pieces;
    if (fit) {
        const u32 *from = numbers(l.operands) + b.operands;
        u32 *to = (u32 *)state().tables;
        for (u32 i = AP_THREAD(); i < b.operand_count; i += AP_THREADS()) to[i] = from[i];
        for (u32 i = AP_THREAD(); i < r.move_count; i += AP_THREADS()) moves_to[i] = words(l.moves)[r.first_move + i];
        const u64 *first = words(l.pieces) + (u64)r.first_piece * (sizeof(Piece) / 8);
        for (u32 i = AP_THREAD(); i < pieces; i += AP_THREADS()) pieces_to[i] = first[i];
        for (u32 i = AP_THREAD(); i < r.offset_count; i += AP_THREADS()) offsets_to[i] = words(l.offsets)[r.first_offset + i];
    }
    if (AP_THREAD() != 0) return;
    state().operands = fit ? (u64)state().tables : l.operands + b.operands * sizeof(u32);
    state().moves = fit ? (u64)moves_to - (u64)r.first_move * sizeof(Pieces) : l.moves;
    state().pieces = fit ? (u64)pieces_to - (u64)r.first_piece * sizeof(Piece) : l.pieces;
    state().offsets = fit ? (u64)offsets_to - r.first_offset * sizeof(u64) : l.offsets;
}

// Says that the block has begun; whether the context was closed before. The second access follows the first since the block goes by
// what that has found, which is never all ones.
AP_INLINE bool enters_closed(ContextWords *context) {
    return fetch_add_relaxed(&context->entered, 1) == ~0ull || load_word(&context->closed) != 0;
}

// Every thread of the block calls it first; false if the launch shall not run.
AP_INLINE bool begin(const Launch &l, const BlockEntry &b) {
    if (AP_THREAD() == 0) {
        // It is added to when the last block of a launch is over, so it is the same for all blocks.
        const u64 number = load_relaxed(&context_of(l)->count);
        state().number = number;
        // Never 0, which is what memory holds before the first packet.
        state().flag = (u32)(number % 0xffffffffull) + 1;
        state().runs = 1;
        state().waits = 0;
        // Whether scratch was cut otherwise in the last launch.
        state().last = context_of(l)->shape != l.shape;
    }
    // Threads of the block's end do what is beside the waits of those of its start.
    const u32 last = AP_THREADS() - 1 - AP_THREAD();
    // What has ended has begun: the end is told behind all of this. Nothing here waits for the host's memory, neither does what
    // other threads release.
    if (last == 0 && block_of(l) == 0) {
        store_relaxed(&marks_of(l)->given_begun, l.given);
        store_relaxed(&marks_of(l)->begun, load_relaxed(&context_of(l)->count));
    }
    fetch_tables(l, b);
    const u32 *peers = numbers(l.peers) + b.peers;
    const u32 entry = last < b.peer_count ? peers[last] : 0;
    AP_SYNC();
    // Before anything of a peer's is touched. By a thread that has nothing to look for, in blocks of the usual size: it takes two ways
    // to the device's memory, as the others' looks do.
    if (AP_THREAD() == AP_THREADS() / 2 && enters_closed(context_of(l))) end_early();
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
    for (u32 i = last; i < b.peer_count; i += AP_THREADS()) find_arena(l, (i == last ? entry : peers[i]) >> 1);
    if (last == b.peer_count % AP_THREADS()) {
        find_arena(l, l.rank);
        if (l.rank < KEPT_RANKS) {
            state().areas[l.rank * 4] = l.input;
            state().areas[l.rank * 4 + 1] = l.output;
        }
    }
    // Each block puts them there, for it reads them itself, and they are the same.
    const u64 *own = words(l.own_blocks);
    // Only once all threads know that nobody reads what was there before.
    if (l.own_block_count) AP_SYNC();
    for (u32 i = AP_THREAD(); i < 2 * l.own_block_count; i += AP_THREADS()) {
        u64 *there = words(words(l.runtime)[l.rank]) + (state().number & 1) * 2 * l.own_block_count;
        store_relaxed(there + i, load_relaxed(own + i));
    }
    AP_SYNC();
    if (still_runs()) {
        if (block_of(l) == 0) {
            for (u32 i = mine(0); i < l.reader_count; i += doers()) publish(l, numbers(l.readers)[i]);
        }
        for (u32 i = last; i < b.peer_count; i += AP_THREADS()) {
            const u32 found = i == last ? entry : peers[i];
            if (found & 1) resolve(l, found >> 1);
        }
    }
    AP_SYNC();
    find_groups(l);
    const bool goes = still_runs();
    // Before anybody goes on, and may end the block for all.
    AP_SYNC();
    return goes;
}

AP_DEVICE void land(const Launch &l);

// Every thread of the block calls it last.
AP_INLINE void finish(const Launch &l) {
    // Asked for before it is needed. It is there since the rank's first launch that told this peer of itself.
    const u32 first = AP_THREAD();
    const u64 known = first < l.world && first != l.rank ? load_relaxed(words(l.arenas) + first) : 0;
    AP_SYNC();
    if (AP_THREAD() == 0) {
        // A block that has ended early has not done its part, and a rank that has not is never said to be through.
        const u32 part = still_runs() ? 1 : 1 + EARLY;
        const u32 over = (l.block_count == 1 ? 0 : fetch_add_word(&context_of(l)->finished, part)) + part;
        state().last = over % EARLY == l.block_count;
        if (over >= EARLY) end_early();
    }
    AP_SYNC();
    if (!state().last) return;
    if (l.ways && still_runs()) {
        // Behind all that was handed over, so that it says as much as what follows says to ranks that are near.
        for (u32 peer = mine(0); peer < l.world; peer += doers()) {
            const u32 by = way(l, peer);
            if (peer == l.rank || by == NEAR || by == NOBODY) continue;
            u8 *there = await_arena(l, peer);
            if (there) tell(l, by, &inbox(there, l.rank)->completed, state().number);
        }
    }
    if (l.link_count) {
        AP_SYNC();
        if (still_runs()) land(l);
        AP_SYNC();
    }
    // All that the rank's blocks did comes before what follows: the block has met since it heard of their ends.
    if (AP_THREAD() < l.world) fence_release();
    if (still_runs()) {
        for (u32 peer = AP_THREAD(); peer < l.world; peer += AP_THREADS()) {
            if (peer == l.rank || way(l, peer) != NEAR) continue;
            u8 *there = peer == first && known ? (u8 *)known : await_arena(l, peer);
            if (there) store_relaxed(&inbox(there, l.rank)->completed, state().number);
        }
    }
    if (l.late_count) {
        for (u32 i = AP_THREAD(); still_runs() && i < l.late_count; i += AP_THREADS()) {
            const u32 peer = numbers(l.late)[i];
            const u64 *completed = &inbox((u8 *)l.arena, peer)->completed;
            look(l, AT_COMPLETION, peer, [&] { return load_acquire(completed) >= state().number; });
        }
    }
    // Whoever still waits for a peer's arena is in the launch: the host must not take that for over.
    AP_SYNC();
    if (l.late_count) fence_release();
    if (AP_THREAD() != 0) return;
    ContextWords *context = context_of(l);
    context->finished = 0;
    context->shape = l.shape;
    store_relaxed(&context->count, state().number + 1);
    store_relaxed(&marks_of(l)->ended, state().number);
    if (l.given) store_relaxed(&marks_of(l)->given_ended, l.given);
}
