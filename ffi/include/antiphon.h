#ifndef ANTIPHON_H
#define ANTIPHON_H

/* Made from the Rust sources of Antiphon's C interface: change those. */

#include <stddef.h>
#include <stdint.h>

/* A configuration that asks for nothing; see antiphon_config. */
#define ANTIPHON_CONFIG_INIT { sizeof(antiphon_config), 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, NULL, 0, NULL, 0, 0, NULL }

/* Terms that say nothing; see antiphon_terms. */
#define ANTIPHON_TERMS_INIT { sizeof(antiphon_terms), NULL, NULL, 0, 0, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0 }

/* A question about nothing; see antiphon_question. */
#define ANTIPHON_QUESTION_INIT { sizeof(antiphon_question), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0 }

/* Code that does nothing; see antiphon_code. */
#define ANTIPHON_CODE_INIT { sizeof(antiphon_code), NULL, 0, NULL, NULL, NULL, NULL, 0, 0 }


/**
 * Bytes of an antiphon_unique_id.
 */
#define ANTIPHON_UNIQUE_ID_BYTES 128

/**
 * Room for a selector's answer, with the zero that ends it.
 */
#define ANTIPHON_ANSWER_BYTES 1024

/**
 * The major number of the binary interface: raised when something of it changes or goes; from the first release on also when
 * functions do something else that a compiled program may notice. docs/c.md, "Versions", has the policy.
 */
#define ANTIPHON_ABI_MAJOR 1

/**
 * The minor number of the binary interface: raised by every addition.
 */
#define ANTIPHON_ABI_MINOR 16

/**
 * The results that functions return. A number never changes its meaning.
 */
enum antiphon_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The function did what it says.
     */
    ANTIPHON_RESULT_SUCCESS = 0,
    /**
     * An argument is wrong; nothing was done.
     */
    ANTIPHON_RESULT_INVALID_ARGUMENT = 1,
    /**
     * A handle is null, of another kind, or destroyed; nothing was done.
     */
    ANTIPHON_RESULT_INVALID_HANDLE = 2,
    /**
     * A plan cannot be read, is not valid, or is for another number of ranks.
     */
    ANTIPHON_RESULT_INVALID_PLAN = 3,
    /**
     * A plan is shown to go wrong.
     */
    ANTIPHON_RESULT_PLAN_REFUTED = 4,
    /**
     * The library cannot do what was asked for.
     */
    ANTIPHON_RESULT_UNSUPPORTED = 5,
    /**
     * A file cannot be read.
     */
    ANTIPHON_RESULT_FILE = 6,
    /**
     * Memory is exhausted, or the device or the system refused something. antiphon_communicator_async_error tells whether the
     * communicator is of no more use, as when a buffer was freed too early.
     */
    ANTIPHON_RESULT_SYSTEM = 7,
    /**
     * The ranks could not meet, or could not talk to each other.
     */
    ANTIPHON_RESULT_RENDEZVOUS = 8,
    /**
     * A wait took longer than the time limit. The communicator is of no more use.
     */
    ANTIPHON_RESULT_TIMEOUT = 9,
    /**
     * Ranks called different things. The communicator is of no more use.
     */
    ANTIPHON_RESULT_MISMATCH = 10,
    /**
     * A peer died, or has left, or cannot be reached any more. The communicator is of no more use for what needs that peer; the
     * other ranks may go on with one that antiphon_communicator_subset makes.
     */
    ANTIPHON_RESULT_PEER_LOST = 11,
    /**
     * A rank aborted the communicator. It is of no more use.
     */
    ANTIPHON_RESULT_ABORTED = 12,
    /**
     * A buffer is too small for the answer.
     */
    ANTIPHON_RESULT_BUFFER_TOO_SMALL = 13,
    /**
     * A fault of the library itself; please report it.
     */
    ANTIPHON_RESULT_INTERNAL = 14,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_result antiphon_result;
#else
typedef int32_t antiphon_result;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What is known of a loaded plan. (A plan that is shown to go wrong is not loaded.)
 */
enum antiphon_verdict
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * No order of its blocks deadlocks, races or computes something else, at any size.
     */
    ANTIPHON_VERDICT_PROVEN = 0,
    /**
     * Neither shown right nor wrong; the report has the reasons.
     */
    ANTIPHON_VERDICT_NOT_PROVEN = 1,
    /**
     * It was not checked: verification is off.
     */
    ANTIPHON_VERDICT_NOT_VERIFIED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_verdict antiphon_verdict;
#else
typedef int32_t antiphon_verdict;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Types of elements. Functions take them as numbers.
 */
enum antiphon_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * IEEE binary16.
     */
    ANTIPHON_DTYPE_F16 = 0,
    /**
     * bfloat16.
     */
    ANTIPHON_DTYPE_BF16 = 1,
    /**
     * float.
     */
    ANTIPHON_DTYPE_F32 = 2,
    /**
     * double.
     */
    ANTIPHON_DTYPE_F64 = 3,
    /**
     * int8_t.
     */
    ANTIPHON_DTYPE_I8 = 4,
    /**
     * uint8_t.
     */
    ANTIPHON_DTYPE_U8 = 5,
    /**
     * int32_t.
     */
    ANTIPHON_DTYPE_I32 = 6,
    /**
     * uint32_t.
     */
    ANTIPHON_DTYPE_U32 = 7,
    /**
     * int64_t.
     */
    ANTIPHON_DTYPE_I64 = 8,
    /**
     * uint64_t.
     */
    ANTIPHON_DTYPE_U64 = 9,
    /**
     * 8-bit float with 4 exponent bits, finite only (OCP E4M3).
     */
    ANTIPHON_DTYPE_F8E4M3 = 10,
    /**
     * 8-bit float with 5 exponent bits (OCP E5M2).
     */
    ANTIPHON_DTYPE_F8E5M2 = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_dtype antiphon_dtype;
#else
typedef int32_t antiphon_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Reductions. Functions take them as numbers.
 */
enum antiphon_op
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The reduction that the plan names; for `antiphon_execute` only.
     */
    ANTIPHON_OP_OF_PLAN = -1,
    /**
     * The sum.
     */
    ANTIPHON_OP_SUM = 0,
    /**
     * The product.
     */
    ANTIPHON_OP_PROD = 1,
    /**
     * The least.
     */
    ANTIPHON_OP_MIN = 2,
    /**
     * The greatest.
     */
    ANTIPHON_OP_MAX = 3,
    /**
     * The sum divided by the number of ranks.
     */
    ANTIPHON_OP_AVG = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_op antiphon_op;
#else
typedef int32_t antiphon_op;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Something that is on or off, or left at its default.
 */
enum antiphon_switch
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Left at its default.
     */
    ANTIPHON_SWITCH_DEFAULT = 0,
    /**
     * On.
     */
    ANTIPHON_SWITCH_ON = 1,
    /**
     * Off.
     */
    ANTIPHON_SWITCH_OFF = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_switch antiphon_switch;
#else
typedef int32_t antiphon_switch;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The format that antiphon_explain writes.
 */
enum antiphon_format
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Lines for people.
     */
    ANTIPHON_FORMAT_TEXT = 0,
    /**
     * One object of JSON.
     */
    ANTIPHON_FORMAT_JSON = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_format antiphon_format;
#else
typedef int32_t antiphon_format;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How much a line of the log matters. A number never changes its meaning.
 */
enum antiphon_log_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Something went wrong that no result tells.
     */
    ANTIPHON_LOG_LEVEL_ERROR = 1,
    /**
     * Something is, or may be, not as the program means it: it is slow, or waits for long.
     */
    ANTIPHON_LOG_LEVEL_WARN = 2,
    /**
     * What was chosen, such as the wire to other nodes.
     */
    ANTIPHON_LOG_LEVEL_INFO = 3,
    /**
     * What was done, and why nothing else was.
     */
    ANTIPHON_LOG_LEVEL_DEBUG = 4,
    /**
     * More than that; the library itself logs nothing there.
     */
    ANTIPHON_LOG_LEVEL_TRACE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum antiphon_log_level antiphon_log_level;
