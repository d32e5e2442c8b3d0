#ifndef ANTIPHON_H
#define ANTIPHON_H

/* Made from the Rust sources of Antiphon's C interface: change those. */

#include <stddef.h>
#include <stdint.h>

/* A configuration that asks for nothing; see antiphon_config. */
#define ANTIPHON_CONFIG_INIT { sizeof(antiphon_config), 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, NULL, 0 }

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
 * The major number of the binary interface: raised by whatever a compiled program may notice.
 */
#define ANTIPHON_ABI_MAJOR 1

/**
 * The minor number of the binary interface: raised by every addition.
 */
#define ANTIPHON_ABI_MINOR 14

/**
 * What functions return. Numbers are never used again for something else.
 */
enum antiphon_result
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It is done.
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
     * Nothing here does what was asked for.
     */
    ANTIPHON_RESULT_UNSUPPORTED = 5,
    /**
     * A file cannot be read.
     */
    ANTIPHON_RESULT_FILE = 6,
    /**
     * Memory is exhausted, or the device or the system refused something. antiphon_communicator_async_error tells whether the
     * communicator is of no more use, as after a buffer that was freed too early.
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
     * A peer died, or has left, or cannot be reached any more. The communicator is of no more use for what needs that peer.
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
 * What is known of a plan that was loaded. One that is shown to go wrong is not.
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
     * Nobody looked: verification is off.
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
     * What the plan says; for `antiphon_execute` alone.
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
 * Something that is on or off, or as it is unless one asks.
 */
enum antiphon_switch
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * As it is unless one asks.
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
 * What is written by antiphon_explain.
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
 * One rank's end of a group of ranks that make calls together.
 */
typedef struct antiphon_communicator antiphon_communicator;

/**
 * What loads plans and runs them on a communicator.
 */
typedef struct antiphon_executor antiphon_executor;

/**
 * Memory that the ranks of this machine map: calls use it without a copy.
 */
typedef struct antiphon_memory antiphon_memory;

/**
 * A plan that is checked, verified, and ready to run.
 */
typedef struct antiphon_plan antiphon_plan;

/**
 * A queue of calls: they run in order, and independently of other streams.
 */
typedef struct antiphon_stream antiphon_stream;

/**
 * What the ranks of a group agree on before they meet: a process makes it, and a program carries its bytes to
 * the others by any way of its own. It holds a secret: who has it can join.
 */
typedef struct antiphon_unique_id {
    /**
     * A text that ends with a zero.
     */
    char bytes[ANTIPHON_UNIQUE_ID_BYTES];
} antiphon_unique_id;

/**
 * How a communicator behaves. Begin with ANTIPHON_CONFIG_INIT, which sets the size and leaves all else as it is unless
 * one asks; later versions of the library add fields at the end, and read programs that were compiled before.
 */
typedef struct antiphon_config {
    /**
     * sizeof(antiphon_config), as the program was compiled.
     */
    uint64_t struct_size;
    /**
     * How long a call may make no progress before it fails, in milliseconds: 0 for the default of a minute, negative
     * for ever.
     */
    int64_t timeout_ms;
    /**
     * Whether plans are verified when they are loaded: an antiphon_switch, on by default.
     */
    int32_t verification;
    /**
     * Whether peers may reach plain memory through the kernel where that is permitted: an antiphon_switch, on by
     * default.
     */
    int32_t process_access;
    /**
     * The wire of port channels, e.g. "tcp"; null for the cheapest. All ranks say the same.
     */
    const char *wire;
    /**
     * The network interface of wires and of the rendezvous, by its name, an address of it, or an address prefix;
     * null for the one that ANTIPHON_INTERFACE names, or else MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's grammar,
     * and without them for the one by which the ranks meet. A place with an interface of its own has that one for the rendezvous.
     */
    const char *network_interface;
    /**
     * Whether sums of floating-point numbers keep one order, so that a tensor has the same bits however it is put into
     * buckets: an antiphon_switch; by default off, unless ANTIPHON_REPRODUCIBLE is 1. All ranks say the same.
     */
    int32_t reproducible;
    /**
     * 0.
     */
    int32_t reserved;
    /**
     * The device of the rank's buffers: "host", "cuda:1", "rocm:0"; without a number the one that is current on the
     * calling thread. Null is what ANTIPHON_DEVICE in the environment says, and else the host. For
     * antiphon_communicator_create_in_process also one device for each rank, with commas between them; there ranks take
     * turns on the devices there are if the one that is named has no number.
     */
    const char *device;
    /**
     * Threads of each thread block on a GPU, 1 to 512: 0 for as many as a plan says.
     */
    uint64_t block_threads;
    /**
     * Tags that registered plans, installed ones and registered code must have, all of them, to serve this communicator's calls;
     * null is what ANTIPHON_TAGS in the environment lists, and else none. All ranks say the same.
     */
    const char *const *tags;
    /**
     * How many there are: with 0, and `tags` that are not null, none.
     */
    uint64_t tag_count;
} antiphon_config;

