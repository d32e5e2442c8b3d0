/*
 * antiphon_wire.h: the interface of wire plugins, version 1.
 *
 * A wire moves bytes into memory that a peer registered, and sets counters there afterwards. A plugin is a shared
 * library that exports one function, antiphon_wire_plugin_v1(), which gives a table of functions. Antiphon loads the
 * files that ANTIPHON_WIRE_PLUGINS names (separated by colons) and those called libantiphon_wire_*.so beside itself or
 * in a folder antiphon-wires there.
 *
 * Objects. A program has several ends of a wire (antiphon_wire), one per rank and communicator. An end has
 * registrations (memory it may read for its own posts and its peers may write) and links, one per connection to a peer.
 * A link begins as an opening, whose address travels to the peer while the peer's travels here; connecting both makes
 * the link. Everything of an end is closed before the end is. Objects are the plugin's own: Antiphon passes the pointers
 * back and never looks behind them.
 *
 * What a wire promises.
 * - Order: a signal's counter changes only after every write posted to the link before it has landed in the peer's
 *   memory, so that a thread which reads the counter with acquire ordering sees the bytes. Signals of one link land in
 *   order. Writes among each other have no order.
 * - Once and whole: every post takes effect exactly once, or the link is lost. Of ANTIPHON_WIRE_PACKETS writes every
 *   aligned unit of 8 bytes appears at once.
 * - Completion: what counts as completed has landed in the peer's memory.
 * - Bounds: a write outside a registered region is an error and never touches other memory. What a peer sends is input
 *   of unknown origin.
 * - No waiting: no function blocks, except that link_stop lets calls of other threads end.
 * - Loss is told: after a link is lost all its functions say so.
 * - An end is an end: after link_stop no byte of the peer's lands here.
 *
 * Threads. Any thread may call any function at any time, except that an object's close function is the last call on it
 * and no other runs meanwhile. Functions return normally: no exception, longjmp or exit leaves them.
 *
 * Versions. The major version is in the symbol's name and in ANTIPHON_WIRE_ABI; plugins of another one are not loaded.
 * Within a version structs only grow, at their ends: each begins with its size as its maker knows it. A reader treats
 * fields beyond that size as absent, and never reads them. Fields named reserved are zero. ANTIPHON_WIRE_REVISION counts what
 * was added; nobody asks for it, since the sizes tell. Revision 2: antiphon_wire_settings.device. Revision 3: memory_register_dma_buf,
 * which a plugin may lack.
 *
 * Results. Functions that may fail return a status of enum antiphon_wire_status. With any but ANTIPHON_WIRE_OK and
 * ANTIPHON_WIRE_FULL they fill in *error, which is never null. Out parameters matter with ANTIPHON_WIRE_OK only.
 */
#ifndef ANTIPHON_WIRE_H
#define ANTIPHON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "ANTIWIRE", as bytes on a little-endian machine. */
#define ANTIPHON_WIRE_MAGIC UINT64_C(0x4552495749544e41)

/* The version of this interface. */
#define ANTIPHON_WIRE_ABI 1

/* What has been added to it. */
#define ANTIPHON_WIRE_REVISION 3

/* Bytes of a key. */
#define ANTIPHON_WIRE_KEY_BYTES 32

/* Bytes of each text of an error, the zero at the end included. */
#define ANTIPHON_WIRE_TEXT_BYTES 512

/* What became of a call. */
enum antiphon_wire_status {
    /* It was done; a post is queued. */
    ANTIPHON_WIRE_OK = 0,
    /* Posts only: the queue is full, nothing was queued, and there will be room after some progress. */
    ANTIPHON_WIRE_FULL = 1,
    /* The wire cannot be used, or does not reach the peer: reason says why, cure what would help. */
    ANTIPHON_WIRE_UNAVAILABLE = 2,
    /* The wire does not do this. */
    ANTIPHON_WIRE_UNSUPPORTED = 3,
    /* The arguments make no sense: reason says what was seen, cure what is allowed. */
    ANTIPHON_WIRE_INVALID = 4,
    /* The link is broken for good: reason says what happened. */
    ANTIPHON_WIRE_LOST = 5,
    /* The system refused: reason says what it says. */
    ANTIPHON_WIRE_SYSTEM = 6
};