#else
typedef int32_t antiphon_log_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One rank's end of a group of ranks that make calls together.
 */
typedef struct antiphon_communicator antiphon_communicator;

/**
 * What loads plans and runs them on a communicator.
 */
typedef struct antiphon_executor antiphon_executor;

/**
 * Lines of the log that wait to be taken: for programs in languages whose functions cannot be called on any thread at any time, as
 * antiphon_set_logger has it.
 */
typedef struct antiphon_log_queue antiphon_log_queue;

/**
 * Memory that the ranks of this machine map: calls use it without a copy.
 */
typedef struct antiphon_memory antiphon_memory;

/**
 * A plan that is checked, verified, and ready to run.
 */
typedef struct antiphon_plan antiphon_plan;

/**
 * A queue of calls: they run in order, and independently of other streams; but on the host a call begins when all ranks have
 * completed the one that came 64 calls before it, on whatever stream.
 */
typedef struct antiphon_stream antiphon_stream;

/**
 * What the ranks of a group agree on before they meet: one process makes it, and the program carries its bytes to the others
 * by any means of its own. It holds a secret: whoever has it can join.
 */
typedef struct antiphon_unique_id {
    /**
     * A text that ends with a zero.
     */
    char bytes[ANTIPHON_UNIQUE_ID_BYTES];
} antiphon_unique_id;

/**
 * How a communicator behaves. Begin with ANTIPHON_CONFIG_INIT, which sets the size and leaves all else at its default; later
 * versions of the library add fields at the end, and accept the shorter structures of programs that were compiled before.
 */
typedef struct antiphon_config {
    /**
     * sizeof(antiphon_config), as the program was compiled.
     */
    uint64_t struct_size;
    /**
     * How long a call may make no progress before it fails, in milliseconds; negative for ever. 0 takes what the environment
     * variable ANTIPHON_CALL_TIMEOUT says, or else a minute.
     */
    int64_t timeout_ms;
    /**
     * Whether plans are verified when they are loaded: an antiphon_switch, on by default.
     */
    int32_t verification;
    /**
     * Whether peers may access ordinary memory of this process through the kernel, if the system permits it: an
     * antiphon_switch, on by default.
     */
    int32_t process_access;
    /**
     * The wire of port channels, e.g. "tcp". Null takes what the environment variable ANTIPHON_WIRE says, or else the cheapest.
     * All ranks must give the same.
     */
    const char *wire;
    /**
     * The network interface of wires and of the rendezvous, given by its name, one of its addresses, or an address prefix.
     * Null takes the one that ANTIPHON_INTERFACE names, or else MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's
     * grammar; if none is set, the one by which the ranks meet. A place that names an interface uses that one for the
     * rendezvous.
     */
    const char *network_interface;
    /**
     * Whether sums of floating-point numbers keep one order, so that a tensor has the same bits however it is put into
     * buckets: an antiphon_switch; off by default, unless ANTIPHON_REPRODUCIBLE is 1. All ranks must give the same.
     */
    int32_t reproducible;
    /**
     * 0.
     */
    int32_t reserved;
    /**
     * The device of the rank's buffers: "host", "cuda:1", "rocm:0"; a name without a number is the device that the
     * application has made current on the calling thread, else that of this rank's number on its host (antiphon_local_rank),
     * counted from 0 again where there are fewer devices. Null takes what the environment variable ANTIPHON_DEVICE says, or else the host.
     * antiphon_communicator_create_in_process also takes one device for each rank, separated by commas; with a single name
     * without a number, its ranks take turns on all devices of that kind.
     */
    const char *device;
    /**
     * Threads of each thread block on a GPU, 1 to 512; 0 for as many as the plan says.
     */
    uint64_t block_threads;
    /**
     * Tags, all of which a registered or installed plan, or registered code, must have to serve this communicator's calls.
     * Null takes what the environment variable ANTIPHON_TAGS lists, or else none. All ranks must give the same.
     */
    const char *const *tags;
    /**
     * How many tags there are. With 0 and a `tags` that is not null, no tags are asked for, whatever the environment says.
     */
    uint64_t tag_count;
    /**
     * What plans become on a GPU: "generated" (kernels of their own), "interpreted", or "auto", the first where there is a
     * run-time compiler. Null takes what the environment variable ANTIPHON_KERNELS says, or else "auto". Ranks may differ.
     */
    const char *kernels;
    /**
     * Whether switch channels go through multicast groups where the members' devices have them, whose sums round as the
     * switch does: an antiphon_switch, on by default.
     */
    int32_t multicast;
    /**
     * Whether other processes map memory of cudaMalloc rather than have it copied: an antiphon_switch; off by default, unless
     * ANTIPHON_LEGACY_IPC is 1. Then each buffer's first call must have the device to itself on all ranks.
     */
    int32_t legacy_ipc;
    /**
     * What the communicator is called in its errors and in the lines of the log about it: 1 to 128 bytes of UTF-8 without control
     * characters. Null for no name. It is for people, on this rank: ranks may differ.
     */
    const char *name;
} antiphon_config;

/**
 * Takes a line of the log: its level, an antiphon_log_level, and its text, which is UTF-8, has no control characters (a line's end
 * is `\n`, in two characters) and names neither time nor process. The text lives until the function returns. The function is called
 * on the thread that has something to say, be it the program's or one of the library's, and on several at the same time; often while
 * others wait for that thread. So it must return soon, must not wait for another thread that calls this library, and must not call
 * this library, but for antiphon_set_logger; and it must let no exception out (see antiphon::guarded in antiphon.hpp).
 */
typedef void (*antiphon_log_function)(void *context, int32_t level, const char *text);

/**
 * Called once with a context, when no function will be called with it again; null if there is nothing to do. It may be called
 * on any thread that uses the library, also in the middle of a call. It must return and let no exception out, and must neither
 * make calls on communicators nor begin, end or cancel groups.
 */
typedef void (*antiphon_destroy_function)(void *context);

/**
 * The calls for which a plan or code is registered. What is left open limits nothing. Begin with ANTIPHON_TERMS_INIT, which
 * sets the size and leaves all else open; later versions of the library add fields at the end.
 */
typedef struct antiphon_terms {
    /**
     * sizeof(antiphon_terms), as the program was compiled.
     */
    uint64_t struct_size;
    /**
     * What selectors and messages call it; null for the plan's or the code's own name.
     */
    const char *name;
    /**
     * Tags.
     */
    const char *const *tags;
    /**
     * How many there are.
     */
    uint64_t tag_count;
    /**
     * Smallest message, in bytes.
     */
    uint64_t min_bytes;
    /**
     * Largest message, in bytes, not less than the smallest; 0 for no limit.
     */
    uint64_t max_bytes;
    /**
     * Element types, numbers of antiphon_dtype; an empty list is all.
     */
    const int32_t *dtypes;
    /**
     * How many there are.
     */
    uint64_t dtype_count;
    /**
     * Reductions, numbers of antiphon_op. Those that are listed take the place of what the plan says; if none is listed, a
     * plan that names no reduction serves all, and a plan that names one serves only that one.
     */
    const int32_t *ops;
    /**
     * How many there are.
     */
    uint64_t op_count;
    /**
     * Number of ranks, 0 for any. A plan has its own number, which this must equal.
     */
    uint32_t world;
    /**
     * Ranks on each node, 0 for any.
     */
    uint32_t ranks_per_node;
    /**
     * Whether input and output are the same memory: an antiphon_switch. A plan says it itself, and this must agree. Ranks that
     * differ in it are served differently and get MISMATCH.
     */
    int32_t in_place;
    /**
     * 1 if `root` counts, 0 if not. A plan of broadcast, reduce, gather or scatter serves no call unless its root is given.
     */
    int32_t has_root;
    /**
     * The root, for collectives that have one.
     */
    uint32_t root;
    /**
     * 0.
     */
    uint32_t reserved;
} antiphon_terms;

/**
 * One call that a program's own code serves, on one rank. The code may use it until it returns.
 */
