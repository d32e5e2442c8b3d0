/* The calls of CUDA's driver that programs make as applications do, whose streams are those of the run-time library. Valid C11 and
 * C++17, behind a header that has CHECK. */
#ifndef ANTIPHON_TESTS_DRIVER_H
#define ANTIPHON_TESTS_DRIVER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *CUstream;
typedef struct CUctx_st *CUcontext;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef unsigned long long CUdeviceptr;

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
int cuStreamCreate(CUstream *stream, unsigned flags);
int cuStreamSynchronize(CUstream stream);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
int cuStreamBeginCapture_v2(CUstream stream, unsigned mode);
int cuStreamEndCapture(CUstream stream, CUgraph *graph);
int cuEventCreate(CUevent *event, unsigned flags);
int cuEventRecord(CUevent event, CUstream stream);
int cuEventDestroy_v2(CUevent event);
int cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec executable, CUstream stream);
int cuGraphExecDestroy(CUgraphExec executable);
int cuGraphDestroy(CUgraph graph);

#ifdef __cplusplus
}
#endif

/* Ends the program unless a call of the driver succeeds. */
#define CUDA(call) CHECK((call) == 0)

/* The device that stands for number `device`: they take turns where there are fewer. */
static inline int on(int device)
{
    int count = 0;
    CUDA(cuDeviceGetCount(&count));
    CHECK(count > 0);
    return device % count;
}

/* Makes that device the thread's. */
static inline void use(int device)
{
    CUcontext context;
    CUDA(cuDevicePrimaryCtxRetain(&context, on(device)));
    CUDA(cuCtxSetCurrent(context));
}

#endif
