/* Plans, code and a selector of the program's own that serve calls by name. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

enum { WORLD = 2, COUNT = 8 };

/* An "allreduce" in which every rank keeps what it has, so that results tell who served a call. */
static const char KEEP[] =
    "{\"name\":\"keep\",\"collective\":\"allreduce\",\"protocol\":\"Simple\",\"inplace\":false,\"reuse_resources\":false,"
    "\"gpus\":["
    "{\"id\":0,\"input_chunks\":1,\"output_chunks\":1,\"scratch_chunks\":0,\"threadblocks\":[{\"id\":0,\"ops\":["
    "{\"name\":\"copy\",\"src_buff\":[{\"type\":\"i\",\"index\":0,\"size\":1}],"
    "\"dst_buff\":[{\"type\":\"o\",\"index\":0,\"size\":1}]}],"
    "\"channels\":[],\"remote_buffer_refs\":[]}],\"channels\":[],\"remote_buffers\":[],\"semaphores\":[]},"
    "{\"id\":1,\"input_chunks\":1,\"output_chunks\":1,\"scratch_chunks\":0,\"threadblocks\":[{\"id\":0,\"ops\":["
    "{\"name\":\"copy\",\"src_buff\":[{\"type\":\"i\",\"index\":0,\"size\":1}],"
    "\"dst_buff\":[{\"type\":\"o\",\"index\":0,\"size\":1}]}],"
    "\"channels\":[],\"remote_buffer_refs\":[]}],\"channels\":[],\"remote_buffers\":[],\"semaphores\":[]}],"
    "\"num_threads_per_block\":1024,\"use_double_scratch_buffer\":false,\"buffer_alignment\":16,"
    "\"min_message_size\":0,\"max_message_size\":1048576}";

typedef struct {
    antiphon_communicator *end;
    antiphon_stream *stream;
    int rank;
    int32_t expected;
    float sums[COUNT];
    /* Of the call, if it failed. */
    char why[512];
} Rank;

static void *all_reduce(void *argument)
{
    Rank *rank = (Rank *)argument;
    float values[COUNT];
    int i;

    for (i = 0; i < COUNT; i++) {
        values[i] = (float)(rank->rank + 1);
    }
    CHECK((int32_t)antiphon_all_reduce(rank->end, values, rank->sums, COUNT, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM,
                                       rank->stream) == rank->expected);
    snprintf(rank->why, sizeof rank->why, "%s", antiphon_last_error());
    if (rank->stream != NULL) {
        OK(antiphon_stream_synchronize(rank->stream));
    }
    return NULL;
}