typedef struct antiphon_code_call {
    /**
     * sizeof(antiphon_code_call), as the library was compiled.
     */
    uint64_t struct_size;
    /**
     * Loads and runs plans on the call's communicator. The code may keep plans that it loads with this executor, but not the
     * executor.
     */
    const struct antiphon_executor *executor;
    /**
     * The stream that the call is on; if null, the call must be complete when the code returns. Plans that are run on it come
     * in order; code that does anything else with the buffers must synchronise it first. On devices there always is a stream;
     * it cannot be synchronised while it is recorded into a graph.
     */
    const struct antiphon_stream *stream;
    /**
     * The send buffer; not null.
     */
    const void *send_buffer;
    /**
     * Bytes of the send buffer; in a scatter, 0 except at the root.
     */
    uint64_t send_bytes;
    /**
     * The receive buffer; not null.
     */
    void *receive_buffer;
    /**
     * Bytes of the receive buffer; in a reduce or gather, 0 except at the root.
     */
    uint64_t receive_bytes;
    /**
     * The element type, an antiphon_dtype.
     */
    int32_t dtype;
    /**
     * The reduction, an antiphon_op; ANTIPHON_OP_OF_PLAN if nothing is reduced.
     */
    int32_t op;
    /**
     * 1 if input and output are the same memory on this rank, by the collective's convention, else 0; always 0 for collectives
     * with a root. Ranks may differ in it, so a choice that all ranks must make alike, such as that of a plan, must not use
     * it.
     */
    int32_t in_place;
    /**
     * The root, for collectives that have one.
     */
    uint32_t root;
    /**
     * This rank.
     */
    uint32_t rank;
    /**
     * Number of ranks.
     */
    uint32_t world;
    /**
     * The same stream as the device's driver knows it (a cudaStream_t, CUstream or hipStream_t; null is its default stream); null
     * on the host.
     */
    void *native_stream;
    /**
     * The number of the rank's device; -1 on the host. On the threads of groups it is the current device; on a thread that
     * makes a single call, the current device is whatever the caller left current.
     */
    int32_t device;
    /**
     * 1 if the stream is being recorded into a graph, so that all that is put into it becomes part of the graph; else 0.
     */
    int32_t recorded;
    /**
     * In an alltoallv, for each rank, how many elements of the send buffer go to it; null for other collectives. (In an
     * allgatherv, all of the send buffer goes to every rank.)
     */
    const uint64_t *send_counts;
    /**
     * For each rank, the element of the send buffer at which those begin; null where `send_counts` is.
     */
    const uint64_t *send_offsets;
    /**
     * In an alltoallv and an allgatherv, for each rank, how many elements come from it; null for other collectives. Nobody has
     * checked that sender and receiver agree.
     */
    const uint64_t *receive_counts;
    /**
     * For each rank, the element of the receive buffer at which those begin; null where `receive_counts` is.
     */
    const uint64_t *receive_offsets;
} antiphon_code_call;

/**
 * Makes a call, and returns an antiphon_result. A function that fails first sets the reason by antiphon_set_last_error. It may
 * be called on several threads at the same time, for several ranks. It must return, and let no exception out (see
 * antiphon::guarded in antiphon.hpp).
 */
typedef int32_t (*antiphon_run_function)(void *context, const struct antiphon_code_call *call);

/**
 * An algorithm that is code of the program. Begin with ANTIPHON_CODE_INIT; later versions of the library add fields at the
 * end.
 */
typedef struct antiphon_code {
    /**
     * sizeof(antiphon_code), as the program was compiled.
     */
    uint64_t struct_size;
    /**
     * Its name.
     */
    const char *name;
    /**
     * Its version, which ranks compare. Raise it whenever the code would no longer work together with its earlier version.
     */
    uint64_t version;
    /**
     * The collective that it computes: "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce",
     * "gather", "scatter", "alltoallv" or "allgatherv".
     */
    const char *collective;
    /**
     * Makes a call; must be there.
     */
    antiphon_run_function run;
    /**
     * The context that the functions are called with.
     */
    void *context;
    /**
     * Called once with the context, when the code is unregistered and no call runs it any more: before unregistering
     * returns, or on the thread of the last such call. Null if there is nothing to do. It is not called if registering fails.
     */
    antiphon_destroy_function destroy;
    /**
     * 1 if it also serves ranks on devices, whose buffers are then on the device; 0 if it serves only ranks on hosts.
     */
    int32_t serves_devices;
    /**
     * 0.
     */
    int32_t reserved;
} antiphon_code;

/**
 * What is known of a call when the algorithm that serves it is chosen. Selectors are given one, which they may read until they
 * return; antiphon_explain, for which only the fields up to `root` count, and antiphon_registry_explain take one. Begin with
 * ANTIPHON_QUESTION_INIT; later versions of the library add fields at the end.
 */
typedef struct antiphon_question {
    /**
     * sizeof(antiphon_question) as the program was compiled; in a selector, as the library was compiled.
     */
    uint64_t struct_size;
    /**
     * The collective, e.g. "allreduce".
     */
    const char *collective;
    /**
     * Bytes of the call's larger buffer: the output of an allgather, the input of a reducescatter. 0 for alltoallv and allgatherv.
     */
    uint64_t bytes;
    /**
     * The element type, an antiphon_dtype.
     */
    int32_t dtype;
    /**
     * The reduction, an antiphon_op; any other number where nothing is reduced.
     */
    int32_t op;
    /**
     * 1 if input and output are the same memory on this rank, by the collective's convention, else 0; always 0 for collectives
     * with a root. Ranks may differ in it where the call lets them, so a choice that all must make alike must not use it.
     */
    int32_t in_place;
    /**
     * 1 if every rank's input is multiplied by a factor first, else 0.
     */
    int32_t premultiplied;
    /**
     * The root, for collectives that have one; else 0.
     */
    uint32_t root;
    /**
     * Number of ranks.
     */
    uint32_t world;
    /**
     * Number of nodes that the ranks are spread over. It equals `world` unless each node has consecutive ranks, equally many
     * on each.
     */
    uint32_t nodes;
    /**
     * How many candidates there are.
     */
    uint32_t candidate_count;
    /**
     * The names of what fits the call: registered plans, then code, both with the most recent first, then installed plans by
     * name, then built-in algorithms. A tuning table may choose any of them if the selector returns 0.
     */
    const char *const *candidates;
    /**
     * This rank's send buffer; null if no call is being made, or if this rank has none (off the root of a broadcast or scatter).
     */
    const void *send_buffer;
    /**
     * This rank's receive buffer; null if no call is being made, or if this rank has none (off the root of a reduce or gather).
     */
    const void *receive_buffer;
    /**
     * The tags that the communicator asks for (antiphon_config): every registered or installed candidate has all of them.
     */
    const char *const *tags;
    /**
     * How many there are.
     */
    uint64_t tag_count;
    /**
     * Whether sums keep one order, as in antiphon_config: an antiphon_switch; in a selector it is never the default.
     */
    int32_t reproducible;
    /**
     * 0.
     */
    int32_t reserved;
} antiphon_question;

/**
 * Chooses for a call: writes the name of a candidate, with a zero, and returns 1; or returns 0, which leaves the choice to the
 * rules. Any other result is an error of the call, whose reason is the one that antiphon_set_last_error set. `answer` has room
 * for ANTIPHON_ANSWER_BYTES. The function may be called on several threads at the same time; it must return, and let no
 * exception out (see antiphon::guarded in antiphon.hpp).
 */
typedef int32_t (*antiphon_select_function)(void *context, const struct antiphon_question *question, char *answer);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns once all ranks have called it. Calls on streams may still be under way. It is refused inside a group
 * (ANTIPHON_RESULT_UNSUPPORTED).
 *
 * Any thread may call it, in the same order on all ranks.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_barrier(const struct antiphon_communicator *communicator);

