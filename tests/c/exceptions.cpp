/* Exceptions of code and of a selector of the program's own are failures of the calls that they would have served. */
#include "check.h"
#include <antiphon.hpp>
#include <stdexcept>

static int destroyed = 0;

static int32_t run(void *, const antiphon_code_call *call)
{
    if (call->rank == 0) {
        throw std::runtime_error("rank 0 has no more ideas");
    }
    return ANTIPHON_RESULT_SUCCESS;
}

static int32_t choose(void *context, const antiphon_question *, char *answer)
{
    if (context == nullptr) {
        throw 7;
    }
    strcpy(answer, "throwing");
    return 1;
}

static void destroy(void *)
{
    destroyed++;
    throw std::logic_error("nobody hears of this");
}

/* The sum of both ranks, as one thread calls it for them. */
static int32_t all_reduce(antiphon_communicator **ends)
{
    float values[2] = {1, 2}, sums[2] = {0, 0};

    OK(antiphon_group_begin());
    for (int rank = 0; rank < 2; rank++) {
        int32_t result = antiphon_all_reduce(ends[rank], &values[rank], &sums[rank], 1, ANTIPHON_DTYPE_F32,
                                             ANTIPHON_OP_SUM, nullptr);
        if (result != ANTIPHON_RESULT_SUCCESS) {
            /* What this says goes before the group's end, which is of no interest. */
            static char why[512];
            snprintf(why, sizeof why, "%s", antiphon_last_error());
            antiphon_group_cancel();
            antiphon_set_last_error(why);
            return result;
        }
    }
    return antiphon_group_end();
}

static void log_line(void *context, int32_t, const char *)
{
    ++*static_cast<int *>(context);
    throw std::runtime_error("the disk is full");
}

/* An exception of what takes the log's lines goes no further. */
static void logged()
{
    int lines = 0;
    antiphon_communicator *one;
    OK(antiphon_set_logger(antiphon::guarded<log_line>, &lines, nullptr));
    CHECK(setenv("ANTIPHON_REPRODUCIBLE", "maybe", 1) == 0);
    OK(antiphon_communicator_create_in_process(1, nullptr, &one));
    CHECK(unsetenv("ANTIPHON_REPRODUCIBLE") == 0);
    CHECK(lines == 1);
    OK(antiphon_set_logger(nullptr, nullptr, nullptr));
    OK(antiphon_communicator_destroy(one));
}

int main()
{
    antiphon_communicator *ends[2];
    antiphon_code code = ANTIPHON_CODE_INIT;
    int some = 0;

    OK(antiphon_communicator_create_in_process(2, nullptr, ends));
    code.name = "throwing";
    code.collective = "allreduce";
    code.run = antiphon::guarded<run>;
    code.destroy = antiphon::guarded<destroy>;
    OK(antiphon_registry_register_code(&code, nullptr));
    OK(antiphon_registry_set_selector(antiphon::guarded<choose>, nullptr, nullptr));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "an exception that is no std::exception", all_reduce(ends));
    OK(antiphon_registry_set_selector(antiphon::guarded<choose>, &some, nullptr));
    FAILS(ANTIPHON_RESULT_ABORTED, "rank 0 has no more ideas", all_reduce(ends));
    OK(antiphon_registry_unregister("throwing"));
    CHECK(destroyed == 1);
    OK(antiphon_registry_set_selector(nullptr, nullptr, nullptr));
    for (antiphon_communicator *end : ends) {
        OK(antiphon_communicator_destroy(end));
    }
    logged();
    printf("exceptions: ok\n");
    return EXIT_SUCCESS;
}
