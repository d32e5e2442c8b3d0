/* Communicators with names: how they get them, and that their errors have them. */
#include "check.h"

#define WORLD 2

static antiphon_communicator *ranks[WORLD];

/* Checks what a communicator is called. */
static void is_called(antiphon_communicator *communicator, const char *name)
{
    char text[129];
    uint64_t bytes = 0;
    OK(antiphon_communicator_name(communicator, NULL, 0, &bytes));
    CHECK(bytes == strlen(name) + 1);
    OK(antiphon_communicator_name(communicator, text, sizeof text, &bytes));
    CHECK(bytes == strlen(name) + 1 && strcmp(text, name) == 0);
    FAILS(ANTIPHON_RESULT_BUFFER_TOO_SMALL, "a name", antiphon_communicator_name(communicator, text, bytes - 1, &bytes));
}

/* Makes the ranks under a name, or without one. */
static antiphon_result make(const char *name)
{
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    config.timeout_ms = 120000;
    config.name = name;
    return antiphon_communicator_create_in_process(WORLD, &config, ranks);
}

static void end(void)
{
    int rank;
    for (rank = 0; rank < WORLD; rank++) {
        OK(antiphon_communicator_destroy(ranks[rank]));
    }
}

/* Groups of one rank each, which wait for nobody but in the split itself. */
static void others_of_one(void)
{
    const uint32_t own = 0;
    antiphon_communicator *alone, *made;
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    config.name = "dp";
    OK(antiphon_communicator_create_in_process(1, &config, &alone));
    OK(antiphon_communicator_split(alone, 3, 0, &made));
    is_called(made, "dp/3");
    OK(antiphon_communicator_destroy(made));
    OK(antiphon_communicator_split_as(alone, 3, 0, NULL, &made));
    is_called(made, "dp/3");
    OK(antiphon_communicator_destroy(made));
    OK(antiphon_communicator_split_as(alone, 3, 0, "tensor parallel", &made));
    is_called(made, "tensor parallel");
    OK(antiphon_communicator_destroy(made));
    OK(antiphon_communicator_split_as(alone, -1, 0, "nobody's", &made));
    CHECK(made == NULL);
    OK(antiphon_communicator_subset(alone, &own, 1, &made));
    is_called(made, "dp");
    OK(antiphon_communicator_destroy(made));
    OK(antiphon_communicator_subset_as(alone, &own, 1, "rest", &made));
    is_called(made, "rest");
    OK(antiphon_communicator_destroy(made));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "no text", antiphon_communicator_split_as(alone, 0, 0, "", &made));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "not UTF-8", antiphon_communicator_split_as(alone, 0, 0, "\xff", &made));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "control", antiphon_communicator_subset_as(alone, &own, 1, "a\nb", &made));
    OK(antiphon_communicator_destroy(alone));
}

int main(void)
{
    char longest[130];
    antiphon_result result;
    float numbers[4] = {1, 2, 3, 4};
    const char *start = "communicator `dp` rank 1 of 2: ";

    memset(longest, 'n', sizeof longest - 1);
    longest[129] = 0;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "saw 129 bytes, allowed 1 to 128 bytes", make(longest));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "control characters", make("\x1b[31m"));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "no text", make(""));
    longest[128] = 0;
    OK(make(longest));
    is_called(ranks[0], longest);
    end();
    OK(make(NULL));
    is_called(ranks[1], "");
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "use a root", antiphon_broadcast(ranks[1], numbers, numbers, 4, ANTIPHON_DTYPE_F32, 9, NULL));
    CHECK(strstr(antiphon_last_error(), "communicator `") == NULL);
    end();

    OK(make("dp"));
    is_called(ranks[1], "dp");
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "use a root", antiphon_broadcast(ranks[1], numbers, numbers, 4, ANTIPHON_DTYPE_F32, 9, NULL));
    CHECK(strncmp(antiphon_last_error(), start, strlen(start)) == 0);
    OK(antiphon_communicator_abort(ranks[0], "enough"));
    FAILS(ANTIPHON_RESULT_ABORTED, "by rank 0: enough", antiphon_barrier(ranks[1]));
    CHECK(strncmp(antiphon_last_error(), start, strlen(start)) == 0);
    CHECK(antiphon_last_error_peer() == 0);
    OK(antiphon_communicator_async_error(ranks[1], &result));
    CHECK(result == ANTIPHON_RESULT_ABORTED);
    CHECK(strncmp(antiphon_last_error(), start, strlen(start)) == 0);
    end();

    others_of_one();
    puts("named: ok");
    return EXIT_SUCCESS;
}