/**
 * Gives every rank the reduction of all ranks' `count` elements. Each rank may call in place, with the same buffer for both.
 *
 * `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator. With a stream the call runs in stream order,
 * and may still be under way on return; with null for the stream it is complete on return. Any thread may call it, in the same
 * order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_all_reduce(const struct antiphon_communicator *communicator,
                                    const void *send_buffer,
                                    void *receive_buffer,
                                    uint64_t count,
                                    int32_t dtype,
                                    int32_t op,
                                    const struct antiphon_stream *stream);

/**
 * Gives every rank the `count` elements of all, in rank order: the receive buffer has `count` for each rank. Each rank may
 * call in place: then the send buffer is the rank's block of the receive buffer.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_all_gather(const struct antiphon_communicator *communicator,
                                    const void *send_buffer,
                                    void *receive_buffer,
                                    uint64_t count,
                                    int32_t dtype,
                                    const struct antiphon_stream *stream);

/**
 * Gives rank r the reduction of all ranks' block r of `count` elements: the send buffer has `count` for each rank. Each rank
 * may call in place: then the receive buffer is the rank's block of the send buffer.
 *
 * `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator, `stream` as for antiphon_all_reduce.
 * Any thread may call it, in the same order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_reduce_scatter(const struct antiphon_communicator *communicator,
                                        const void *send_buffer,
                                        void *receive_buffer,
                                        uint64_t count,
                                        int32_t dtype,
                                        int32_t op,
                                        const struct antiphon_stream *stream);

/**
 * Exchanges blocks: block r of rank s becomes block s of rank r. Both buffers have `count` elements for each rank. Either all
 * ranks call in place, with the same buffer for both, or none does.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_all_to_all(const struct antiphon_communicator *communicator,
                                    const void *send_buffer,
                                    void *receive_buffer,
                                    uint64_t count,
                                    int32_t dtype,
                                    const struct antiphon_stream *stream);

/**
 * Gives every rank the `count` elements of the root. Only the root's send buffer is used; other ranks may pass null for it. The
 * root's send buffer may be its receive buffer.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_broadcast(const struct antiphon_communicator *communicator,
                                   const void *send_buffer,
                                   void *receive_buffer,
                                   uint64_t count,
                                   int32_t dtype,
                                   uint32_t root,
                                   const struct antiphon_stream *stream);

/**
 * Gives the root the reduction of all ranks' `count` elements. Only the root's receive buffer is used; other ranks may pass null
 * for it. The root's receive buffer may be its send buffer.
 *
 * `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator, `stream` as for antiphon_all_reduce.
 * Any thread may call it, in the same order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_reduce(const struct antiphon_communicator *communicator,
                                const void *send_buffer,
                                void *receive_buffer,
                                uint64_t count,
                                int32_t dtype,
                                int32_t op,
                                uint32_t root,
                                const struct antiphon_stream *stream);

/**
 * Gives the root the `count` elements of all, in rank order. Only the root's receive buffer is used; it holds `count` elements for
 * each rank. Other ranks may pass null for it. The root's send buffer may be its own block of its receive buffer.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_gather(const struct antiphon_communicator *communicator,
                                const void *send_buffer,
                                void *receive_buffer,
                                uint64_t count,
                                int32_t dtype,
                                uint32_t root,
                                const struct antiphon_stream *stream);

/**
 * Gives rank r block r, of `count` elements, of the root. Only the root's send buffer is used; it holds `count` elements for each
 * rank. Other ranks may pass null for it. The root's receive buffer may be its own block of its send buffer.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_scatter(const struct antiphon_communicator *communicator,
                                 const void *send_buffer,
                                 void *receive_buffer,
                                 uint64_t count,
                                 int32_t dtype,
                                 uint32_t root,
                                 const struct antiphon_stream *stream);

/**
 * Exchanges blocks whose lengths may differ: this rank sends rank r the `send_counts[r]` elements that begin at element
 * `send_offsets[r]`, and receives `receive_counts[r]` elements from rank r, which go to element `receive_offsets[r]` and on.
 * Sender and receiver must give the same count. The arrays have an element for each rank, and are read before the call
 * returns. The offset of an empty block does not count. The call is out of place.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_all_to_all_v(const struct antiphon_communicator *communicator,
                                      const void *send_buffer,
                                      const uint64_t *send_counts,
                                      const uint64_t *send_offsets,
                                      void *receive_buffer,
                                      const uint64_t *receive_counts,
                                      const uint64_t *receive_offsets,
                                      int32_t dtype,
                                      const struct antiphon_stream *stream);

/**
 * Gives every rank the elements of all, where ranks may send different numbers of elements: all `count` elements of this
 * rank's send buffer go to every rank, and the `receive_counts[r]` elements of rank r go to element `receive_offsets[r]` and
 * on. The arrays have an element for each rank, and are read before the call returns; the element of `receive_counts` for this
 * rank is `count`. The offset of an empty block does not count. On each rank the send buffer may be the rank's block of the
 * receive buffer.
 *
 * `dtype` is an antiphon_dtype, `stream` as in antiphon_all_reduce. Any thread may call it, in one order on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_all_gather_v(const struct antiphon_communicator *communicator,
                                      const void *send_buffer,
                                      uint64_t count,
                                      void *receive_buffer,
                                      const uint64_t *receive_counts,
                                      const uint64_t *receive_offsets,
                                      int32_t dtype,
                                      const struct antiphon_stream *stream);

/**
 * Sends `count` elements to a peer, which calls antiphon_receive with the same count and type; the other ranks take no part.
 * Without a stream it returns when the peer has received, so ranks that send to each other must do it in a group
 * (antiphon_group_begin), or on streams. Transfers from one rank to another arrive in order. On a device the first one waits,
 * also on a stream, until the two ranks have formed a queue of their own; that needs the peer's process, but not its call. A
 * rank may send to itself only inside a group.
 *
 * `dtype` is an antiphon_dtype, `stream` as for antiphon_all_reduce. Any thread may call it, in the same order among
 * the transfers from one rank to the other.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_send(const struct antiphon_communicator *communicator,
                              const void *send_buffer,
                              uint64_t count,
                              int32_t dtype,
                              uint32_t peer,
                              const struct antiphon_stream *stream);

/**
 * Receives `count` elements from a peer, which calls antiphon_send.
 *
 * `dtype` is an antiphon_dtype, `stream` as for antiphon_all_reduce. Any thread may call it, in the same order among
 * the transfers from one rank to the other.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers are as long as said, and
 * the call's alone, until it is complete.
 */
antiphon_result antiphon_receive(const struct antiphon_communicator *communicator,
                                 void *receive_buffer,
                                 uint64_t count,
                                 int32_t dtype,
                                 uint32_t peer,
                                 const struct antiphon_stream *stream);

/**
 * Makes the id of a group. From now on, and until all ranks have joined, this process listens for them on a thread of the
 * library. It may be the process of any rank, or of none, and must run until then. It listens at the interface that
 * ANTIPHON_INTERFACE names, or else MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's grammar; if none is set, it
 * chooses an interface by which others are likely to reach the host.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `out_id` is null or writable.
 */
antiphon_result antiphon_unique_id_create(struct antiphon_unique_id *out_id);

/**
 * Makes this process stop listening for the ranks of an id that it has made. Call it if no rank will join by the id. It does
 * nothing for other ids, and for those by which rank 0 has joined in this process.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `id` is null or valid.
 */
antiphon_result antiphon_unique_id_retire(const struct antiphon_unique_id *id);

/**
 * Joins a group as `rank` of `world`: returns when all ranks, which pass the same id, are there. `config` may be null.
 *
 * Ranks wait for each other as long as a call may make no progress (`timeout_ms`), but at least two minutes; then it fails
 * with ANTIPHON_RESULT_TIMEOUT, or with ANTIPHON_RESULT_RENDEZVOUS where more is known, and names the missing ranks. If nobody
 * answers at the id's address, because the process that made the id has ended, it fails with ANTIPHON_RESULT_RENDEZVOUS after
 * a minute, or after `timeout_ms` if that is longer; if there is no time limit, also after a minute.
 *
 * Any thread may call it; ranks that live in one process must each call it from a thread of their own.
 *
 * The caller sees to it:
 * The pointers are null or valid; the configuration is as long as it says.
 */
antiphon_result antiphon_communicator_create(const struct antiphon_unique_id *id,
                                             uint32_t rank,
                                             uint32_t world,
                                             const struct antiphon_config *config,
                                             struct antiphon_communicator **out_communicator);