/* Every rank's call, each on a thread; what they get is in `sums`. */
static void on_threads(Rank *ranks, int32_t expected)
{
    pthread_t threads[WORLD];
    int i;

    for (i = 0; i < WORLD; i++) {
        ranks[i].expected = expected;
        CHECK(pthread_create(&threads[i], NULL, all_reduce, &ranks[i]) == 0);
    }
    for (i = 0; i < WORLD; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void serves(Rank *ranks, float zero, float one)
{
    on_threads(ranks, ANTIPHON_RESULT_SUCCESS);
    CHECK(ranks[0].sums[0] == zero && ranks[0].sums[COUNT - 1] == zero);
    CHECK(ranks[1].sums[0] == one && ranks[1].sums[COUNT - 1] == one);
}

static antiphon_question question(void)
{
    antiphon_question asked = ANTIPHON_QUESTION_INIT;
    asked.collective = "allreduce";
    asked.bytes = COUNT * sizeof(float);
    asked.dtype = ANTIPHON_DTYPE_F32;
    asked.op = ANTIPHON_OP_SUM;
    return asked;
}

/* What an explanation, or the list, has in it. */
static void explains(antiphon_communicator *end, int32_t format, const char *part)
{
    antiphon_question asked = question();
    uint64_t bytes = 0;
    char *text;

    OK(antiphon_explain(end, &asked, format, NULL, 0, &bytes));
    text = (char *)malloc((size_t)bytes);
    CHECK(text != NULL);
    FAILS(ANTIPHON_RESULT_BUFFER_TOO_SMALL, "needed",
          antiphon_explain(end, &asked, format, text, bytes - 1, &bytes));
    OK(antiphon_explain(end, &asked, format, text, bytes, &bytes));
    if (strstr(text, part) == NULL) {
        fprintf(stderr, "no %s in %s\n", part, text);
        exit(EXIT_FAILURE);
    }
    free(text);
}

/* What is said of a call of no communicator. */
static void supposes(antiphon_question asked, const char *part)
{
    char text[4096];
    uint64_t bytes = 0;

    OK(antiphon_registry_explain(&asked, ANTIPHON_FORMAT_TEXT, text, sizeof text, &bytes));
    if (strstr(text, part) == NULL || bytes != strlen(text) + 1) {
        fprintf(stderr, "no %s in %s\n", part, text);
        exit(EXIT_FAILURE);
    }
}

/* What the registry chooses goes by what a question says of the ranks. */
static void without_ranks(void)
{
    static const char *const mine[] = {"mine"};
    antiphon_question asked = question();
    uint64_t bytes = 0;

    asked.world = WORLD;
    asked.nodes = 1;
    supposes(asked, "chosen: keep (registered plan)");
    asked.tags = mine;
    asked.tag_count = 1;
    supposes(asked, "keep (registered plan): is not tagged `mine`");
    asked.tag_count = 0;
    asked.reproducible = ANTIPHON_SWITCH_ON;
    supposes(asked, "keep (registered plan): is not shown to have one order of sums");
    asked.reproducible = ANTIPHON_SWITCH_OFF;
    asked.world = 3;
    supposes(asked, "keep (registered plan): is for 2 ranks");
    asked.nodes = 2;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "3 ranks on 2 nodes",
          antiphon_registry_explain(&asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked.nodes = 0;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "0 nodes",
          antiphon_registry_explain(&asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked.nodes = 1;
    asked.reserved = 1;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "question.reserved",
          antiphon_registry_explain(&asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked.reserved = 0;
    asked.world = UINT32_MAX;
    supposes(asked, "keep (registered plan): is for 2 ranks");
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`question`",
          antiphon_registry_explain(NULL, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
}

static void lists(const char *expected)
{
    char text[256];
    uint64_t bytes = 0;

    OK(antiphon_registry_list(text, sizeof text, &bytes));
    CHECK(strcmp(text, expected) == 0 && bytes == strlen(expected) + 1);
}

static void plans(Rank *ranks)
{
    antiphon_terms terms = ANTIPHON_TERMS_INIT;
    antiphon_executor *executor = NULL;
    antiphon_plan *plan = NULL;

    serves(ranks, 3, 3);
    OK(antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, NULL));
    serves(ranks, 1, 2);
    lists("plan allreduce keep\n");
    explains(ranks[0].end, ANTIPHON_FORMAT_TEXT, "chosen: keep (registered plan)");
    without_ranks();
    explains(ranks[0].end, ANTIPHON_FORMAT_JSON, "{\"chosen\":{\"name\":\"keep\",\"kind\":\"registered plan\"}");
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "is registered",
          antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, NULL));
    OK(antiphon_registry_unregister("keep"));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`keep`", antiphon_registry_unregister("keep"));
    serves(ranks, 3, 3);

    /* A loaded plan, for messages that are longer than these. */
    OK(antiphon_executor_create(ranks[0].end, &executor));
    OK(antiphon_plan_load_bytes(executor, KEEP, sizeof KEEP - 1, &plan));
    terms.name = "long";
    terms.min_bytes = 4096;
    OK(antiphon_registry_register_plan(plan, &terms));
    OK(antiphon_plan_destroy(plan));
    OK(antiphon_executor_destroy(executor));
    serves(ranks, 3, 3);
    explains(ranks[1].end, ANTIPHON_FORMAT_TEXT, "long (registered plan): is for messages of 4096");
    OK(antiphon_registry_unregister("long"));
    lists("");
}

/* What a selector does. */
typedef struct {
    /* Null for an answer without an end. */
    const char *name;
    int32_t result;
    int destroyed;
    int saw_allreduce;
    /* Null for no reason. */
    const char *why;
} Selector;

static int32_t choose(void *context, const antiphon_question *asked, char *answer)
{
    Selector *selector = (Selector *)context;

    if (asked->candidate_count > 0 && strcmp(asked->collective, "allreduce") == 0 && asked->world == WORLD &&
        asked->bytes == COUNT * sizeof(float)) {
        __atomic_store_n(&selector->saw_allreduce, 1, __ATOMIC_RELAXED);
    }
    if (selector->why != NULL) {
        OK(antiphon_set_last_error(selector->why));
    }
    if (selector->name == NULL) {
        memset(answer, 'x', ANTIPHON_ANSWER_BYTES);
    } else {
        strcpy(answer, selector->name);
    }
    return selector->result;
}

static void gone(void *context)
{
    ((Selector *)context)->destroyed++;
}

static void selectors(Rank *ranks)
{
    Selector keeps = {"keep", 1, 0, 0, NULL}, leaves = {"", 0, 0, 0, NULL};
    Selector wrong[] = {{"nobody", 1, 0, 0, NULL}, {"keep", 7, 0, 0, "it rains"}, {"", 1, 0, 0, NULL},
                        {"\xff", 1, 0, 0, NULL},   {NULL, 1, 0, 0, NULL}};
    Selector nobody = {"", 0, 0, 0, NULL};
    size_t i;

    OK(antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, NULL));
    OK(antiphon_registry_set_selector(choose, &leaves, gone));
    serves(ranks, 1, 2);
    CHECK(leaves.saw_allreduce == 1 && leaves.destroyed == 0);
    OK(antiphon_registry_set_selector(choose, &keeps, gone));
    CHECK(leaves.destroyed == 1);
    serves(ranks, 1, 2);
    explains(ranks[0].end, ANTIPHON_FORMAT_TEXT, "selector: answers `keep`");
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        OK(antiphon_registry_set_selector(choose, &wrong[i], gone));
        on_threads(ranks, ANTIPHON_RESULT_INVALID_ARGUMENT);
        CHECK(wrong[i].destroyed == 0);
        CHECK((strstr(ranks[0].why, "it rains") != NULL) == (wrong[i].why != NULL));
    }
    OK(antiphon_registry_set_selector(NULL, &nobody, gone));
    CHECK(keeps.destroyed == 1 && nobody.destroyed == 1);
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(wrong[i].destroyed == 1);
    }
    OK(antiphon_registry_unregister("keep"));
    serves(ranks, 3, 3);
}

