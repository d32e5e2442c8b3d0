/* Calls on devices: in the application's streams, in graphs, by processes, by threads, and by one thread for all ranks. The
 * application's own calls are those of CUDA's driver. */
#include "check.h"
#include "driver.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 2, COUNT = 256, BLOCKS = 32 };

static const int32_t I32 = ANTIPHON_DTYPE_I32, SUM = ANTIPHON_OP_SUM;

static int32_t value(uint32_t rank, uint32_t index)
{
    return (int32_t)(rank * 7 + index * 3) % 101 + 1;
}

/* What a rank has on its device. */
struct Side {
    uint32_t rank;
    antiphon_communicator *communicator;
    CUstream native;
    antiphon_stream *stream;
    CUdeviceptr in, out;
};

static void *at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static void fill(const struct Side *side, uint32_t len, int32_t more)
{
    int32_t values[WORLD * COUNT];
    uint32_t i;
    for (i = 0; i < len; i++) {
        values[i] = value(side->rank, i) + more;
    }
    CUDA(cuMemcpyHtoD_v2(side->in, values, len * sizeof *values));
}

/* Fails unless element i of the result is what `expected` says. */
static void expect(const struct Side *side, uint32_t len, int32_t (*expected)(uint32_t rank, uint32_t index), int32_t more)
{
    int32_t values[WORLD * COUNT];
    uint32_t i;
    CUDA(cuMemcpyDtoH_v2(values, side->out, len * sizeof *values));
    for (i = 0; i < len; i++) {
        CHECK(values[i] == expected(side->rank, i) + more);
    }
}

static int32_t sums(uint32_t rank, uint32_t i)
{
    (void)rank;
    return value(0, i) + value(1, i);
}

static int32_t gathered(uint32_t rank, uint32_t i)
{
    (void)rank;
    return value(i / COUNT, i % COUNT);
}

static int32_t scattered(uint32_t rank, uint32_t i)
{
    return sums(0, rank * COUNT + i);
}

static int32_t exchanged(uint32_t rank, uint32_t i)
{
    return value(i / COUNT, rank * COUNT + i % COUNT);
}

static int32_t of_last(uint32_t rank, uint32_t i)
{
    (void)rank;
    return value(WORLD - 1, i);
}

static int32_t of_other(uint32_t rank, uint32_t i)
{
    return value(1 - rank, i);
}

static int32_t own(uint32_t rank, uint32_t i)
{
    return value(rank, i);
}

/* A rank of a communicator whose device is current. */
static void open_side(struct Side *side, uint32_t rank, antiphon_communicator *communicator)
{
    side->rank = rank;
    side->communicator = communicator;
    CUDA(cuStreamCreate(&side->native, 1));
    CUDA(cuMemAlloc_v2(&side->in, WORLD * COUNT * sizeof(int32_t)));
    CUDA(cuMemAlloc_v2(&side->out, WORLD * COUNT * sizeof(int32_t)));
    OK(antiphon_stream_adopt(communicator, side->native, &side->stream));
}

static void close_side(const struct Side *side)
{
    CUDA(cuStreamSynchronize(side->native));
    OK(antiphon_stream_destroy(side->stream));
    OK(antiphon_communicator_destroy(side->communicator));
    CUDA(cuMemFree_v2(side->in));
    CUDA(cuMemFree_v2(side->out));
    CUDA(cuStreamDestroy_v2(side->native));
}