/**
 * Joins a group as `rank` of `world` at a place, a text as in ANTIPHON_COMM_ID: "host:port", "interface:ip:port",
 * "file:/path". Returns when all ranks, which pass the same place, are there. Over TCP ranks prove that they know a secret,
 * which ANTIPHON_SECRET or ANTIPHON_SECRET_FILE gives. `config` may be null.
 *
 * It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, as long as a call may make no progress
 * (`timeout_ms`), but at least two minutes. Then it fails with ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and
 * antiphon_last_error names the missing ranks as far as they are known.
 *
 * Any thread may call it; only one group at a time may meet at a place.
 *
 * The caller sees to it:
 * The pointers are null or valid; the place ends with a zero; the configuration is as long as it says.
 */
antiphon_result antiphon_communicator_create_at(const char *place,
                                                uint32_t rank,
                                                uint32_t world,
                                                const struct antiphon_config *config,
                                                struct antiphon_communicator **out_communicator);

/**
 * Joins the group whose ranks a launcher started (torchrun, mpirun, srun), or that the variables ANTIPHON_RANK,
 * ANTIPHON_WORLD and ANTIPHON_COMM_ID describe; ANTIPHON_WORLD=1 alone is a group of one rank. `config` may be null.
 *
 * It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, two minutes. Then it fails with
 * ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and antiphon_last_error names the missing ranks as far as they are known. If
 * the environment describes no group, it fails with ANTIPHON_RESULT_INVALID_ARGUMENT.
 *
 * Call it once per process, from any thread.
 *
 * The caller sees to it:
 * As antiphon_communicator_create.
 */
antiphon_result antiphon_communicator_create_from_environment(const struct antiphon_config *config,
                                                              struct antiphon_communicator **out_communicator);

/**
 * Makes a group of `world` ranks that all live in this process, and writes their communicators, in rank order, to an
 * array of that many. Each may be used by a thread of its own, or one thread may drive them all by calls on streams. `config`
 * may be null.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The configuration is as long as it says; `out_communicators` is null or has room for `world`.
 */
antiphon_result antiphon_communicator_create_in_process(uint32_t world,
                                                        const struct antiphon_config *config,
                                                        struct antiphon_communicator **out_communicators);

/**
 * Writes the rank of a communicator.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_rank` is null or writable.
 */
antiphon_result antiphon_communicator_rank(const struct antiphon_communicator *communicator, uint32_t *out_rank);

/**
 * Writes the number of ranks of a communicator.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_world` is null or writable.
 */
antiphon_result antiphon_communicator_world(const struct antiphon_communicator *communicator, uint32_t *out_world);

/**
 * Writes the name of a communicator and a zero into a buffer of `capacity` bytes, and the number of bytes to `out_bytes`: that of
 * its configuration, or what it was split or made with, or has of its parent. Without a name the text is empty. With a null buffer
 * and a capacity of 0 it writes only the number of bytes, which is 129 at most. If the buffer is too small, it fails with
 * ANTIPHON_RESULT_BUFFER_TOO_SMALL.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the buffer is null or has `capacity`
 * bytes, `out_bytes` is null or writable.
 */
antiphon_result antiphon_communicator_name(const struct antiphon_communicator *communicator,
                                           char *buffer,
                                           uint64_t capacity,
                                           uint64_t *out_bytes);

/**
 * Writes the number of the node that a rank is on: ranks with equal numbers map each other's memory.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_node` is null or writable.
 */
antiphon_result antiphon_communicator_node(const struct antiphon_communicator *communicator, uint32_t rank, uint32_t *out_node);

/**
 * Gives every rank the bytes of all ranks, in rank order. Each rank gives `bytes` bytes at `own`, equally many on all ranks,
 * and `out_all` has room for those of all ranks; both are host memory. They take the way by which the ranks met, whatever
 * device their buffers are on. It is for what programs agree on, not for data: at most 64 KiB of each rank. Complete on
 * return.
 *
 * It fails with ANTIPHON_RESULT_MISMATCH on all ranks if one gave another number of bytes, and with ANTIPHON_RESULT_PEER_LOST
 * if one has destroyed its communicator. Any other failure breaks the communicator: ANTIPHON_RESULT_TIMEOUT if a rank did not
 * come, and, between nodes, ANTIPHON_RESULT_MISMATCH if one is in a barrier.
 *
 * Any thread may call it, in the same order among a communicator's exchanges, splits and barriers on all ranks.
 *
 * The caller sees to it:
 * The handle is one, or null; `own` is null or readable for `bytes`, `out_all` null or writable for `bytes` of each rank.
 */
antiphon_result antiphon_communicator_exchange(const struct antiphon_communicator *communicator,
                                               const void *own,
                                               uint64_t bytes,
                                               void *out_all);

/**
 * Makes the device of a communicator's buffers current on the calling thread and leaves it so, as cudaSetDevice and hipSetDevice do;
 * on the host it does nothing. Calls of this library do not need it: it is for other code that the thread calls.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_communicator_make_current(const struct antiphon_communicator *communicator);

/**
 * Ends every wait of every rank of a communicator; later calls fail with ANTIPHON_RESULT_ABORTED and this reason. The reason
 * may be null; bytes in it that are not UTF-8 are replaced. If the communicator was already broken, the earlier reason stays.
 *
 * Any thread may call it at any time, also while others wait in calls on the communicator.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the reason, if there is one, ends
 * with a zero.
 */
antiphon_result antiphon_communicator_abort(const struct antiphon_communicator *communicator, const char *reason);

/**
 * Writes what broke a communicator, an antiphon_result, or ANTIPHON_RESULT_SUCCESS while it is whole. If it is broken,
 * antiphon_last_error and antiphon_last_error_peer have the details afterwards. Does not wait.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_result` is null or writable.
 */
antiphon_result antiphon_communicator_async_error(const struct antiphon_communicator *communicator, antiphon_result *out_result);

/**
 * Tells the peers about a buffer now, so that they have mapped it before a launch first uses it; otherwise the first launch
 * that uses it tells them and waits, in its stream, until they have mapped it. This is a hint: calls can use any buffer.
 * Writes 1, or 0 if nothing is gained because the buffer is in memory that peers cannot map. On a GPU, memory of the
 * application stays mapped while it is among the 64 pieces that were used or registered last; memory of
 * antiphon_memory_allocate, there and on the host, stays mapped until it is freed.
 *
 * Any thread may call it at any time; the peers need not call anything.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_mapped` is null or writable.
 * The buffer is not looked at.
 */
antiphon_result antiphon_communicator_register(const struct antiphon_communicator *communicator,
                                               const void *buffer,
                                               uint64_t bytes,
                                               int32_t *out_mapped);

/**
 * Writes 1 if all calls on a communicator are complete, on whatever streams, else 0. Replays of a graph count once they have
 * begun, and calls gathered in a group once the group has ended. antiphon_communicator_async_error tells whether one has
 * failed. It may still write 0 a moment after the last call is complete. Does not wait.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
 */
antiphon_result antiphon_communicator_query(const struct antiphon_communicator *communicator, int32_t *out_done);

/**
 * Destroys a communicator. The rank leaves its group once the communicator's executors, plans and streams are destroyed too,
 * and the work that they were given is done. In a process that was forked from the one that made it, this destroys only the
 * handle: the communicator stays the parent's. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other call on the communicator is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_communicator_destroy(struct antiphon_communicator *communicator);

/**
 * Writes 1 if this library was built with a backend ("host", "cuda", "rocm"), else 0. It does not look for a driver, so it
 * does not tell whether this machine has one.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The name is null or ends with a zero; `out_built` is null or writable.
 */
antiphon_result antiphon_backend_is_built(const char *name, int32_t *out_built);

/**
 * Writes the number of a backend's device that is current on the calling thread (cudaSetDevice, hipSetDevice), 0 where
 * none is.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The name is null or ends with a zero; `out_index` is null or writable.
 */
antiphon_result antiphon_device_current(const char *name, uint32_t *out_index);