/**
 * What is said of a plan or of code when it is registered; what is not said, every call fits. Begin with
 * ANTIPHON_TERMS_INIT, which sets the size and says nothing; later versions of the library add fields at the end.
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
     * Largest message, in bytes, no less than the smallest; 0 for any.
     */
    uint64_t max_bytes;
    /**
     * Element types, numbers of antiphon_dtype; none listed is all.
     */
    const int32_t *dtypes;
    /**
     * How many there are.
     */
    uint64_t dtype_count;
    /**
     * Reductions, numbers of antiphon_op. Those that are listed take the place of what the plan says; with none listed,
     * a plan that says no reduction serves all, and one that says a reduction serves that one alone.
     */
    const int32_t *ops;
    /**
     * How many there are.
     */
    uint64_t op_count;
    /**
     * Number of ranks, 0 for any. A plan has its own.
     */
    uint32_t world;
    /**
     * Ranks on each node, 0 for any.
     */
    uint32_t ranks_per_node;
    /**
     * Whether input and output are the same memory: an antiphon_switch. A plan says that itself. Ranks that differ in it are
     * served differently, and told so (MISMATCH).
     */
    int32_t in_place;
    /**
     * 1 if `root` counts, 0 if not. A plan of broadcast, reduce, gather or scatter serves no call unless it is said.
     */
    int32_t has_root;
    /**
     * The root, of collectives that have one.
     */
    uint32_t root;
    /**
     * 0.
     */
    uint32_t reserved;
} antiphon_terms;

/**
 * One call that a program's own code serves, on one rank. It is the code's until it returns.
 */
typedef struct antiphon_code_call {
    /**
     * sizeof(antiphon_code_call), as the library was compiled.
     */
    uint64_t struct_size;
    /**
     * What loads and runs plans on the call's communicator. Plans that it loads may be kept, the executor may not.
     */
    const struct antiphon_executor *executor;
    /**
     * The stream that the call is on; null where the call is complete when the code returns. What is run on it comes in
     * order; code that does anything else synchronises it first. On devices there always is one; it cannot be synchronised
     * while it is recorded into a graph.
     */
    const struct antiphon_stream *stream;
    /**
     * The send buffer; not null.
     */
    const void *send_buffer;
    /**
     * Its bytes: none of a scatter but at the root.
     */
    uint64_t send_bytes;
    /**
     * The receive buffer; not null.
     */
    void *receive_buffer;
    /**
     * Its bytes: none of a reduce or gather but at the root.
     */
    uint64_t receive_bytes;
    /**
     * The element type, an antiphon_dtype.
     */
    int32_t dtype;
    /**
     * The reduction, an antiphon_op; ANTIPHON_OP_OF_PLAN where nothing is reduced.
     */
    int32_t op;
    /**
     * 1 if input and output are the same memory on this rank, by the collective's convention, else 0. Of those with a root, 0.
     * Ranks may differ in it, so a choice that all ranks must make alike, such as that of a plan, must not depend on it.
     */
    int32_t in_place;
    /**
     * The root, of collectives that have one.
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
     * The number of the rank's device; -1 on the host. It is current on the threads of groups; on one that makes the call by
     * itself, what the caller left there is.
     */
    int32_t device;
    /**
     * 1 while the stream is recorded into a graph, of which all that is put into it becomes a part, else 0.
     */
    int32_t recorded;
    /**
     * Of an alltoallv, for each rank, how many elements of the send buffer go there; null of other collectives. (Of an allgatherv,
     * all of the send buffer goes to everyone.)
     */
    const uint64_t *send_counts;
    /**
     * At which element of the send buffer they begin; null likewise.
     */
    const uint64_t *send_offsets;
    /**
     * Of an alltoallv and an allgatherv, for each rank, how many elements come from there; null of other collectives. Nobody has
     * looked whether sender and receiver agree.
     */
    const uint64_t *receive_counts;
    /**
     * At which element of the receive buffer they begin; null likewise.
     */
    const uint64_t *receive_offsets;
} antiphon_code_call;

