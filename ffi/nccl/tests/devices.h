#pragma once

// What programs share whose ranks are on two devices of the simulated driver. Their own calls are those of CUDA's driver, whose streams
// are those of the run-time library.
#include "program.h"

#include <cstdint>

extern "C" {
typedef struct CUctx_st* CUcontext;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(CUcontext* context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes);
int cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes);
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, cudaStream_t stream);
int cuStreamCreate(cudaStream_t* stream, unsigned flags);
int cuStreamSynchronize(cudaStream_t stream);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamBeginCapture_v2(cudaStream_t stream, unsigned mode);
int cuStreamEndCapture(cudaStream_t stream, CUgraph* graph);
int cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec executable, cudaStream_t stream);
int cuGraphExecDestroy(CUgraphExec executable);
int cuGraphDestroy(CUgraph graph);
}

/* Rules of recording for the calling thread alone: others may make graphs meanwhile. */
constexpr unsigned own_thread = 1;

#define CUDA(call) CHECK((call) == 0)

constexpr int world = 2;
constexpr std::size_t count = 200;
using Numbers = std::vector<int32_t>;

inline int32_t value(int rank, std::size_t index) { return static_cast<int32_t>(rank * 7 + index * 3) % 101 + 1; }

inline int32_t sum(std::size_t index) { return value(0, index) + value(1, index); }

inline void use(int device) {
    CUcontext context;
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
}

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