/* How the bytes of a write may appear. */
enum antiphon_wire_unit {
    /* In any order. */
    ANTIPHON_WIRE_BYTES = 0,
    /* Every 8 aligned bytes at once; offsets and length are multiples of 8. */
    ANTIPHON_WIRE_PACKETS = 1
};

/* Where memory lives. */
enum antiphon_wire_backend {
    ANTIPHON_WIRE_HOST = 0,
    ANTIPHON_WIRE_CUDA = 1,
    ANTIPHON_WIRE_ROCM = 2
};

/* Bits of antiphon_wire_peer.flags. */
#define ANTIPHON_WIRE_SAME_PROCESS 1u   /* The peer lives in this process. */
#define ANTIPHON_WIRE_SAME_NODE 2u      /* The peer was proven to map this rank's memory. */
#define ANTIPHON_WIRE_PROCESS_ACCESS 4u /* This process may reach the peer's memory through the kernel. */

/* Of the plugin's own making. */
typedef struct antiphon_wire antiphon_wire;
typedef struct antiphon_wire_registration antiphon_wire_registration;
typedef struct antiphon_wire_opening antiphon_wire_opening;
typedef struct antiphon_wire_link antiphon_wire_link;

/* Why a call failed: UTF-8 texts that end with a zero byte. Made by the caller, filled in by the plugin. */
typedef struct antiphon_wire_error {
    uint32_t struct_bytes;
    uint32_t reserved;
    /* What happened, or was seen. */
    char reason[ANTIPHON_WIRE_TEXT_BYTES];
    /* What would help, or is allowed; may be empty where the status does not ask for it. */
    char cure[ANTIPHON_WIRE_TEXT_BYTES];
} antiphon_wire_error;

/* Room for bytes that the plugin gives. Made by the caller; the plugin copies to data and sets length. */
typedef struct antiphon_wire_bytes {
    uint32_t struct_bytes;
    uint32_t reserved;
    uint8_t *data;
    /* At least 4096. What needs more fails with ANTIPHON_WIRE_SYSTEM. */
    uint64_t capacity;
    uint64_t length;
} antiphon_wire_bytes;

/* Who loads the plugin. */
typedef struct antiphon_wire_host {
    uint32_t struct_bytes;
    /* ANTIPHON_WIRE_ABI as the host was built. */
    uint32_t abi;
    /* The host's name and version, for people. Valid during the call. */
    const char *name;
} antiphon_wire_host;

/* What an end is made with. */
typedef struct antiphon_wire_settings {
    uint32_t struct_bytes;
    /* This rank. */
    uint32_t rank;
    /* A secret of the communicator's ranks, by which links prove themselves. It never crosses a wire in clear. */
    uint8_t key[ANTIPHON_WIRE_KEY_BYTES];
    /* The network interface to use, by its name, an address of it, or an address prefix ("10.1.0.0/16", "10.1.");
       null lets the wire choose. Valid during the call. */
    const char *interface_name;
    /* Since revision 2. The PCI address of the device in whose memory this rank's buffers are ("0000:3b:00.0"): a wire that
       has several cards takes those near it. Null for the host's memory. Valid during the call. */
    const char *device;
} antiphon_wire_settings;

/* A peer, to say whether the wire reaches it. */
typedef struct antiphon_wire_peer {
    uint32_t struct_bytes;
    uint32_t rank;
    uint32_t pid;
    uint32_t flags;
} antiphon_wire_peer;