/**
 * Makes a call, and returns an antiphon_result; where that is a failure, antiphon_last_error has the reason, which
 * antiphon_set_last_error sets. It may be called on several threads at the same time, for several ranks. It
 * returns, and lets no exception out (antiphon.hpp has what sees to it).
 */
typedef int32_t (*antiphon_run_function)(void *context, const struct antiphon_code_call *call);

/**
 * Called once with a context that nobody will be called with again; null if there is nothing to do. It may be called on any
 * thread that uses the library, also in the middle of a call; it returns, lets no exception out, and neither makes calls on
 * communicators nor begins, ends or cancels groups.
 */
typedef void (*antiphon_destroy_function)(void *context);

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
     * Raised whenever it would no longer work together with what it was: ranks compare it.
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
     * What the functions are called with.
     */
    void *context;
    /**
     * Called once with the context, when the code is unregistered and no call runs it any more: before unregistering
     * returns, or on the thread of the last such call. Null if there is nothing to do. It is not called where registering
     * fails.
     */
    antiphon_destroy_function destroy;
    /**
     * 1 if it serves ranks on devices, too, whose buffers are the device's then; 0 if it serves ranks on hosts alone.
     */
    int32_t serves_devices;
    /**
     * 0.
     */
    int32_t reserved;
} antiphon_code;

/**
 * A call, as far as the choice of what serves it goes. Selectors are given one, which is theirs until they return;
 * antiphon_explain takes one, of which the fields up to `root` count, and antiphon_registry_explain. Begin with ANTIPHON_QUESTION_INIT; later
 * versions of the library add fields at the end.
 */
typedef struct antiphon_question {
    /**
     * sizeof(antiphon_question), as the program was compiled; in a selector, as the library was.
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
     * 1 if input and output are the same memory on this rank, by the collective's convention, else 0. Of those with a root, 0.
     * Ranks may differ in it, where the call lets them, so a choice that all ranks must make alike must not depend on it.
     */
    int32_t in_place;
    /**
     * 1 if every rank's input is multiplied by a factor first, else 0.
     */
    int32_t premultiplied;
    /**
     * The root, of collectives that have one; else 0.
     */
    uint32_t root;
    /**
     * Number of ranks.
     */
    uint32_t world;
    /**
     * Nodes that they are spread over; as many as ranks, unless consecutive ranks are on each, equally many.
     */
    uint32_t nodes;
    /**
     * How many candidates there are.
     */
    uint32_t candidate_count;
    /**
     * The names of what fits: registered plans, then code, both the most recent first, then installed plans by name, then
     * built-in algorithms. A tuning table may take any of them; a selector that does not want to choose returns 0.
     */
    const char *const *candidates;
    /**
     * This rank's send buffer; null where nothing is called.
     */
    const void *send_buffer;
    /**
     * This rank's receive buffer; null where nothing is called.
     */
    const void *receive_buffer;
    /**
     * The tags that the communicator asks for (antiphon_config): candidates that are registered or installed have all of them.
     */
    const char *const *tags;
    /**
     * How many there are.
     */
    uint64_t tag_count;
    /**
     * Whether sums keep one order, as antiphon_config says it: an antiphon_switch, in a selector on or off.
     */
    int32_t reproducible;
    /**
     * 0.
     */
    int32_t reserved;
} antiphon_question;

/**
 * Chooses for a call: writes the name of a candidate, with a zero, and returns 1; or returns 0, and leaves the choice to the
 * rules. Anything else is an error of the call, with the reason that antiphon_set_last_error set. `answer` has room for ANTIPHON_ANSWER_BYTES. It may be called on several
 * threads at the same time; it returns, and lets no exception out (antiphon.hpp has what sees to it).
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
 * Gives every rank the reduction of all ranks' `count` elements. In place, each rank as it likes, both buffers are
 * the same.
 *
 * `dtype` is an antiphon_dtype, `op` an antiphon_op or made for the communicator. With a stream the call goes on by
 * itself, in stream order; with null it is complete on return. Any thread may call it, in the same order on all ranks.
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
 * Gives every rank the `count` elements of all, in rank order: the receive buffer has `count` for each rank. In
 * place, each rank as it likes, the send buffer is the rank's block of the receive buffer.
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
 * Gives rank r the reduction of all ranks' block r of `count` elements: the send buffer has `count` for each rank. In
 * place, each rank as it likes, the receive buffer is the rank's block of the send buffer.
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
 * Exchanges blocks: block r of rank s becomes block s of rank r. Both buffers have `count` elements for each rank.
 * In place, on all ranks or on none, they are the same.
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
 * Exchanges blocks that have lengths of their own: the rank sends `send_counts[r]` elements from element
 * `send_offsets[r]` on to rank r, and receives `receive_counts[r]` from there, to element `receive_offsets[r]`.
 * Sender and receiver say the same count. Arrays have an element for each rank, and are read before the call
 * returns. Of a block of no elements the offset does not count. Out of place.
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
 * Gives every rank the elements of all, of which each sends a number of its own: all `count` elements of this rank's send
 * buffer go to everyone, and `receive_counts[r]` come from rank r, to element `receive_offsets[r]`. Arrays have an element
 * for each rank, and are read before the call returns; `receive_counts` of this rank is `count`. Of a block of no elements
 * the offset does not count. The send buffer may be the rank's block of the receive buffer, on each rank as it likes.
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
 * Sends `count` elements to a peer, which calls antiphon_receive with the same count and type; the other ranks have no part in
 * it. Without a stream it returns when the peer has received: ranks that send to each other do it in a group
 * (antiphon_group_begin), or on streams. Transfers from one rank to another come in order; on a device the first one waits, also on
 * a stream, until the two ranks have formed a queue of their own: for the peer's process, not for its call. A rank sends to itself
 * inside a group only.
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
 * Makes the id of a group. From now on this process listens for the ranks, on a thread of the library's, until all have joined: that of
 * rank 0, of another rank, or of none. It runs so long. It listens at the interface that ANTIPHON_INTERFACE names, or else
 * MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's grammar, and without them where the host is likely to be reached.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `out_id` is null or writable.
 */
antiphon_result antiphon_unique_id_create(struct antiphon_unique_id *out_id);

/**
 * Has this process listen no more for the ranks of an id that it has made, where none will join by it. Of other ids, and of those by
 * which rank 0 has joined here, it does nothing.
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
 * They wait for each other as long as a call may make no progress (`timeout_ms`), but two minutes at the least; then it is
 * ANTIPHON_RESULT_TIMEOUT, or ANTIPHON_RESULT_RENDEZVOUS where more is known, with the ranks that are missing. If nobody answers at the
 * id's address, because the process that made the id has ended, it is ANTIPHON_RESULT_RENDEZVOUS after a minute, or after `timeout_ms` if
 * that is longer; without a time limit, too, after a minute.
 *
 * Any thread may call it; ranks that live in one process call it from a thread each.
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
 * "file:/path". Returns when all ranks, which pass the same place, are there. Over TCP they prove to know a secret, which
 * ANTIPHON_SECRET or ANTIPHON_SECRET_FILE says. `config` may be null.
 *
 * It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, as long as a call may make no progress
 * (`timeout_ms`), but two minutes at the least. Then it fails with ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and
 * antiphon_last_error names the missing ranks as far as they are known.
 *
 * Any thread may call it, for one group at a place at a time.
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
 * ANTIPHON_WORLD and ANTIPHON_COMM_ID describe. `config` may be null.
 *
 * It waits for the other ranks as long as ANTIPHON_TIMEOUT says; if that is not set, two minutes. Then it fails with
 * ANTIPHON_RESULT_TIMEOUT or ANTIPHON_RESULT_RENDEZVOUS, and antiphon_last_error names the missing ranks as far as they are known. If
 * the environment describes no group, it fails with ANTIPHON_RESULT_INVALID_ARGUMENT.
 *
 * Call it once a process, from any thread.
 *
 * The caller sees to it:
 * As antiphon_communicator_create.
 */