/* What every rank does by itself. */
static void work(struct Side *side)
{
    antiphon_communicator *c = side->communicator;
    antiphon_stream *s = side->stream;
    const void *in = at(side->in);
    void *out = at(side->out);
    antiphon_memory *memory;
    void *address;
    int32_t done;
    uint32_t i;
    CUgraph graph;
    CUgraphExec executable;

#define DONE() OK(antiphon_stream_synchronize(s))
    fill(side, WORLD * COUNT, 0);
    OK(antiphon_all_reduce(c, in, out, COUNT, I32, SUM, s));
    DONE();
    expect(side, COUNT, sums, 0);
    OK(antiphon_all_gather(c, in, out, COUNT, I32, s));
    DONE();
    expect(side, WORLD * COUNT, gathered, 0);
    OK(antiphon_reduce_scatter(c, in, out, COUNT, I32, SUM, s));
    DONE();
    expect(side, COUNT, scattered, 0);
    OK(antiphon_all_to_all(c, in, out, COUNT, I32, s));
    DONE();
    expect(side, WORLD * COUNT, exchanged, 0);
    OK(antiphon_broadcast(c, in, out, COUNT, I32, WORLD - 1, s));
    DONE();
    expect(side, COUNT, of_last, 0);
    OK(antiphon_reduce(c, in, out, COUNT, I32, SUM, 0, s));
    OK(antiphon_gather(c, in, side->rank == 1 ? out : NULL, COUNT, I32, 1, s));
    DONE();
    expect(side, side->rank == 1 ? WORLD * COUNT : COUNT, side->rank == 1 ? gathered : sums, 0);

    /* Without a stream it is complete on return. */
    OK(antiphon_all_reduce(c, in, out, COUNT, I32, SUM, NULL));
    expect(side, COUNT, sums, 0);

    /* In order with what the application puts into its stream. */
    CUDA(cuMemcpyAsync(side->out, side->in, COUNT * sizeof(int32_t), side->native));
    OK(antiphon_all_reduce(c, out, out, COUNT, I32, SUM, s));
    CUDA(cuMemcpyAsync(side->in, side->out, COUNT * sizeof(int32_t), side->native));
    OK(antiphon_all_reduce(c, in, out, COUNT, I32, ANTIPHON_OP_MAX, s));
    CUDA(cuStreamSynchronize(side->native));
    expect(side, COUNT, sums, 0);

    /* One rank groups its transfers, the other makes them one by one; ranks that send first come first. */
    fill(side, COUNT, 0);
    if (side->rank == 0) {
        OK(antiphon_send(c, in, COUNT, I32, 1, s));
        OK(antiphon_receive(c, out, COUNT, I32, 1, s));
    } else {
        OK(antiphon_group_begin());
        OK(antiphon_send(c, in, COUNT, I32, 0, s));
        OK(antiphon_receive(c, out, COUNT, I32, 0, s));
        OK(antiphon_group_end());
    }
    CUDA(cuStreamSynchronize(side->native));
    expect(side, COUNT, of_other, 0);

    /* Recorded once, played with other data; by rules for this thread alone, since the other rank may make its graph meanwhile. */
    CUDA(cuStreamBeginCapture_v2(side->native, 1));
    OK(antiphon_all_reduce(c, in, out, COUNT, I32, SUM, s));
    CUDA(cuStreamEndCapture(side->native, &graph));
    CUDA(cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (i = 1; i <= 3; i++) {
        fill(side, COUNT, (int32_t)i);
        CUDA(cuGraphLaunch(executable, side->native));
        CUDA(cuStreamSynchronize(side->native));
        expect(side, COUNT, sums, (int32_t)i * WORLD);
    }
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));

    /* Memory of the library. */
    OK(antiphon_memory_allocate(c, sizeof(int32_t) * COUNT, &memory));
    OK(antiphon_memory_address(memory, &address));
    OK(antiphon_communicator_register(c, address, sizeof(int32_t) * COUNT, &done));
    CHECK(done);
    OK(antiphon_all_reduce(c, in, address, COUNT, I32, SUM, s));
    OK(antiphon_all_reduce(c, address, out, COUNT, I32, ANTIPHON_OP_MIN, s));
    DONE();
    OK(antiphon_stream_query(s, &done));
    CHECK(done);
    do OK(antiphon_communicator_query(c, &done));
    while (!done);
    expect(side, COUNT, sums, 3 * WORLD);
    OK(antiphon_memory_free(memory));
}

static antiphon_config config(const char *device)
{
    antiphon_config asked = ANTIPHON_CONFIG_INIT;
    asked.timeout_ms = 120000;
    asked.device = device;
    asked.block_threads = BLOCKS;
    return asked;
}

/* Device 0, and one more. */
static const char *devices(int second)
{
    static char named[32];
    snprintf(named, sizeof named, "cuda:0,cuda:%d", on(second));
    return named;
}

static void *of_thread(void *given)
{
    struct Side *side = (struct Side *)given;
    use((int)side->rank);
    open_side(side, side->rank, side->communicator);
    work(side);
    close_side(side);
    return NULL;
}

static void threads(void)
{
    antiphon_communicator *ends[WORLD];
    struct Side sides[WORLD];
    pthread_t started[WORLD];
    antiphon_config asked = config("cuda");
    uint32_t rank;
    OK(antiphon_communicator_create_in_process(WORLD, &asked, ends));
    for (rank = 0; rank < WORLD; rank++) {
        sides[rank].rank = rank;
        sides[rank].communicator = ends[rank];
        CHECK(pthread_create(&started[rank], NULL, of_thread, &sides[rank]) == 0);
    }
    for (rank = 0; rank < WORLD; rank++) {
        CHECK(pthread_join(started[rank], NULL) == 0);
    }
}

