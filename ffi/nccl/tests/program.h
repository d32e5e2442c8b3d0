#pragma once

// What programs against NCCL's header share: checks that end the process and write down the calls that pass, and ranks as processes.
#include "shown.h"

#include <nccl.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

[[noreturn]] inline void fail(const char* file, int line, const char* what, const std::string& saw) {
    std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, saw.c_str());
    std::_Exit(EXIT_FAILURE);
}

inline std::string said(int result) {
    return std::string(ncclGetErrorString(static_cast<ncclResult_t>(result))) + ": " + ncclGetLastError(nullptr);
}

template <class Value>
Value noted(Value value, const char* call, const char* by) {
    shown("works", call, by);
    return value;
}

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) fail(__FILE__, __LINE__, #condition, "is not so"); \
    } while (0)
#define OK(call)                                                                    \
    do {                                                                            \
        const ncclResult_t result_ = (call);                                        \
        if (result_ != ncclSuccess) fail(__FILE__, __LINE__, #call, said(result_)); \
        shown("works", #call, __func__);                                            \
    } while (0)
// The value of a call that gives no result of NCCL's.
#define GIVES(call) noted((call), #call, __func__)
// A call that gives nothing.
#define DOES(call)                       \
    do {                                 \
        (call);                          \
        shown("works", #call, __func__); \
    } while (0)
// The call gives this error, or this where it has no result of NCCL's, and a reason with this in it.
#define FAILS(expected, part, call)                                                 \
    do {                                                                            \
        const auto result_ = (call);                                                \
        if (result_ != (expected) || !std::strstr(ncclGetLastError(nullptr), part)) \
            fail(__FILE__, __LINE__, #call, said(result_));                         \
        shown("refuses", #call, __func__);                                          \
    } while (0)

// What comes of what is under way on a communicator.
inline ncclResult_t outcome(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(comm, &state));
        sched_yield();
    }
    return state;
}

// The call need not block, and what it has begun on this communicator goes well.
#define COMPLETES(comm, call)                                                            \
    do {                                                                                 \
        const ncclResult_t result_ = (call);                                             \
        if (result_ != ncclInProgress) fail(__FILE__, __LINE__, #call, said(result_));   \
        const ncclResult_t outcome_ = outcome(comm);                                     \
        if (outcome_ != ncclSuccess) fail(__FILE__, __LINE__, #comm, said(outcome_));    \
        shown("works", #call, __func__);                                                 \
    } while (0)

// Does something as ranks in processes of their own, each of which must exit with 0. This rank makes their id, or this process where
// it is none of theirs, and tells it through pipes, since who calls the library forks no more.
inline void processes(int world, const std::function<void(const ncclUniqueId&, int)>& work, int maker = 0) {
    std::vector<std::array<int, 2>> pipes(static_cast<std::size_t>(world));
    ncclUniqueId id;
    for (auto& ends : pipes) CHECK(pipe(ends.data()) == 0);
    const auto close_all = [&pipes](int end) {
        for (const auto& ends : pipes) close(ends[static_cast<std::size_t>(end)]);
    };
    std::vector<pid_t> children;
    for (int rank = 0; rank < world; rank++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(120);
            if (rank == maker) {
                OK(ncclGetUniqueId(&id));
                for (const auto& ends : pipes) CHECK(write(ends[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
            } else {
                // So that it hears of the end of who makes it.
                close_all(1);
                const int end = pipes[static_cast<std::size_t>(rank)][0];
                CHECK(read(end, &id, sizeof id) == static_cast<ssize_t>(sizeof id));
            }
            work(id, rank);
            std::_Exit(EXIT_SUCCESS);
        }
        children.push_back(child);
    }
    if (maker >= world) {
        OK(ncclGetUniqueId(&id));
        for (const auto& ends : pipes) CHECK(write(ends[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id));
    }
    close_all(0);
    close_all(1);
    for (const pid_t child : children) {
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}