antiphon_result antiphon_communicator_create_from_environment(const struct antiphon_config *config,
                                                              struct antiphon_communicator **out_communicator);

/**
 * Makes a group of `world` ranks that all live in this process, and writes their communicators, in rank order, to an
 * array of that many. Each is for a thread of its own, or one thread drives them all by calls on streams. `config`
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
 * Divides the ranks into groups: ranks of one color form a new one, ordered by key, then by rank. A key counts as the
 * `int32_t` of its bits, so that it may be negative. Every rank calls it; one that passes a negative color joins none, and gets null.
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
 * Makes a communicator of some ranks of another, in the order of the list: each of the `count` ranks listed calls it
 * with the same list, and the others have no part in it. It works, too, where the other communicator is broken, if
 * those that are listed live.
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
 * Writes the number of the node that a rank is on: ranks of equal numbers map each other's memory.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_node` is null or writable.
 */
antiphon_result antiphon_communicator_node(const struct antiphon_communicator *communicator, uint32_t rank, uint32_t *out_node);

/**
 * Gives every rank the bytes of all ranks: `bytes` of each, as many on all ranks, from `own` on the host, to `out_all` there, which has
 * room for those of all ranks, in rank order. It goes by what the ranks met by, whatever device their buffers are on, and is for
 * what programs agree on, not for data: at most 64 KiB of each. Complete on return.
 *
 * Fails with ANTIPHON_RESULT_MISMATCH on all ranks where one gave another number of bytes, and with ANTIPHON_RESULT_PEER_LOST where one
 * has destroyed its communicator. Any other failure breaks the communicator: ANTIPHON_RESULT_TIMEOUT where a rank did not come, and,
 * between nodes, ANTIPHON_RESULT_MISMATCH where one is in a barrier.
 *
 * Any thread may call it, in the same order among a communicator's exchanges, splits and barriers on all ranks.
 *
 * The caller sees to it:
 * The handle is one, or null; `own` is null or readable for `bytes`, `out_all` null or writable for as many of each rank.
 */
antiphon_result antiphon_communicator_exchange(const struct antiphon_communicator *communicator,
                                               const void *own,
                                               uint64_t bytes,
                                               void *out_all);

/**
 * Makes the device of a communicator's buffers current on the calling thread and leaves it so, as cudaSetDevice and hipSetDevice do;
 * on the host it does nothing. Calls of this library need it not: it is for code of others that the thread calls.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_communicator_make_current(const struct antiphon_communicator *communicator);

/**
 * Ends every wait of every rank of a communicator; later calls fail with ANTIPHON_RESULT_ABORTED and this reason,
 * which may be null; what is not UTF-8 in it is replaced. If the communicator was already broken, the earlier reason stays.
 *
 * Any thread may call it at any time, also while others wait in calls on the communicator.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; the reason, if there is one, ends
 * with a zero.
 */
antiphon_result antiphon_communicator_abort(const struct antiphon_communicator *communicator, const char *reason);

/**
 * Writes what broke a communicator, an antiphon_result, or ANTIPHON_RESULT_SUCCESS while it is whole. Where it is
 * broken, antiphon_last_error then has the details. Does not wait.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_result` is null or writable.
 */
antiphon_result antiphon_communicator_async_error(const struct antiphon_communicator *communicator, antiphon_result *out_result);

/**
 * Tells the peers about a buffer now, so that they have mapped it when the first launch comes that uses it; otherwise the first launch
 * that uses it tells them and waits, in its stream, until they have mapped it. A hint: calls use any buffer. Writes 0 where nothing is
 * gained, since the buffer is in memory that peers cannot map, else 1. On a GPU the memory stays mapped while it is among the 64 of the
 * application that were used or told of last; memory of antiphon_memory_allocate, there and on the host, until it is freed.
 *
 * Any thread may call it at any time; peers make no call.
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
 * Writes 1 if all calls on a communicator are complete, on whatever streams, else 0; replays of a graph count once they have
 * begun. Calls that are gathered in a group count once it has ended. If one has failed, antiphon_communicator_async_error tells.
 * What is complete may be known a moment later. Does not wait.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
 */