/**
 * Writes this process's number among the ranks of its host, as its launcher or ANTIPHON_LOCAL_RANK says it; where only the number among
 * all ranks is known, that one; 0 where nothing started the process as a rank. It is what an application gives to
 * cudaSetDevice or hipSetDevice, modulo the number of devices; a configuration whose device has no number does so by itself.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `out_rank` is null or writable.
 */
antiphon_result antiphon_local_rank(uint32_t *out_rank);

/**
 * Divides the ranks into groups: ranks of one color form a new one, ordered by key, then by rank. The bits of a key are read
 * as an `int32_t`, so it may be negative. Every rank calls it; one that passes a negative color joins none, and gets null. If the
 * communicator is called "dp", the new one of color 2 is called "dp/2".
 *
 * Any thread may call it, in the same order among a communicator's calls on all ranks.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_communicator` is null or writable.
 */
antiphon_result antiphon_communicator_split(const struct antiphon_communicator *communicator,
                                            int32_t color,
                                            uint32_t key,
                                            struct antiphon_communicator **out_communicator);

/**
 * As antiphon_communicator_split, with a name for the new communicator, as antiphon_config has it. Null takes the one that a split
 * gives. Ranks may differ.
 *
 * Any thread may call it, in the same order among a communicator's calls on all ranks.
 *
 * The caller sees to it:
 * As antiphon_communicator_split; the name is null or ends with a zero.
 */
antiphon_result antiphon_communicator_split_as(const struct antiphon_communicator *communicator,
                                               int32_t color,
                                               uint32_t key,
                                               const char *name,
                                               struct antiphon_communicator **out_communicator);

/**
 * Makes a communicator of some ranks of another, in the order of the list: each of the `count` listed ranks calls it with the
 * same list, and the others take no part. It also works if the other communicator is broken, if the listed ranks are alive.
 * antiphon_communicator_lost tells which ranks are not. If a listed rank is lost meanwhile, it fails with
 * ANTIPHON_RESULT_PEER_LOST, or with ANTIPHON_RESULT_ABORTED where another rank found that out first. The new communicator has the
 * other one's name.
 *
 * Any thread may call it, in the same order among calls with the same list on all ranks of the list.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the list is null or as long as said;
 * `out_communicator` is null or writable.
 */
antiphon_result antiphon_communicator_subset(const struct antiphon_communicator *communicator,
                                             const uint32_t *ranks,
                                             uint32_t count,
                                             struct antiphon_communicator **out_communicator);

/**
 * As antiphon_communicator_subset, with a name for the new communicator, as antiphon_config has it. Null takes the other one's.
 * Ranks may differ.
 *
 * Any thread may call it, in the same order among calls with the same list on all ranks of the list.
 *
 * The caller sees to it:
 * As antiphon_communicator_subset; the name is null or ends with a zero.
 */
antiphon_result antiphon_communicator_subset_as(const struct antiphon_communicator *communicator,
                                                const uint32_t *ranks,
                                                uint32_t count,
                                                const char *name,
                                                struct antiphon_communicator **out_communicator);

/**
 * Writes the ranks that this rank knows to be gone, in order, to an array that has room for `capacity` of them (that of the
 * communicator's ranks is enough), and their number to `out_count`: they have died, have left the communicator, or cannot be
 * reached any more. It tells them also when the communicator is broken, and of those that went later than what broke it; ranks
 * may come to know of a loss at different times. Does not wait.
 *
 * With a null array and a capacity of 0 it writes only the number. If the array is too small, it fails with
 * ANTIPHON_RESULT_BUFFER_TOO_SMALL.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_ranks` is null or has room for
 * `capacity`, `out_count` is null or writable.
 */
antiphon_result antiphon_communicator_lost(const struct antiphon_communicator *communicator,
                                           uint32_t *out_ranks,
                                           uint32_t capacity,
                                           uint32_t *out_count);

/**
 * Begins a group: the collectives and transfers that this thread calls until antiphon_group_end, on any communicators, are
 * gathered, and are launched by that call. Collectives of a communicator run in the order of their calls; sends and receives
 * may come in any order, and a rank may send to itself. Groups nest: only the outermost end launches. antiphon_barrier and
 * antiphon_execute are refused inside a group (ANTIPHON_RESULT_UNSUPPORTED), and the group goes on.
 *
 * A gathered call itself reports what is wrong with it. On the host a rank may gather calls that others make one by one. On
 * devices, the peers must gather what one rank gathers: a device may run work of several streams one after the other. Any
 * thread may call it at any time.
 */
antiphon_result antiphon_group_begin(void);

/**
 * Ends a group: launches what this thread has called since antiphon_group_begin. Calls without a stream are complete on
 * return; those on streams go on by themselves. If one of the calls was refused, nothing is launched, and its result is
 * returned again.
 *
 * On a device, the first transfer from one rank to another waits for the other rank's process, but not for its call. Any
 * thread may call it after it has begun a group.
 */
antiphon_result antiphon_group_end(void);

/**
 * Gives up the groups that this thread has begun: nothing that was gathered is launched.
 *
 * Any thread may call it at any time.
 */
antiphon_result antiphon_group_cancel(void);

/**
 * Makes a queue and has it take the lines of this process's log, in place of what took them before, as antiphon_set_logger does with
 * a function. Up to `most` lines wait, 1 or more; when there are as many, further ones are dropped, and a line beside those that
 * wait says how many. What takes its place ends the queue: antiphon_set_logger, with null too, or another queue.
 *
 * Any thread may call it at any time. It fails as antiphon_set_logger does.
 *
 * The caller sees to it:
 * `out_queue` is null or writable.
 */
antiphon_result antiphon_log_queue_create(uint64_t most, struct antiphon_log_queue **out_queue);

/**
 * Takes the next line of a queue: writes its level (an antiphon_log_level), its text and a zero, and the number of these bytes. Waits
 * until there is one. Once the queue has ended and all lines are taken, the level is 0 and the text empty. With a null buffer and a
 * capacity of 0 it waits as well, and writes level and number, and the line stays. If the buffer is too small, it fails with
 * ANTIPHON_RESULT_BUFFER_TOO_SMALL, and the line stays.
 *
 * Any thread may call it at any time, but not in a process that was forked since the queue was made.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the buffer is null or has `capacity`
 * bytes, the others are null or writable.
 */
antiphon_result antiphon_log_queue_take(const struct antiphon_log_queue *queue,
                                        char *buffer,
                                        uint64_t capacity,
                                        int32_t *out_level,
                                        uint64_t *out_bytes);

/**
 * Destroys a queue. If it takes the log's lines, these go to standard error from now on. Lines that nobody took are gone.
 *
 * Any thread may call it, once, while no other call on the queue is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_log_queue_destroy(struct antiphon_log_queue *queue);

/**
 * Sets the function that takes the lines of this process's log, in place of the previous one; null has them written to standard
 * error again, where they go from the start. Which lines there are the environment variable ANTIPHON_LOG says, also then.
 *
 * A line that another thread has begun to say may still go to the previous function. `destroy` is called with the context, once,
 * when the function is replaced and takes no line any more: before this function returns, or on the thread of the last such line.
 * If `take` is null, `destroy` is called at once; it is not called if this function fails. It fails with
 * ANTIPHON_RESULT_UNSUPPORTED in a program in Rust that has a logger of its own.
 *
 * In a process that is forked later, lines go to standard error until it sets a logger itself; the context stays the parent's, and
 * `destroy` is not called for it there. When the process ends, the context is not destroyed, and threads of the library may log while
 * static objects are destroyed: set null first if the function uses any.
 *
 * Any thread may call it at any time, and the function itself may, too.
 *
 * The caller sees to it:
 * The functions have these types, may be called with the context from any thread until it is destroyed, and return.
 */
antiphon_result antiphon_set_logger(antiphon_log_function take, void *context, antiphon_destroy_function destroy);

/**
 * Allocates zeroed memory on a communicator's device. Calls of all communicators on that device may use any part of it; it
 * belongs to no communicator.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_memory` is null or writable.
 */
antiphon_result antiphon_memory_allocate(const struct antiphon_communicator *communicator,
                                         uint64_t bytes,
                                         struct antiphon_memory **out_memory);

