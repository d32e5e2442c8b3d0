/* What the programs share: checks that name their line. Valid C11 and C++17. */
#ifndef ANTIPHON_TESTS_CHECK_H
#define ANTIPHON_TESTS_CHECK_H

#include <antiphon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless `condition` holds. */
#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);             \
            exit(EXIT_FAILURE);                                                                 \
        }                                                                                       \
    } while (0)

/* Ends the program unless a call succeeds. */
#define OK(call)                                                                                \
    do {                                                                                        \
        int32_t result_ = (int32_t)(call);                                                      \
        if (result_ != ANTIPHON_RESULT_SUCCESS) {                                               \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call,                   \
                    antiphon_result_text(result_), antiphon_last_error());                      \
            exit(EXIT_FAILURE);                                                                 \
        }                                                                                       \
    } while (0)

/* Ends the program unless a call fails so, with a text that has `part` in it. */
#define FAILS(expected, part, call)                                                             \
    do {                                                                                        \
        int32_t result_ = (int32_t)(call);                                                      \
        if (result_ != (expected) || strstr(antiphon_last_error(), part) == NULL) {             \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call,                   \
                    antiphon_result_text(result_), antiphon_last_error());                      \
            exit(EXIT_FAILURE);                                                                 \
        }                                                                                       \
    } while (0)

#endif