antiphon_result antiphon_communicator_query(const struct antiphon_communicator *communicator, int32_t *out_done);

/**
 * Destroys a communicator. It leaves its group when its executors, plans and streams are destroyed too, and the work
 * that was given to them is done. In a process that was forked from the one that made it, it stays the parent's. Null is refused
 * with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other call on the communicator is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_communicator_destroy(struct antiphon_communicator *communicator);

/**
 * Writes 1 if this library was built with a backend ("host", "cuda", "rocm"), else 0. Whether this machine has its
 * driver is another question, and no driver is looked for.
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
 * Begins a group: the collectives and transfers that this thread calls until antiphon_group_end are gathered, on any
 * communicators, and launched there. Collectives of a communicator run in the order of their calls; sends and receives
 * may come in any order, and a rank may send to itself. Begun again inside a group, it counts: the outermost end
 * launches. antiphon_barrier and antiphon_execute are refused inside a group (ANTIPHON_RESULT_UNSUPPORTED), and the group goes on.
 *
 * What is wrong with a call that is gathered is told by the call. On the host, whether a rank gathers its calls or makes
 * them one by one is no concern of the others. On devices, what one rank gathers its peers gather as well: a device may run
 * what is in several streams one after the other. Any thread may call it at any time.
 */
antiphon_result antiphon_group_begin(void);

/**
 * Ends a group: launches what this thread has called since antiphon_group_begin. Calls without a stream are complete on
 * return; those on streams go on by themselves. If one of the calls was refused, nothing is launched, and its result is
 * returned again.
 *
 * On a device the first transfer from one rank to another waits for the other process alone. Any thread may call it after it has
 * begun a group.
 */
antiphon_result antiphon_group_end(void);

/**
 * Gives up the groups that this thread has begun: nothing that was gathered is launched.
 *
 * Any thread may call it at any time.
 */
antiphon_result antiphon_group_cancel(void);

/**
 * Allocates zeroed memory on a communicator's device. Calls may use any part of it; it belongs to no communicator.
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
 * of it, and so may kernels and copies of every other device of this process that reaches that one's memory. `device` is a text as
 * in antiphon_config.
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
 * Gives memory back: at once, or, while launches of this process are under way on a GPU, when they are over. The caller
 * waits for no kernel. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
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
 * reduction, each its own.
 *
 * `deferred` is an antiphon_switch: off, as by default, the factor is read now; on, it is read when a call runs, and
 * stays where it is until then. For buffers on a device it lies where the device reads it, then, and is read when the call's
 * stream comes to it; a replay of a graph reads it anew. Any thread may call it at any time.
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
 * Destroys a reduction that was made for a communicator. Calls that were made with it go on. Those of a communicator
 * that is destroyed are destroyed with it. Null for the communicator is refused with ANTIPHON_RESULT_INVALID_HANDLE.
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
 * Ends every wait of every rank of an executor's communicator, as antiphon_communicator_abort does. Code that fails while other
 * threads run plans by the executor of its call ends those so; it returns when they have, since the executor is taken back then.
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
 * Loads a plan from the bytes of such a file.
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
 * Loads the plan of a built-in algorithm, e.g. "allreduce_ring", for all ranks of one node. `in_place` says with 1
 * that send and receive buffer are the same memory, with 0 that they are not; `root` is for those that have one. Algorithms of gather,
 * scatter, alltoallv and allgatherv are refused: they take each rank's blocks when they run, which antiphon_execute has no argument for.
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
 * Writes what the verifier says of a plan, as a text that ends with a zero, and its bytes with that zero. With a null
 * buffer and a capacity of 0 it writes only how many bytes are needed. The first call verifies, whatever the
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
 * Destroys a plan. Calls of it that are under way go on. Null is refused with ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other function is busy with the plan.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_plan_destroy(struct antiphon_plan *plan);

/**
 * Runs a plan. All ranks call it with plans of the same content, equal sizes, type and reduction. Sizes are in bytes
 * and multiples of the element's; `dtype` is an antiphon_dtype, `op` an antiphon_op. With a stream the call goes on
 * by itself, in the stream's order; with null for it, it is complete on return. It is refused inside a group
 * (ANTIPHON_RESULT_UNSUPPORTED).
 *
 * The buffers begin at multiples of the element's size. They share no byte, or are in place: the same memory, or the smaller is the rank's
 * own block of the larger. Others are refused, unless the communicator does not verify plans. A plan may write the send buffer, if its
 * author wrote it so.
 *
 * Any thread may call it, in the same order among a communicator's calls on all ranks.
 *
 * The caller sees to it:
 * Each handle is null, or one that this library returned and that nobody destroys meanwhile; the buffers have as many bytes until the
 * call is complete, and nobody else writes the send buffer or touches the receive buffer meanwhile.
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
 * Registers a loaded plan with this process: from the next call on it serves calls by name that it fits, on every
 * communicator, before what was registered earlier and before the built-in algorithms. The plan may be destroyed. Plans of
 * sendrecv are refused: of such calls they would serve none.
 *
 * Register on all ranks, in the same order, between calls: ranks that are served differently are told so
 * (MISMATCH). If a plan may serve a call, either all ranks call in place or none does (except in collectives with a root); ranks that
 * differ get MISMATCH. `terms` may be null. Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `terms` is null or as long as it
 * says, and what it points to is there.
 */