/**
 * Allocates zeroed memory of the host, without a communicator: calls of all communicators on the host may use any
 * part of it.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `out_memory` is null or writable.
 */
antiphon_result antiphon_memory_allocate_host(uint64_t bytes, struct antiphon_memory **out_memory);

/**
 * Allocates zeroed memory on a device, without a communicator: calls of all communicators on that device may use any part
 * of it, and so may kernels and copies on every other device of this process that can reach that device's memory. `device` is
 * a text as in antiphon_config.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The text is null or ends with a zero; `out_memory` is null or writable.
 */
antiphon_result antiphon_memory_allocate_on(const char *device, uint64_t bytes, struct antiphon_memory **out_memory);

/**
 * Writes the address of memory.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_address` is null or writable.
 */
antiphon_result antiphon_memory_address(const struct antiphon_memory *memory, void **out_address);

/**
 * Frees memory: at once, or, if launches of this process are under way on a GPU, when they are over. The call itself waits for
 * no kernel. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, when no call of this rank uses the memory any more.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_memory_free(struct antiphon_memory *memory);

/**
 * Makes a reduction for a communicator's allreduces, reducescatters and reduces of `dtype`, an antiphon_dtype: the sum
 * of each rank's elements times that rank's factor, which is an element of the type. Every rank of a call uses such a
 * reduction, which it made itself.
 *
 * `deferred` is an antiphon_switch: if off, the default, the factor is read now; if on, it is read when a call runs, and must
 * stay where it is until then. For buffers on a device it must then lie where the device can read it, and it is read when the
 * call's stream comes to the call; each replay of a graph reads it anew. Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the factor is null or readable, and
 * `out_op` null or writable.
 */
antiphon_result antiphon_op_create_scaled_sum(const struct antiphon_communicator *communicator,
                                              const void *factor,
                                              int32_t dtype,
                                              int32_t deferred,
                                              int32_t *out_op);

/**
 * Destroys a reduction that was made for a communicator. Calls that were made with it go on. When a communicator is destroyed,
 * its reductions are destroyed with it. A null communicator is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, when no call uses the number any more.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_op_destroy(const struct antiphon_communicator *communicator, int32_t op);

/**
 * Makes an executor for a communicator. One executor per communicator is enough.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_executor` is null or writable.
 */
antiphon_result antiphon_executor_create(const struct antiphon_communicator *communicator, struct antiphon_executor **out_executor);

/**
 * Ends every wait of every rank of an executor's communicator, as antiphon_communicator_abort does. Code that serves calls can
 * use it: if it fails while other threads run plans by the executor of its call, it ends those runs so, and returns only once
 * they have ended, since the library then takes the executor back.
 *
 * Any thread may call it at any time, also while others are in calls on the executor.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the reason, if there is one, ends
 * with a zero.
 */
antiphon_result antiphon_executor_abort(const struct antiphon_executor *executor, const char *reason);

/**
 * Destroys an executor. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other call on the executor is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_executor_destroy(struct antiphon_executor *executor);

/**
 * Loads a plan from a JSON file, in the current format or either of the older ones. Verifying it may take a while.
 *
 * Any thread may call it at any time. Ranks may load at different times, or different plans.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the path, if there is one, ends with
 * a zero; `out_plan` is null or writable.
 */
antiphon_result antiphon_plan_load_file(const struct antiphon_executor *executor, const char *path, struct antiphon_plan **out_plan);

/**
 * Loads a plan from the bytes of a JSON file, as antiphon_plan_load_file does.
 *
 * Any thread may call it at any time. Ranks may load at different times, or different plans.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `bytes` is null or has `size` bytes;
 * `out_plan` is null or writable.
 */
antiphon_result antiphon_plan_load_bytes(const struct antiphon_executor *executor,
                                         const void *bytes,
                                         uint64_t size,
                                         struct antiphon_plan **out_plan);

/**
 * Loads the plan of a built-in algorithm, e.g. "allreduce_ring", for all ranks of one node. `in_place` is 1 if send and
 * receive buffer are the same memory, 0 if not; `root` is for collectives that have one. Algorithms of gather, scatter,
 * alltoallv and allgatherv are refused: when they run they need each rank's blocks, for which antiphon_execute has no
 * argument.
 *
 * Any thread may call it at any time. Ranks may load at different times, or different plans.
 *
 * The caller sees to it:
 * The handle is one, or null; the name, if there is one, ends with a zero; `out_plan` is null or writable.
 */
antiphon_result antiphon_plan_load_name(const struct antiphon_executor *executor,
                                        const char *name,
                                        int32_t in_place,
                                        uint32_t root,
                                        struct antiphon_plan **out_plan);

/**
 * Writes what is known of a plan: an antiphon_verdict.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_verdict` is null or writable.
 */
antiphon_result antiphon_plan_verdict(const struct antiphon_plan *plan, antiphon_verdict *out_verdict);

/**
 * Writes what the verifier says of a plan, as a text that ends with a zero, and to `out_bytes` its size, that zero included.
 * With a null buffer and a capacity of 0 it writes only how many bytes are needed. The first call verifies, whatever the
 * communicator's configuration says, and may take a while.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `buffer` is null or has `capacity`
 * bytes; `out_bytes` is null or writable.
 */
antiphon_result antiphon_plan_report(const struct antiphon_plan *plan, char *buffer, uint64_t capacity, uint64_t *out_bytes);

/**
 * Destroys a plan. Runs of it that are under way go on. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other function is busy with the plan.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_plan_destroy(struct antiphon_plan *plan);

/**
 * Runs a plan. All ranks call it with plans of the same content, equal sizes, type and reduction. Sizes are in bytes
 * and multiples of the element's; `dtype` is an antiphon_dtype, `op` an antiphon_op. With a stream the run takes its place in
 * the stream's order, and may still be under way on return; with null for the stream it is complete on return. It is refused
 * inside a group (ANTIPHON_RESULT_UNSUPPORTED).
 *
 * The buffers begin at multiples of the element's size. Either they share no byte, or they are in place: both are the same
 * memory, or the smaller is the rank's own block of the larger. Other buffers are refused, unless the communicator does not
 * verify plans. A plan may write the send buffer, if its author wrote it so.
 *
 * Any thread may call it, in the same order among a communicator's calls on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers have the given sizes
 * until the call is complete, and nobody else writes the send buffer or touches the receive buffer meanwhile.
 */
antiphon_result antiphon_execute(const struct antiphon_executor *executor,
                                 const struct antiphon_plan *plan,
                                 const void *send_buffer,
                                 uint64_t send_bytes,
                                 void *receive_buffer,
                                 uint64_t receive_bytes,
                                 int32_t dtype,
                                 int32_t op,
                                 const struct antiphon_stream *stream);

/**
 * Registers a loaded plan with this process: from the next call on it serves the calls by name that it fits, on every
 * communicator, in preference to what was registered earlier and to the built-in algorithms. The handle may be destroyed
 * afterwards. Plans of sendrecv are refused: they would not serve any such call.
 *
 * Register on all ranks, in the same order, between calls: ranks whose calls are served differently get MISMATCH. If a plan
 * may serve a call, either all ranks must call in place or none (except in collectives with a root); ranks that differ get
 * MISMATCH. `terms` may be null. Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `terms` is null or as long as it
 * says, and what it points to is there.
 */
antiphon_result antiphon_registry_register_plan(const struct antiphon_plan *plan, const struct antiphon_terms *terms);

/**
 * As antiphon_registry_register_plan, from the bytes of a JSON file. This takes no communicator; each communicator verifies
 * the plan when it first serves a call there.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `bytes` is null or has `size` bytes; `terms` is null or as long as it says, and what it points to is there.
 */
antiphon_result antiphon_registry_register_bytes(const void *bytes, uint64_t size, const struct antiphon_terms *terms);

/**
 * Takes a plan or code out of the registry, by its name. Calls that are under way go on.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The name, if there is one, ends with a zero.
 */
antiphon_result antiphon_registry_unregister(const char *name);