/* One thread for all ranks, of which rank 0 is on device 0, and rank 1 on this. */
static void together(int second)
{
    antiphon_communicator *ends[WORLD];
    struct Side sides[WORLD];
    antiphon_config asked = config(devices(second));
    uint32_t rank, round;
    OK(antiphon_communicator_create_in_process(WORLD, &asked, ends));
    for (rank = 0; rank < WORLD; rank++) {
        use(rank == 0 ? 0 : second);
        open_side(&sides[rank], rank, ends[rank]);
        fill(&sides[rank], COUNT, 0);
    }
    for (round = 0; round < 2; round++) {
        OK(antiphon_group_begin());
        for (rank = 0; rank < WORLD; rank++) {
            struct Side *side = &sides[rank];
            OK(antiphon_all_reduce(side->communicator, at(side->in), at(side->out), COUNT, I32, SUM, side->stream));
            OK(antiphon_all_reduce(side->communicator, at(side->out), at(side->out), COUNT, I32, ANTIPHON_OP_MAX,
                                   side->stream));
        }
        OK(antiphon_group_end());
        for (rank = 0; rank < WORLD; rank++) {
            OK(antiphon_stream_synchronize(sides[rank].stream));
            expect(&sides[rank], COUNT, sums, 0);
        }
        /* In any order, to itself too, and beside a collective. */
        OK(antiphon_group_begin());
        for (rank = 0; rank < WORLD; rank++) {
            struct Side *side = &sides[rank];
            CUdeviceptr behind = side->out + COUNT * sizeof(int32_t);
            antiphon_stream *stream = round == 0 ? side->stream : NULL;
            OK(antiphon_receive(side->communicator, at(side->out), COUNT, I32, 1 - rank, stream));
            OK(antiphon_send(side->communicator, at(side->in), COUNT, I32, rank, stream));
            OK(antiphon_send(side->communicator, at(side->in), COUNT, I32, 1 - rank, stream));
            OK(antiphon_receive(side->communicator, at(behind), COUNT, I32, rank, stream));
        }
        OK(antiphon_group_end());
        for (rank = 0; rank < WORLD; rank++) {
            struct Side behind = sides[rank];
            behind.out += COUNT * sizeof(int32_t);
            if (round == 0) {
                OK(antiphon_stream_synchronize(behind.stream));
            }
            expect(&sides[rank], COUNT, of_other, 0);
            expect(&behind, COUNT, own, 0);
        }
    }
    for (rank = 0; rank < WORLD; rank++) {
        close_side(&sides[rank]);
    }
}

/* An allreduce: what is to be summed is copied by the driver's call, and the copy summed by a plan. */
struct Adding {
    CUdeviceptr copies[WORLD];
    uint32_t calls[WORLD];
    int32_t recorded[WORLD];
};

static int32_t add_up(void *context, const antiphon_code_call *call)
{
    struct Adding *adding = (struct Adding *)context;
    CUdeviceptr copy = adding->copies[call->rank];
    antiphon_plan *plan = NULL;

    CHECK(call->struct_size >= sizeof *call && call->stream != NULL && call->native_stream != NULL);
    CHECK(call->device == on((int)call->rank));
    adding->calls[call->rank]++;
    adding->recorded[call->rank] = call->recorded;
    CUDA(cuMemcpyAsync(copy, (CUdeviceptr)(uintptr_t)call->send_buffer, call->send_bytes,
                       (CUstream)call->native_stream));
    OK(antiphon_plan_load_name(call->executor, "allreduce_hub", 0, 0, &plan));
    OK(antiphon_execute(call->executor, plan, at(copy), call->send_bytes, call->receive_buffer, call->receive_bytes,
                        call->dtype, call->op, call->stream));
    OK(antiphon_plan_destroy(plan));
    return ANTIPHON_RESULT_SUCCESS;
}