/* Memory to register. */
typedef struct antiphon_wire_memory {
    uint32_t struct_bytes;
    /* enum antiphon_wire_backend. */
    uint32_t backend;
    /* The region's number, which no other memory of this process has. */
    uint64_t number;
    /* Where it is mapped in this process; of a GPU's memory, where the GPU has it: nothing there for the processor. */
    uint8_t *address;
    /* How long it is. */
    uint64_t bytes;
    /*
     * The memory stays mapped until the plugin calls release(keep), on any thread: once for every registration that
     * succeeded, when it was deregistered and no post or arrival touches the memory any more.
     */
    void *keep;
    void (*release)(void *keep);
} antiphon_wire_memory;

/* Memory of a GPU as a buffer of the kernel's dma-buf framework. */
typedef struct antiphon_wire_dma_buf {
    uint32_t struct_bytes;
    /* The buffer's file descriptor: the host's, open until release(keep) of the memory. */
    int32_t descriptor;
    /* Where in the buffer the memory begins. */
    uint64_t offset;
} antiphon_wire_dma_buf;

/* Bytes to move. */
typedef struct antiphon_wire_write {
    uint32_t struct_bytes;
    /* enum antiphon_wire_unit. */
    uint32_t unit;
    /* The number of a memory that is registered with this end. */
    uint64_t source;
    /* Byte offset in it. */
    uint64_t from;
    /* A region of the peer's that the link accepted. */
    uint64_t region;
    /* Byte offset in it. */
    uint64_t to;
    /* How many bytes. */
    uint64_t bytes;
} antiphon_wire_write;

