#pragma once

// What programs share whose ranks are on two devices, or on one where there is no other. Their own calls are those of CUDA's driver.
#include "program.h"
// Behind the one above, which says what a check does.
#include "driver.h"

#include <cstdint>

/* Rules of recording for the calling thread alone: others may make graphs meanwhile. */
constexpr unsigned own_thread = 1;

constexpr int world = 2;
constexpr std::size_t count = 200;
using Numbers = std::vector<int32_t>;

inline int32_t value(int rank, std::size_t index) { return static_cast<int32_t>(rank * 7 + index * 3) % 101 + 1; }

inline int32_t sum(std::size_t index) { return value(0, index) + value(1, index); }

// A rank, with buffers on the device that is current.
struct Rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream = nullptr;
    CUdeviceptr in = 0, out = 0;

    Rank(int rank, ncclComm_t comm) : rank(rank), comm(comm) {
        CUDA(cuStreamCreate(&stream, 1));
        CUDA(cuMemAlloc_v2(&in, world * count * sizeof(int32_t)));
        CUDA(cuMemAlloc_v2(&out, world * count * sizeof(int32_t)));
        fill(0);
    }

    void fill(int32_t more) const {
        Numbers numbers(world * count);
        for (std::size_t i = 0; i < numbers.size(); i++) numbers[i] = value(rank, i) + more;
        CUDA(cuMemcpyHtoD_v2(in, numbers.data(), numbers.size() * sizeof numbers[0]));
    }

    const void* send() const { return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(in)); }
    void* receive() const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(out)); }

    // Fails unless the result is this, once the stream has come so far.
    void expect(int line, std::size_t len, const std::function<int32_t(std::size_t)>& expected) const {
        CUDA(cuStreamSynchronize(stream));
        has(line, len, expected);
    }

    // Fails unless the result is this now, wherever the stream is.
    void has(int line, std::size_t len, const std::function<int32_t(std::size_t)>& expected) const {
        Numbers numbers(len);
        CUDA(cuMemcpyDtoH_v2(numbers.data(), out, len * sizeof numbers[0]));
        for (std::size_t i = 0; i < len; i++)
            if (numbers[i] != expected(i)) fail(__BASE_FILE__, line, "element ", std::to_string(i) + " is " + std::to_string(numbers[i]));
    }

    void close() const {
        CUDA(cuStreamSynchronize(stream));
        OK(ncclCommDestroy(comm));
        CUDA(cuMemFree_v2(in));
        CUDA(cuMemFree_v2(out));
        CUDA(cuStreamDestroy_v2(stream));
    }
};