/* One thread for all ranks, whose calls code of the program serves: in a group, and recorded into a graph for each rank. */
static void coded(void)
{
    antiphon_communicator *ends[WORLD];
    struct Side sides[WORLD];
    antiphon_config asked = config(devices(1));
    antiphon_code code = ANTIPHON_CODE_INIT;
    struct Adding adding;
    CUgraph graphs[WORLD];
    CUgraphExec executables[WORLD];
    uint32_t rank, round;

    if (on(1) == 0) {
        printf("SKIP: ranks that share a device are recorded into one graph, and here each has its own\n");
        return;
    }
    memset(&adding, 0, sizeof adding);
    code.name = "adding";
    code.collective = "allreduce";
    code.run = add_up;
    code.context = &adding;
    code.serves_devices = 2;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "serves_devices", antiphon_registry_register_code(&code, NULL));
    code.serves_devices = 1;
    OK(antiphon_registry_register_code(&code, NULL));
    OK(antiphon_communicator_create_in_process(WORLD, &asked, ends));
    for (rank = 0; rank < WORLD; rank++) {
        use((int)rank);
        open_side(&sides[rank], rank, ends[rank]);
        CUDA(cuMemAlloc_v2(&adding.copies[rank], COUNT * sizeof(int32_t)));
    }
    for (round = 0; round < 4; round++) {
        for (rank = 0; rank < WORLD; rank++) {
            fill(&sides[rank], COUNT, (int32_t)round);
        }
        if (round < 2) {
            for (rank = 0; rank < WORLD && round == 1; rank++) {
                CUDA(cuStreamBeginCapture_v2(sides[rank].native, 0));
            }
            OK(antiphon_group_begin());
            for (rank = 0; rank < WORLD; rank++) {
                struct Side *side = &sides[rank];
                OK(antiphon_all_reduce(side->communicator, at(side->in), at(side->out), COUNT, I32, SUM, side->stream));
            }
            OK(antiphon_group_end());
            for (rank = 0; rank < WORLD && round == 1; rank++) {
                CUDA(cuStreamEndCapture(sides[rank].native, &graphs[rank]));
            }
            /* Not before: it would end what is still recorded. */
            for (rank = 0; rank < WORLD && round == 1; rank++) {
                CUDA(cuGraphInstantiateWithFlags(&executables[rank], graphs[rank], 0));
            }
        }
        for (rank = 0; rank < WORLD && round > 0; rank++) {
            CUDA(cuGraphLaunch(executables[rank], sides[rank].native));
        }
        for (rank = 0; rank < WORLD; rank++) {
            CUDA(cuStreamSynchronize(sides[rank].native));
            expect(&sides[rank], COUNT, sums, (int32_t)round * WORLD);
            CHECK(adding.calls[rank] == (round == 0 ? 1u : 2u) && adding.recorded[rank] == (round > 0));
        }
    }
    for (rank = 0; rank < WORLD; rank++) {
        CUDA(cuGraphExecDestroy(executables[rank]));
        CUDA(cuGraphDestroy(graphs[rank]));
        close_side(&sides[rank]);
        CUDA(cuMemFree_v2(adding.copies[rank]));
    }
    OK(antiphon_registry_unregister("adding"));
}

static void processes(void)
{
    int ways[WORLD][2];
    uint32_t rank;
    for (rank = 0; rank < WORLD; rank++) {
        CHECK(pipe(ways[rank]) == 0);
    }
    for (rank = 0; rank < WORLD; rank++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            antiphon_unique_id id;
            antiphon_config asked = config("cuda");
            struct Side side;
            antiphon_communicator *communicator;
            CUDA(cuInit(0));
            if (rank == 0) {
                OK(antiphon_unique_id_create(&id));
                CHECK(write(ways[1][1], &id, sizeof id) == (ssize_t)sizeof id);
            } else {
                CHECK(read(ways[1][0], &id, sizeof id) == (ssize_t)sizeof id);
            }
            use((int)rank + 1);
            OK(antiphon_device_current("cuda", &side.rank));
            CHECK(side.rank == (uint32_t)on((int)rank + 1));
            OK(antiphon_communicator_create(&id, rank, WORLD, &asked, &communicator));
            open_side(&side, rank, communicator);
            work(&side);
            close_side(&side);
            exit(EXIT_SUCCESS);
        }
    }
    for (rank = 0; rank < WORLD; rank++) {
        int status;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    }
}

static void misuse(void)
{
    antiphon_communicator *ends[WORLD];
    antiphon_memory *memory;
    antiphon_config asked = config("cuda:99");
    int32_t built = 0;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "number 99", antiphon_communicator_create_in_process(1, &asked, ends));
    asked.device = "cuda:0,cuda:0,cuda:0";
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "3 devices", antiphon_communicator_create_in_process(2, &asked, ends));
    asked.device = "cuda:0";
    asked.block_threads = 1000000;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "1000000", antiphon_communicator_create_in_process(1, &asked, ends));
    OK(antiphon_backend_is_built("cuda", &built));
    CHECK(built == 1);
    OK(antiphon_memory_allocate_on("cuda:0", 100, &memory));
    OK(antiphon_memory_free(memory));
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    if (strcmp(mode, "processes") == 0) {
        processes();
    } else {
        CUDA(cuInit(0));
        if (strcmp(mode, "threads") == 0) {
            threads();
        } else if (strcmp(mode, "together") == 0) {
            together(0);
            together(1);
        } else if (strcmp(mode, "coded") == 0) {
            coded();
        } else {
            CHECK(strcmp(mode, "misuse") == 0);
            misuse();
        }
    }
    printf("device: ok\n");
    return EXIT_SUCCESS;
}