/* Code that runs the plan of a built-in algorithm and adds something; its context says what it returns. */
static int32_t run(void *context, const antiphon_code_call *call)
{
    antiphon_plan *plan = NULL;
    float *sums = (float *)call->receive_buffer;
    uint64_t i;
    int32_t result;

    if (*(int32_t *)context != ANTIPHON_RESULT_SUCCESS) {
        OK(antiphon_set_last_error("the disk is full"));
        return *(int32_t *)context;
    }
    CHECK(call->struct_size == sizeof *call && call->world == WORLD && call->rank < WORLD && call->in_place == 0);
    result = (int32_t)antiphon_plan_load_name(call->executor, "allreduce_hub", call->in_place, 0, &plan);
    if (result == ANTIPHON_RESULT_SUCCESS) {
        result = (int32_t)antiphon_execute(call->executor, plan, call->send_buffer, call->send_bytes,
                                           call->receive_buffer, call->receive_bytes, call->dtype, call->op,
                                           call->stream);
        if (call->stream != NULL) {
            OK(antiphon_stream_synchronize(call->stream));
        }
        OK(antiphon_plan_destroy(plan));
    }
    for (i = 0; i < call->receive_bytes / sizeof *sums; i++) {
        sums[i] += 10;
    }
    return result;
}

