// A program that starts its own ranks: rank 0 makes an id, and tells it to the others through pipes. In earnest the id goes
// by whatever a program has: a file, a socket, MPI_Bcast.
#include <antiphon.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(std::int32_t result) {
    if (result != ANTIPHON_RESULT_SUCCESS) throw std::runtime_error(antiphon_last_error());
}

/// A communicator that is destroyed with its owner.
struct Leave {
    void operator()(antiphon_communicator* communicator) const { antiphon_communicator_destroy(communicator); }
};
using Communicator = std::unique_ptr<antiphon_communicator, Leave>;

Communicator join(const antiphon_unique_id& id, std::uint32_t rank, std::uint32_t world) {
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    config.timeout_ms = 30000;
    antiphon_communicator* communicator = nullptr;
    check(antiphon_communicator_create(&id, rank, world, &config, &communicator));
    return Communicator(communicator);
}

/// What each rank does: its part of a matrix-vector product's sum, and a look at everybody's rank.
void work(antiphon_communicator* communicator, std::uint32_t rank, std::uint32_t world) {
    std::vector<double> sums(100'000, rank + 1.0);
    check(antiphon_all_reduce(communicator, sums.data(), sums.data(), sums.size(), ANTIPHON_DTYPE_F64,
                              ANTIPHON_OP_SUM, nullptr));
    for (double sum : sums) {
        if (sum != world * (world + 1) / 2.0) throw std::runtime_error("a wrong sum");
    }
    std::vector<std::uint32_t> ranks(world);
    check(antiphon_all_gather(communicator, &rank, ranks.data(), 1, ANTIPHON_DTYPE_U32, nullptr));
    for (std::uint32_t other = 0; other < world; ++other) {
        if (ranks[other] != other) throw std::runtime_error("a wrong rank");
    }
    std::printf("rank %u of %u: every element is %g\n", rank, world, sums[0]);
}

using Pipe = std::array<int, 2>;

int run(std::uint32_t rank, const std::vector<Pipe>& pipes) try {
    const auto world = static_cast<std::uint32_t>(pipes.size());
    antiphon_unique_id id{};
    if (rank == 0) {
        check(antiphon_unique_id_create(&id));
        for (std::uint32_t other = 1; other < world; ++other) {
            if (write(pipes[other][1], &id, sizeof id) != static_cast<ssize_t>(sizeof id))
                throw std::runtime_error("cannot tell the id");
        }
    } else if (read(pipes[rank][0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
        throw std::runtime_error("rank 0 told no id");
    }
    work(join(id, rank, world).get(), rank, world);
    return EXIT_SUCCESS;
} catch (const std::exception& error) {
    std::fprintf(stderr, "rank %u: %s\n", rank, error.what());
    return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    const int world = argc > 1 ? std::atoi(argv[1]) : 2;
    std::vector<Pipe> pipes(world < 1 ? 1 : static_cast<std::size_t>(world));
    for (Pipe& ends : pipes) {
        if (pipe(ends.data()) != 0) return EXIT_FAILURE;
    }
    // Before anything of the library runs: a process that was forked from one with threads can do little.
    for (std::uint32_t rank = 0; rank < pipes.size(); ++rank) {
        const pid_t child = fork();
        if (child < 0) return EXIT_FAILURE;
        if (child == 0) {
            // Whoever waits for rank 0 shall notice when it is gone.
            for (std::uint32_t other = 0; rank > 0 && other < pipes.size(); ++other) close(pipes[other][1]);
            const int status = run(rank, pipes);
            std::fflush(nullptr);
            _exit(status);
        }
    }
    for (Pipe& ends : pipes) {
        close(ends[0]);
        close(ends[1]);
    }
    int failed = 0;
    for (std::size_t rank = 0; rank < pipes.size(); ++rank) {
        int status = 0;
        failed += wait(&status) < 0 || status != 0;
    }
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