antiphon_result antiphon_registry_register_plan(const struct antiphon_plan *plan, const struct antiphon_terms *terms);

/**
 * As antiphon_registry_register_plan, from the bytes of a JSON file. It takes no communicator; each verifies the plan when
 * a call is first served by it.
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
 * Writes what is registered, as a text that ends with a zero, and its bytes with that zero: a line for each plan, then one
 * for each code, each the most recent last, with its kind ("plan" or "code"), its collective and its name, one blank apart.
 * Names may have blanks, and no control characters. With a null buffer and a capacity of 0 it writes only how many bytes are needed.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `buffer` is null or has `capacity` bytes; `out_bytes` is null or writable.
 */
antiphon_result antiphon_registry_list(char *buffer, uint64_t capacity, uint64_t *out_bytes);

/**
 * Registers code with this process: from the next call on it serves calls by name that it fits, on every communicator, after
 * registered plans and before installed ones and the built-in algorithms. It serves ranks on the host, and with `serves_devices`
 * those on devices, whose calls go to the next candidate else. In a group it runs when the group ends, in the order of the calls, on a thread that each
 * communicator with such calls has there.
 *
 * All ranks of a call meet, and compare name and version, before it runs. A result that is not 0 aborts the communicator.
 * Register on all ranks, in the same order, between calls. `terms` may be null. Any thread may call it at any time.
 *
 * The caller sees to it:
 * `code` is null or as long as it says, its texts end with a zero, and its functions may be called with the context from any
 * thread until it is destroyed; `terms` is null or as long as it says, and what it points to is there.
 */
antiphon_result antiphon_registry_register_code(const struct antiphon_code *code,
                                                const struct antiphon_terms *terms);

/**
 * Installs a plan, from the bytes of a JSON file, on this machine: it serves calls by name that it fits of every process that
 * makes its first communicator from now on, where all ranks have the same plans installed. One of its name is replaced.
 * It is verified, which may take a while; one that is refuted is not installed. `terms` may be null.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * `bytes` is null or has `size` bytes; `terms` is null or as long as it says, and what it points to is there.
 */
antiphon_result antiphon_install_bytes(const void *bytes, uint64_t size, const struct antiphon_terms *terms);

/**
 * Removes an installed plan, by its name. Processes that found it go on with it.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The name, if there is one, ends with a zero.
 */
antiphon_result antiphon_uninstall(const char *name);

/**
 * Writes the default plans for so many ranks on so many nodes into `default` in the cache folder: every built-in algorithm of
 * the host as a file, in the place of what is there. They serve no call by themselves. Of 0 ranks there are as many as this process
 * may use cores, and at least 2; more than 1024 are refused.
 *
 * Any thread may call it at any time.
 */
antiphon_result antiphon_install_defaults(uint32_t ranks, uint32_t nodes);