static void set(void *context)
{
    *(int32_t *)context = -1;
}

static void codes(Rank *ranks)
{
    int32_t result = ANTIPHON_RESULT_SUCCESS;
    antiphon_code code = ANTIPHON_CODE_INIT;
    int i;

    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`code`", antiphon_registry_register_code(NULL, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`code.name`", antiphon_registry_register_code(&code, NULL));
    code.name = "adding";
    code.version = 1;
    code.collective = "allreduce";
    code.context = &result;
    code.destroy = set;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "code.run", antiphon_registry_register_code(&code, NULL));
    code.run = run;
    code.reserved = 1;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "code.reserved", antiphon_registry_register_code(&code, NULL));
    code.reserved = 0;
    OK(antiphon_registry_register_code(&code, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "is registered", antiphon_registry_register_code(&code, NULL));
    CHECK(result == ANTIPHON_RESULT_SUCCESS);
    lists("code allreduce adding\n");
    serves(ranks, 13, 13);
    for (i = 0; i < WORLD; i++) {
        OK(antiphon_stream_create(ranks[i].end, &ranks[i].stream));
    }
    serves(ranks, 13, 13);
    for (i = 0; i < WORLD; i++) {
        OK(antiphon_stream_destroy(ranks[i].stream));
        ranks[i].stream = NULL;
    }
    /* Others may wait for what code that fails would have done. */
    result = ANTIPHON_RESULT_FILE;
    on_threads(ranks, ANTIPHON_RESULT_ABORTED);
    CHECK(strstr(ranks[0].why, "the disk is full") != NULL && strstr(ranks[1].why, "the disk is full") != NULL);
    OK(antiphon_registry_unregister("adding"));
    CHECK(result == -1);
}

/* Called back while a call is put into a group: it may neither make one nor touch the group. */
static int32_t meddle(void *context, const antiphon_question *asked, char *answer)
{
    float value = 1;

    (void)asked;
    answer[0] = 0;
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "put into a group",
          antiphon_all_reduce((antiphon_communicator *)context, &value, &value, 1, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM,
                              NULL));
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "put into a group", antiphon_group_begin());
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "put into a group", antiphon_group_cancel());
    return 0;
}

