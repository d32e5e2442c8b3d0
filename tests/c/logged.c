/* Lines of the log that the program takes, and those that go to standard error before and after. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct lines {
    pthread_mutex_t lock;
    int count, destroyed;
    int32_t level;
    char last[512];
};

static void take(void *context, int32_t level, const char *text)
{
    struct lines *lines = (struct lines *)context;
    CHECK(pthread_mutex_lock(&lines->lock) == 0);
    lines->count++;
    lines->level = level;
    snprintf(lines->last, sizeof lines->last, "%s", text);
    CHECK(pthread_mutex_unlock(&lines->lock) == 0);
}

static void destroy(void *context)
{
    struct lines *lines = (struct lines *)context;
    lines->destroyed++;
}

/* Has the library warn of a variable, which it does once for each. */
static void *warn_of(void *argument)
{
    const char *variable = (const char *)argument;
    antiphon_communicator *one;
    CHECK(!setenv(variable, "maybe", 1));
    OK(antiphon_communicator_create_in_process(1, NULL, &one));
    OK(antiphon_communicator_destroy(one));
    CHECK(!unsetenv(variable));
    return NULL;
}

/*
 * The same in a process that is forked first, while `inherited` takes the lines: there they go to standard error, and then to a logger
 * of its own.
 */
static void warn_in_child(const char *variable, const struct lines *inherited)
{
    struct lines own = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, ""};
    char name[64], other[] = "ANTIPHON_LEGACY_IPC";
    int status = -1;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        snprintf(name, sizeof name, "%s", variable);
        warn_of(name);
        OK(antiphon_set_logger(take, &own, destroy));
        warn_of(other);
        CHECK(own.count == 1 && own.destroyed == 0);
        OK(antiphon_set_logger(NULL, NULL, NULL));
        CHECK(own.destroyed == 1);
        /* What it has of the parent's stays the parent's. */
        CHECK(inherited->count == 0 && inherited->destroyed == 0);
        _exit(EXIT_SUCCESS);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What was written to standard error since this was called last. */
static const char *written(FILE *file)
{
    static char text[4096];
    size_t bytes;
    fflush(stderr);
    CHECK(fseek(file, 0, SEEK_SET) == 0);
    bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = 0;
    CHECK(ftruncate(fileno(file), 0) == 0 && fseek(file, 0, SEEK_SET) == 0);
    return text;
}

/* Takes a line of a queue, which has this in it. */
static void comes(antiphon_log_queue *queue, int32_t expected, const char *part)
{
    char text[512];
    int32_t level = -1;
    uint64_t bytes = 0, needed = 0;
    OK(antiphon_log_queue_take(queue, NULL, 0, &level, &needed));
    CHECK(level == expected);
    if (needed > 1) {
        FAILS(ANTIPHON_RESULT_BUFFER_TOO_SMALL, "a line of the log", antiphon_log_queue_take(queue, text, 1, &level, &bytes));
    }
    OK(antiphon_log_queue_take(queue, text, sizeof text, &level, &bytes));
    CHECK(level == expected && bytes == needed && bytes == strlen(text) + 1);
    CHECK(strstr(text, part) != NULL);
}

static void *take_all(void *argument)
{
    antiphon_log_queue *queue = (antiphon_log_queue *)argument;
    comes(queue, ANTIPHON_LOG_LEVEL_WARN, "ANTIPHON_LEGACY_IPC does nothing");
    comes(queue, 0, "");
    comes(queue, 0, "");
    return NULL;
}

/* Lines wait in a queue, for a thread that takes them, until another one or a function takes its place. */
static void queued(void)
{
    antiphon_log_queue *queue, *other;
    pthread_t thread;
    char variable[] = "ANTIPHON_LEGACY_IPC";
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "0 lines", antiphon_log_queue_create(0, &queue));
    OK(antiphon_log_queue_create(1, &queue));
    CHECK(pthread_create(&thread, NULL, take_all, queue) == 0);
    warn_of(variable);
    OK(antiphon_log_queue_create(8, &other));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(antiphon_log_queue_destroy(queue));
    OK(antiphon_set_logger(NULL, NULL, NULL));
    comes(other, 0, "");
    OK(antiphon_log_queue_destroy(other));
    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "a queue of the log", antiphon_log_queue_destroy(other));
    /* One that is destroyed while it takes lines gives them back. */
    OK(antiphon_log_queue_create(8, &queue));
    OK(antiphon_log_queue_destroy(queue));
}

int main(void)
{
    struct lines first = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, ""}, second = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, ""};
    char reproducible[] = "ANTIPHON_REPRODUCIBLE";
    const char *text;
    pthread_t thread;
    FILE *file = tmpfile();
    const int own = dup(STDERR_FILENO);

    CHECK(file != NULL && own >= 0);
    CHECK(!setenv("ANTIPHON_LOG", "warn", 1));
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0);
    OK(antiphon_set_logger(take, &first, destroy));
    /* A process that is forked does not have what takes the lines. */
    warn_in_child(reproducible, &first);
    text = written(file);
    CHECK(first.count == 0 && first.destroyed == 0);
    CHECK(strstr(text, " WARN ANTIPHON_REPRODUCIBLE does nothing: saw \"maybe\"") != NULL);

    CHECK(pthread_create(&thread, NULL, warn_of, reproducible) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(first.count == 1 && first.level == ANTIPHON_LOG_LEVEL_WARN);
    CHECK(strcmp(first.last, "ANTIPHON_REPRODUCIBLE does nothing: saw \"maybe\", allowed 0 or 1; correct it") == 0);
    CHECK(written(file)[0] == 0);

    OK(antiphon_set_logger(take, &second, destroy));
    CHECK(first.destroyed == 1 && second.destroyed == 0);
    OK(antiphon_set_logger(NULL, NULL, NULL));
    CHECK(second.destroyed == 1);
    queued();
    CHECK(written(file)[0] == 0);
    CHECK(first.count == 1 && second.count == 0);
    /* A context without a function is destroyed at once. */
    OK(antiphon_set_logger(NULL, &second, destroy));
    CHECK(second.destroyed == 2);

    CHECK(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    fclose(file);
    puts("logged: ok");
    return EXIT_SUCCESS;
}