/**
 * Has a function asked about every call by name of this process, in the place of the one before; null for none. It is called
 * on the thread that makes the call, on any threads at the same time, and may not call this library's functions on
 * communicators. It must choose alike on all ranks. `destroy` is called with the context, once, when the
 * selector is replaced and no call asks it any more: before this function returns, or on the thread of the last such call.
 * Where `select` is null, at once.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The functions are such, and may be called with the context from any thread until it is destroyed; they return.
 */
antiphon_result antiphon_registry_set_selector(antiphon_select_function select, void *context, antiphon_destroy_function destroy);

/**
 * Writes what would serve a call on a communicator, why, and what else was considered, as a text that ends with a zero, and
 * its bytes with that zero. With a null buffer and a capacity of 0 it writes only how many bytes are needed. `format` is an
 * antiphon_format. A selector is asked, with null buffers. Nothing is called, and no other rank has a part in it.
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
 * As antiphon_explain, for a call of no communicator: of `world` ranks on `nodes` nodes, equally many on each, whose buffers are
 * the host's. It goes by what is registered and built in, and by the selector, which is told the tags and the order of sums of
 * the question: those that are not said are the environment's (ANTIPHON_TAGS, ANTIPHON_REPRODUCIBLE). It knows neither a tuning
 * table nor installed plans, which ranks agree on when their communicator forms.
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
 * What went wrong in the last function of this library that failed on the calling thread, in words that name values
 * and ranks and say what to do; empty where none has. The text is UTF-8 and stays until the next failure on this
 * thread.
 *
 * Any thread may call it at any time.
 */
const char *antiphon_last_error(void);

/**
 * Sets this thread's last failure to a text of the program's own. A selector, or code that serves calls, says by it why it
 * fails: the error of the call has the text in it.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The text, if there is one, ends with a zero.
 */
antiphon_result antiphon_set_last_error(const char *failure);

/**
 * What a result means in general, in a few words; a text that lives as long as the library. Of a number that is no
 * result's, that it is unknown.
 *
 * Any thread may call it at any time.
 */
const char *antiphon_result_text(int32_t result);

/**
 * Makes a stream on a communicator's device. Calls of several communicators of that device may share it. On a GPU
 * antiphon_stream_synchronize then tells of failures of this communicator alone; antiphon_communicator_async_error tells of the others'.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_stream` is null or writable.
 */
antiphon_result antiphon_stream_create(const struct antiphon_communicator *communicator, struct antiphon_stream **out_stream);

/**
 * Takes a stream of the application (a cudaStream_t, CUstream or hipStream_t, null for the default stream) of a
 * communicator's device: calls on it come in order with all else that the application puts there, and become part of a
 * graph while it is recorded into one. Destroying the result leaves the application's stream as it is. The same stream may
 * be taken again at any time.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `native` is a stream of the device's
 * context, and lives as long as the result and the calls on it; `out_stream` is null or writable.
 */
antiphon_result antiphon_stream_adopt(const struct antiphon_communicator *communicator, void *native, struct antiphon_stream **out_stream);

/**
 * Waits until all calls on a stream are complete, and returns the first error among those since the last time.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile.
 */
antiphon_result antiphon_stream_synchronize(const struct antiphon_stream *stream);

/**
 * Writes 1 if all calls on a stream are complete, also if they have failed, else 0. Does not wait: 1 says that buffers are free, and
 * antiphon_stream_synchronize what became of the calls.
 *
 * Any thread may call it at any time.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that nobody destroys meanwhile; `out_done` is null or writable.
 */
antiphon_result antiphon_stream_query(const struct antiphon_stream *stream, int32_t *out_done);

/**
 * Destroys a stream. Calls on it that are under way go on; synchronize first to learn what becomes of them. Null is refused with
 * ANTIPHON_RESULT_INVALID_HANDLE.
 *
 * Any thread may call it, once, while no other call on the stream is under way.
 *
 * The caller sees to it:
 * The handle is null, or one that this library returned and that is not in use.
 */
antiphon_result antiphon_stream_destroy(struct antiphon_stream *stream);

/**
 * Bytes of an element of a type (an antiphon_dtype); 0 for a number that is no type's.
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
