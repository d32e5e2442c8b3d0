// Runs an allgather's plan from a file: every rank is a process that gets its place from the environment.
#include <antiphon.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(antiphon_result result)
{
    if (result != ANTIPHON_RESULT_SUCCESS) {
        std::fprintf(stderr, "%s\n", antiphon_last_error());
        std::exit(EXIT_FAILURE);
    }
}

int main(int argc, char** argv)
{
    antiphon_communicator* communicator = nullptr;
    antiphon_executor* executor = nullptr;
    antiphon_plan* plan = nullptr;
    std::uint32_t rank = 0, world = 0;
    if (argc != 2) {
        std::fprintf(stderr, "usage: client PLAN\n");
        return EXIT_FAILURE;
    }
    check(antiphon_communicator_create_from_environment(nullptr, &communicator));
    check(antiphon_communicator_rank(communicator, &rank));
    check(antiphon_communicator_world(communicator, &world));
    check(antiphon_executor_create(communicator, &executor));
    check(antiphon_plan_load_file(executor, argv[1], &plan));

    const std::size_t count = 1000;
    std::vector<float> own(count, static_cast<float>(rank)), every(count * world);
    check(antiphon_execute(executor, plan, own.data(), own.size() * sizeof(float), every.data(),
                           every.size() * sizeof(float), ANTIPHON_DTYPE_F32, ANTIPHON_OP_OF_PLAN, nullptr));
    for (std::size_t i = 0; i < every.size(); i++) {
        if (every[i] != static_cast<float>(i / count)) {
            std::fprintf(stderr, "rank %u: element %zu is %g\n", rank, i, static_cast<double>(every[i]));
            return EXIT_FAILURE;
        }
    }
    std::printf("rank %u of %u: right\n", rank, world);
    check(antiphon_plan_destroy(plan));
    check(antiphon_executor_destroy(executor));
    check(antiphon_communicator_destroy(communicator));
    return EXIT_SUCCESS;
}