static void groups(Rank *ranks)
{
    int32_t result = ANTIPHON_RESULT_SUCCESS;
    antiphon_code code = ANTIPHON_CODE_INIT;
    float values[WORLD] = {1, 2}, sums[WORLD] = {0, 0};
    int i;

    OK(antiphon_registry_set_selector(meddle, ranks[0].end, NULL));
    OK(antiphon_group_begin());
    for (i = 0; i < WORLD; i++) {
        OK(antiphon_all_reduce(ranks[i].end, &values[i], &sums[i], 1, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    }
    OK(antiphon_group_end());
    CHECK(sums[0] == 3 && sums[1] == 3);
    OK(antiphon_registry_set_selector(NULL, NULL, NULL));

    /* Code serves the calls of a group, too, of several ranks of one thread. */
    code.name = "adding";
    code.collective = "allreduce";
    code.context = &result;
    code.run = run;
    OK(antiphon_registry_register_code(&code, NULL));
    OK(antiphon_group_begin());
    for (i = 0; i < WORLD; i++) {
        OK(antiphon_all_reduce(ranks[i].end, &values[i], &sums[i], 1, ANTIPHON_DTYPE_F32, ANTIPHON_OP_SUM, NULL));
    }
    CHECK(sums[0] == 3 && sums[1] == 3);
    OK(antiphon_group_end());
    CHECK(sums[0] == 13 && sums[1] == 13);
    OK(antiphon_registry_unregister("adding"));

    /* What could serve nothing is not registered. */
    code.collective = "alreduce";
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`alreduce`", antiphon_registry_register_code(&code, NULL));
}

/* Ranks that ask for what a configuration says. */
static void joins(const antiphon_config *config, Rank *ranks)
{
    antiphon_communicator *ends[WORLD];
    int i;

    OK(antiphon_communicator_create_in_process(WORLD, config, ends));
    memset(ranks, 0, WORLD * sizeof *ranks);
    for (i = 0; i < WORLD; i++) {
        ranks[i].end = ends[i];
        ranks[i].rank = i;
    }
}

static void leave(Rank *ranks)
{
    int i;

    for (i = 0; i < WORLD; i++) {
        OK(antiphon_communicator_destroy(ranks[i].end));
    }
}

/* Sees which tags are asked for. */
static int32_t see(void *context, const antiphon_question *asked, char *answer)
{
    (void)answer;
    CHECK(asked->tag_count == 1 && strcmp(asked->tags[0], "mine") == 0);
    CHECK(asked->reproducible == ANTIPHON_SWITCH_OFF);
    __atomic_fetch_add((int *)context, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Who asks for a tag, in the configuration or in the environment, is served by what has it alone. */
static void tags(const antiphon_config *said)
{
    static const char *const mine[] = {"mine"}, *const nobodys[] = {"mine", "nobody's"};
    antiphon_config asks = *said, more = *said, none = *said;
    antiphon_terms terms = ANTIPHON_TERMS_INIT;
    antiphon_question asked = question();
    Rank asking[WORLD], other[WORLD], picky[WORLD], named[WORLD], free_of[WORLD];
    uint64_t bytes = 0;
    int seen = 0;

    asks.tags = mine;
    asks.tag_count = 1;
    more.tags = nobodys;
    more.tag_count = 2;
    /* None, whatever the environment lists. */
    none.tags = mine;
    CHECK(setenv("ANTIPHON_TAGS", " ,mine", 1) == 0);
    joins(said, named);
    joins(&none, free_of);
    CHECK(unsetenv("ANTIPHON_TAGS") == 0);
    joins(&asks, asking);
    joins(&more, picky);
    joins(said, other);

    OK(antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, NULL));
    serves(other, 1, 2);
    serves(free_of, 1, 2);
    serves(asking, 3, 3);
    serves(named, 3, 3);
    explains(asking[0].end, ANTIPHON_FORMAT_TEXT, "keep (registered plan): is not tagged `mine`");
    terms.name = "tagged";
    terms.tags = mine;
    terms.tag_count = 1;
    OK(antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, &terms));
    serves(asking, 1, 2);
    serves(named, 1, 2);
    serves(picky, 3, 3);
    explains(picky[0].end, ANTIPHON_FORMAT_TEXT, "tagged (registered plan): is not tagged `nobody's`");

    OK(antiphon_registry_set_selector(see, &seen, NULL));
    OK(antiphon_explain(asking[0].end, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    OK(antiphon_registry_set_selector(NULL, NULL, NULL));
    CHECK(seen == 1);
    OK(antiphon_registry_unregister("tagged"));
    OK(antiphon_registry_unregister("keep"));
    leave(asking);
    leave(picky);
    leave(other);
    leave(named);
    leave(free_of);
}

static void refusals(antiphon_communicator *end)
{
    antiphon_terms terms = ANTIPHON_TERMS_INIT;
    antiphon_question asked = question();
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    antiphon_communicator *none = NULL;
    uint64_t bytes = 0;

    FAILS(ANTIPHON_RESULT_INVALID_PLAN, "memory", antiphon_registry_register_bytes("{}", 2, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`bytes`", antiphon_registry_register_bytes(NULL, 2, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "null", antiphon_registry_register_plan(NULL, NULL));
    terms.struct_size = 3;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "ANTIPHON_TERMS_INIT",
          antiphon_registry_register_bytes(KEEP, sizeof KEEP - 1, &terms));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`bytes`",
          antiphon_registry_register_bytes(KEEP, UINT64_MAX, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`name`", antiphon_registry_unregister(NULL));
    /* What keeps its own input is no allreduce, so nothing is written. */
    FAILS(ANTIPHON_RESULT_PLAN_REFUTED, "cannot install plan `keep`", antiphon_install_bytes(KEEP, sizeof KEEP - 1, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`bytes`", antiphon_install_bytes(NULL, 2, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`no such plan`", antiphon_uninstall("no such plan"));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`name`", antiphon_uninstall(NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`failure`", antiphon_set_last_error(NULL));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "out_bytes", antiphon_registry_list(NULL, 0, NULL));
    FAILS(ANTIPHON_RESULT_INVALID_HANDLE, "null",
          antiphon_explain(NULL, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`question`",
          antiphon_explain(end, NULL, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "antiphon_format", antiphon_explain(end, &asked, 2, NULL, 0, &bytes));
    asked.collective = "nothing";
    FAILS(ANTIPHON_RESULT_UNSUPPORTED, "nothing",
          antiphon_explain(end, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked.collective = "broadcast";
    asked.root = WORLD;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "root",
          antiphon_explain(end, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked.collective = NULL;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "question.collective",
          antiphon_explain(end, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    asked = question();
    asked.dtype = 99;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "99",
          antiphon_explain(end, &asked, ANTIPHON_FORMAT_TEXT, NULL, 0, &bytes));
    config.tag_count = 1;
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "`config.tags`", antiphon_communicator_create_in_process(1, &config, &none));
}

/* The default plans of some ranks are files in the cache folder. It changes the environment: after all else. */
static void defaults(void)
{
    static const char *const names[] = {"allreduce_ring_2ranks", "broadcast_zero_copy_2ranks", "scatter_packets_2ranks"};
    static const char ending[] = ".json";
    const char *temporary = getenv("TMPDIR");
    char folder[256], inside[300], path[1024], beginning[64], expected[64];
    struct dirent *entry;
    DIR *files;
    FILE *file;
    size_t i, found = 0, length;

    snprintf(folder, sizeof folder, "%s/antiphon-XXXXXX", temporary == NULL ? "/tmp" : temporary);
    CHECK(mkdtemp(folder) != NULL && setenv("ANTIPHON_CACHE_DIR", folder, 1) == 0);
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "0 nodes", antiphon_install_defaults(WORLD, 0));
    FAILS(ANTIPHON_RESULT_INVALID_ARGUMENT, "4294967295 ranks", antiphon_install_defaults(UINT32_MAX, 1));
    OK(antiphon_install_defaults(WORLD, 1));
    snprintf(inside, sizeof inside, "%s/default", folder);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s%s", inside, names[i], ending);
        snprintf(expected, sizeof expected, "{\"name\":\"%s\",", names[i]);
        file = fopen(path, "r");
        CHECK(file != NULL && fgets(beginning, (int)strlen(expected) + 1, file) != NULL);
        CHECK(strcmp(beginning, expected) == 0 && fclose(file) == 0);
    }
    files = opendir(inside);
    CHECK(files != NULL);
    while ((entry = readdir(files)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        /* No drafts stay. */
        length = strlen(entry->d_name);
        CHECK(length > strlen(ending) && strcmp(entry->d_name + length - strlen(ending), ending) == 0);
        snprintf(path, sizeof path, "%s/%s", inside, entry->d_name);
        CHECK(unlink(path) == 0);
        found++;
    }
    CHECK(closedir(files) == 0 && found > sizeof names / sizeof names[0]);
    /* Nothing is written elsewhere. */
    CHECK(rmdir(inside) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    antiphon_config config = ANTIPHON_CONFIG_INIT;
    Rank ranks[WORLD];

    /* The plan computes something else than it says. */
    config.verification = ANTIPHON_SWITCH_OFF;
    config.timeout_ms = 30000;
    tags(&config);
    joins(&config, ranks);
    refusals(ranks[0].end);
    plans(ranks);
    selectors(ranks);
    groups(ranks);
    codes(ranks);
    leave(ranks);
    defaults();
    printf("registry: ok\n");
    return EXIT_SUCCESS;
}