/* What a plugin is. No function may be null but those of later revisions, as far as they say so. */
typedef struct antiphon_wire_plugin {
    /* ANTIPHON_WIRE_MAGIC, ANTIPHON_WIRE_ABI and sizeof(antiphon_wire_plugin): the same in all versions. */
    uint64_t magic;
    uint32_t abi;
    uint32_t struct_bytes;

    /* The wire's name, e.g. "tcp": 1 to 32 of a-z, 0-9, '-' and '_'. Valid for ever. */
    const char *name;

    /*
     * Called when the plugin was loaded, perhaps several times; says whether the wire can be used on this machine.
     * A plugin stays loaded until the process ends.
     */
    int32_t (*init)(const antiphon_wire_host *host, antiphon_wire_error *error);

    /* One rank's end. */
    int32_t (*wire_open)(const antiphon_wire_settings *settings, antiphon_wire **wire, antiphon_wire_error *error);
    /* Ends it; all that belongs to it was closed before. */
    void (*wire_close)(antiphon_wire *wire);
    /*
     * What it runs over, for people: as snprintf, writes up to capacity bytes, the zero at the end included, and returns
     * how long the whole text is without the zero.
     */
    uint64_t (*wire_describe)(antiphon_wire *wire, char *text, uint64_t capacity);
    /*
     * Whether it reaches a peer that has the same wire, and at what cost (local copies 1, RDMA 10, sockets 100).
     * ANTIPHON_WIRE_UNAVAILABLE where it does not.
     */
    int32_t (*wire_reach)(antiphon_wire *wire, const antiphon_wire_peer *peer, uint32_t *cost,
                          antiphon_wire_error *error);

    /*
     * Registers memory: this end's links may read it, and their peers write it once they accepted the bytes that are
     * put into blob. If it fails, release is not called.
     */
    int32_t (*memory_register)(antiphon_wire *wire, const antiphon_wire_memory *memory, antiphon_wire_bytes *blob,
                               antiphon_wire_registration **registration, antiphon_wire_error *error);
    /* Ends a registration. Posts from it that are under way are still carried out. */
    void (*memory_deregister)(antiphon_wire_registration *registration);

    /* The first half of a link to the rank peer. */
    int32_t (*opening_open)(antiphon_wire *wire, uint32_t peer, antiphon_wire_opening **opening,
                            antiphon_wire_error *error);
    /* What the peer's half needs. */
    int32_t (*opening_address)(antiphon_wire_opening *opening, antiphon_wire_bytes *address,
                               antiphon_wire_error *error);
    /*
     * Takes the address of the peer's half and makes the link, which may be used at once: what is posted before it
     * stands waits. The opening is gone afterwards, also if this fails.
     */
    int32_t (*opening_connect)(antiphon_wire_opening *opening, const uint8_t *address, uint64_t address_bytes,
                               antiphon_wire_link **link, antiphon_wire_error *error);
    /* Gives up an opening that was not connected. */
    void (*opening_close)(antiphon_wire_opening *opening);

    /* Learns of a region that the peer registered: number, bytes, and the blob of its registration. */
    int32_t (*link_accept)(antiphon_wire_link *link, uint64_t region, uint64_t bytes, const uint8_t *blob,
                           uint64_t blob_bytes, antiphon_wire_error *error);
    /* Forgets a region of the peer's. One that it does not know is none of its business. */
    void (*link_retire)(antiphon_wire_link *link, uint64_t region);
    /*
     * Queues a write. The source does not change until it is complete. Ranges outside the source or the region, and
     * regions that were not accepted, are ANTIPHON_WIRE_INVALID.
     */
    int32_t (*link_write)(antiphon_wire_link *link, const antiphon_wire_write *write, antiphon_wire_error *error);
    /*
     * Queues a signal: the 8-byte counter at byte to (a multiple of 8) of a region becomes value, by a store with release
     * ordering, after all that was queued before has landed.
     */
    int32_t (*link_signal)(antiphon_wire_link *link, uint64_t region, uint64_t to, uint64_t value,
                           antiphon_wire_error *error);
    /* How many posts were queued so far. */
    uint64_t (*link_posted)(antiphon_wire_link *link);
    /* How many of them, from the first on, have landed. A call may begin to find out, and a later one tell. */
    int32_t (*link_completed)(antiphon_wire_link *link, uint64_t *count, antiphon_wire_error *error);
    /* Sends and receives what can be without waiting; moved becomes 1 if anything did, else 0. */
    int32_t (*link_progress)(antiphon_wire_link *link, int32_t *moved, antiphon_wire_error *error);
    /*
     * A file descriptor that becomes readable when progress would find something to do, once the link is armed; -1 if
     * nothing ever happens unasked. It is the same for the link's life and stays open; links may share one.
     */
    int32_t (*link_descriptor)(antiphon_wire_link *link);
    /*
     * Makes the descriptor tell of the next thing to do, posts of other threads included; armed becomes 1, or 0 if there
     * may be something to do already. The arming holds until something is posted, or progress moves something.
     */
    int32_t (*link_arm)(antiphon_wire_link *link, int32_t *armed, antiphon_wire_error *error);
    /*
     * Ends the link on this side, but not its life. Once this returns, nothing that the peer has posted or will post lands
     * in memory that is registered here, no such memory is read for the link, and nothing is sent. All functions that
     * return a status answer ANTIPHON_WIRE_LOST from then on, an armed descriptor is readable, and the peer is told as of
     * any loss. What other threads are doing with the link is waited for.
     */
    void (*link_stop)(antiphon_wire_link *link);
    /* What it runs over, for people; as wire_describe. */
    uint64_t (*link_describe)(antiphon_wire_link *link, char *text, uint64_t capacity);
    /* Ends it; what was not sent is given up. */
    void (*link_close)(antiphon_wire_link *link);

    /*
     * Since revision 3; may be null. As memory_register, for memory of a GPU, which the processor does not reach: the wire
     * reads and writes it by the dma-buf, so that no copy is on the way. The host registers such memory by no other function.
     * ANTIPHON_WIRE_UNSUPPORTED where this machine cannot; then bytes go by way of the host's memory.
     */
    int32_t (*memory_register_dma_buf)(antiphon_wire *wire, const antiphon_wire_memory *memory,
                                       const antiphon_wire_dma_buf *buffer, antiphon_wire_bytes *blob,
                                       antiphon_wire_registration **registration, antiphon_wire_error *error);
} antiphon_wire_plugin;

/* What a plugin exports, and nothing else: its table, valid for ever. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const antiphon_wire_plugin *antiphon_wire_plugin_v1(void);

#ifdef __cplusplus
}
#endif

#endif