/**
 * Writes what is registered, as a text that ends with a zero, and to `out_bytes` its size, that zero included. The text has a
 * line for each plan, then a line for each code, both with the most recent last; a line is the kind ("plan" or "code"), the
 * collective and the name, separated by single blanks. Names may have blanks, but no control characters. With a null buffer
 * and a capacity of 0 it writes only how many bytes are needed.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `buffer` is null or has `capacity` bytes; `out_bytes` is null or writable.
 */
antiphon_result antiphon_registry_list(char *buffer, uint64_t capacity, uint64_t *out_bytes);

/**
 * Registers code with this process: from the next call on it serves the calls by name that it fits, on every communicator,
 * after registered plans and before installed ones and the built-in algorithms. It serves ranks on the host, and with
 * `serves_devices` also those on devices; without it, calls on devices go to the next candidate. In a group it runs when the
 * group ends, in the order of the calls, on a thread that each communicator with such calls then gets.
 *
 * All ranks of a call meet, and compare name and version, before it runs. A result that is not 0 aborts the communicator.
 * Register on all ranks, in the same order, between calls. `terms` may be null. Any thread may call it at any time.
 *
 * The caller sees to it:
 * `code` is null or as long as it says, its texts end with a zero, and its functions may be called with the context from any
 * thread until it is destroyed; `terms` is null or as long as it says, and what it points to is there.
 */
antiphon_result antiphon_registry_register_code(const struct antiphon_code *code, const struct antiphon_terms *terms);

/**
 * Installs a plan, from the bytes of a JSON file, on this machine: in every process that makes its first communicator from now
 * on, it serves the calls by name that it fits, if all ranks have the same plans installed. It replaces an installed plan of
 * the same name. The plan is verified first, which may take a while; a refuted plan is not installed. `terms` may be null.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `bytes` is null or has `size` bytes; `terms` is null or as long as it says, and what it points to is there.
 */
antiphon_result antiphon_install_bytes(const void *bytes, uint64_t size, const struct antiphon_terms *terms);

/**
 * Removes an installed plan, by its name. Processes that have already read it go on using it.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The name, if there is one, ends with a zero.
 */
antiphon_result antiphon_uninstall(const char *name);

/**
 * Writes the default plans for `ranks` ranks on `nodes` nodes into the folder `default` of the cache folder: a file for every
 * built-in algorithm of the host, replacing files that are there. They serve no call by themselves. With 0 for `ranks` there
 * are as many as this process may use cores, but at least 2; more than 1024 are refused.
 *
 * Any thread may call it at any time.
 */
antiphon_result antiphon_install_defaults(uint32_t ranks, uint32_t nodes);

/**
 * Sets the function that is asked about every call by name of this process, in place of the previous one; null for none. It is
 * called on the thread that makes the call, possibly on several threads at the same time, and must not call this library's
 * functions on communicators. It must choose alike on all ranks. `destroy` is called with the context, once, when the selector
 * is replaced and no call asks it any more: before this function returns, or on the thread of the last such call. If `select`
 * is null, `destroy` is called at once.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The functions have these types, may be called with the context from any thread until it is destroyed, and return.
 */
antiphon_result antiphon_registry_set_selector(antiphon_select_function select, void *context, antiphon_destroy_function destroy);

/**
 * Writes what would serve a call on a communicator, why, and what else was considered, as a text that ends with a zero, and to
 * `out_bytes` its size, that zero included. With a null buffer and a capacity of 0 it writes only how many bytes are needed.
 * `format` is an antiphon_format. The selector, if one is set, is asked with null buffers. No call is made, and the other
 * ranks take no part.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `question` is null or as long as it
 * says, and its text ends with a zero; `buffer` is null or has `capacity` bytes; `out_bytes` is null or writable.
 */
antiphon_result antiphon_explain(const struct antiphon_communicator *communicator,
                                 const struct antiphon_question *question,
                                 int32_t format,
                                 char *buffer,
                                 uint64_t capacity,
                                 uint64_t *out_bytes);

/**
 * As antiphon_explain, but without a communicator: for a call of `world` ranks on `nodes` nodes, equally many on each, with
 * buffers on the host. It considers what is registered and built in, and asks the selector, which gets the question's tags and
 * order of sums; those that the question leaves open are taken from the environment (ANTIPHON_TAGS, ANTIPHON_REPRODUCIBLE). It
 * considers neither a tuning table nor installed plans, on which ranks agree when their communicator forms.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `question` is null or as long as it says, its list of tags is there, and its texts end with a zero; `buffer` is null or has
 * `capacity` bytes; `out_bytes` is null or writable.
 */
antiphon_result antiphon_registry_explain(const struct antiphon_question *question,
                                          int32_t format,
                                          char *buffer,
                                          uint64_t capacity,
                                          uint64_t *out_bytes);

/**
 * Describes what went wrong in the last function of this library that failed on the calling thread: it names values and ranks,
 * and says what to do. The text is empty if none has failed. The text is UTF-8 and stays until the next failure on this
 * thread.
 *
 * Any thread may call it at any time.
 */
const char *antiphon_last_error(void);

/**
 * The rank that the failure of antiphon_last_error blames: the one that is lost, has aborted the communicator (this one, if it did),
 * has freed what a call needs, or called something else. It is the rank's number on the communicator of the call; -1 if the failure
 * blames none, or several.
 *
 * Any thread may call it at any time.
 */
int32_t antiphon_last_error_peer(void);

/**
 * Sets this thread's last failure to a text of the program. A selector, or code that serves calls, gives the reason of its
 * failure by it: the error of the call includes the text.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The text, if there is one, ends with a zero.
 */
antiphon_result antiphon_set_last_error(const char *failure);

/**
 * What a result means in general, in a few words; for a number that stands for no result, the text says that it is unknown.
 * The text lives as long as the library.
 *
 * Any thread may call it at any time.
 */
const char *antiphon_result_text(int32_t result);

/**
 * Makes a stream on a communicator's device. Calls of several communicators of that device may share it. On a GPU,
 * antiphon_stream_synchronize and antiphon_stream_query then tell only of this communicator's failures. Of another's,
 * antiphon_communicator_async_error tells, and antiphon_communicator_query whether the buffers of its failed calls may be used
 * again.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_stream` is null or writable.
 */
antiphon_result antiphon_stream_create(const struct antiphon_communicator *communicator, struct antiphon_stream **out_stream);

/**
 * Makes a stream from one of the application's on a communicator's device (a cudaStream_t, CUstream or hipStream_t; null is
 * the default stream): calls on it come in order with all else that the application puts there, and become part of a graph
 * while it is recorded into one. Destroying the result leaves the application's stream as it is. The same stream may be
 * adopted again at any time.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `native` is a stream of the device's
 * context, and lives as long as the result and the calls on it; `out_stream` is null or writable.
 */
antiphon_result antiphon_stream_adopt(const struct antiphon_communicator *communicator, void *native, struct antiphon_stream **out_stream);

/**
 * Waits until all calls on a stream are complete, and returns the first error among the calls since it was last called.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_stream_synchronize(const struct antiphon_stream *stream);

/**
 * Writes 1 if all calls on a stream are complete, even if they have failed, else 0. Does not wait. After a 1 the buffers may
 * be used again; antiphon_stream_synchronize tells whether the calls succeeded.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
 */
antiphon_result antiphon_stream_query(const struct antiphon_stream *stream, int32_t *out_done);

/**
 * Destroys a stream. Calls on it that are under way go on; synchronize it first to learn whether they succeed. Null is refused
 * with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other call on the stream is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_stream_destroy(struct antiphon_stream *stream);

/**
 * Bytes of an element of a type (an antiphon_dtype); 0 for a number that stands for no type.
 *
 * Any thread may call it at any time.
 */
size_t antiphon_dtype_size(int32_t dtype);

/**
 * The binary interface of the library that is loaded: the major number in the upper 16 bits, the minor one in the
 * lower. A program works with the major number it was compiled with, and with that minor number or a later one.
 *
 * Any thread may call it at any time.
 */
uint32_t antiphon_abi_version(void);

/**
 * The version of the library, e.g. "0.1.0"; a text that lives as long as the library.
 *
 * Any thread may call it at any time.
 */
const char *antiphon_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANTIPHON_H */
