// The Gloo subject: TCP over the loopback, ranks meet through files in --store. The interfaces used are those of the
// release that Debian packages.
#include "harness.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
// One collective over one pair of buffers; made anew by prepare().
std::function<void()> operation;

int init(struct harness *h, int *rank, int *ranks) {
    const char *mine = harness_option(h, "rank"), *all = harness_option(h, "ranks");
    const char *store = harness_option(h, "store");
    if (!mine || !all || !store) return 1;
    *rank = std::atoi(mine);
    *ranks = std::atoi(all);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore files(store);
    context = std::make_shared<gloo::rendezvous::Context>(*rank, *ranks);
    context->connectFullMesh(files, device);
    return 0;
}

void *allocate(size_t bytes) {
    void *memory = nullptr;
    return posix_memalign(&memory, 4096, bytes) ? nullptr : memory;
}

void release(void *memory, size_t) { std::free(memory); }

void sum(void *to, const void *a, const void *b, size_t n) { gloo::sum<float>(to, a, b, n); }

int prepare(const struct job *job) {
    size_t n = job->count;
    switch (job->collective) {
    case ALLREDUCE: {
        auto options = std::make_shared<gloo::AllreduceOptions>(context);
        if (!job->in_place) options->setInput(job->in, n);
        options->setOutput(job->out, n);
        options->setReduceFunction(sum);
        operation = [options] { gloo::allreduce(*options); };
        return 0;
    }
    case ALLGATHER: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context);
        if (!job->in_place) options->setInput(job->in, n);
        options->setOutput(job->out, job->out_count);
        operation = [options] { gloo::allgather(*options); };
        return 0;
    }
    case ALLTOALL: {
        if (job->in_place) return 1;
        auto options = std::make_shared<gloo::AlltoallOptions>(context);
        options->setInput(job->in, job->in_count);
        options->setOutput(job->out, job->out_count);
        operation = [options] { gloo::alltoall(*options); };
        return 0;
    }
    case REDUCESCATTER: {
        // Gloo reduces in the input buffer and leaves the result at its front.
        std::vector<int> counts(context->size, static_cast<int>(n));
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
            context, std::vector<float *>{job->in}, static_cast<int>(job->in_count), counts);
        float *in = job->in, *out = job->out;
        operation = [algorithm, in, out, n] {
            algorithm->run();
            if (in != out) std::memcpy(out, in, n * sizeof(float));
        };
        return 0;
    }
    }
    return 1;
}

int run(const struct job *) {
    operation();
    return 0;
}

void finish() {
    operation = nullptr;
    context.reset();
}

} // namespace

int main(int argc, char **argv) {
    struct subject subject = {"gloo", init, allocate, release, prepare, run, finish, 1, 1};
    return harness_main(&subject, argc, argv);
}
