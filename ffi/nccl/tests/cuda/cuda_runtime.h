/* What nccl.h takes from CUDA's header, for machines without CUDA. */
#ifndef ANTIPHON_TESTS_CUDA_RUNTIME_H
#define ANTIPHON_TESTS_CUDA_RUNTIME_H

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif
