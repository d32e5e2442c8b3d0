#pragma once

// Functions of NCCL's headers for device code, by both of their names, whose own types are pointers and numbers here: type, name,
// arguments.
#define FOR_KERNELS(type, name, ...) \
    type name(__VA_ARGS__);          \
    type p##name(__VA_ARGS__)
// Without it the header has functions of that name be nothing: a build of NCCL's own says it.
#define NCCL_OS_LINUX
#include <nccl.h>

extern "C" {
struct Team {
    int ranks, rank, stride;
};
struct Multimem {
    void* base;
};
FOR_KERNELS(Team, ncclTeamWorld, ncclComm_t);
FOR_KERNELS(Team, ncclTeamRail, ncclComm_t);
FOR_KERNELS(Team, ncclTeamLsa, ncclComm_t);
FOR_KERNELS(Team, ncclTeamCft, ncclComm_t, int);
FOR_KERNELS(Team, ncclTeamCftMultimem, ncclComm_t);
FOR_KERNELS(int, ncclTeamRankToWorld, ncclComm_t, Team, int);
FOR_KERNELS(int, ncclTeamRankToLsa, ncclComm_t, Team, int);
FOR_KERNELS(int, ncclLLA2ACalcSlots, int, int);
void ncclResetDebugInitInternal(void);
FOR_KERNELS(ncclResult_t, ncclCommQueryProperties, ncclComm_t, void*);
FOR_KERNELS(ncclResult_t, ncclDevCommCreate, ncclComm_t, const void*, void*);
FOR_KERNELS(ncclResult_t, ncclDevCommDestroy, ncclComm_t, const void*);
FOR_KERNELS(ncclResult_t, ncclGetLsaDevicePointer, ncclWindow_t, size_t, int, void**);
FOR_KERNELS(ncclResult_t, ncclGetPeerDevicePointer, ncclWindow_t, size_t, int, void**);
FOR_KERNELS(ncclResult_t, ncclGetLsaMultimemDevicePointer, ncclWindow_t, size_t, void**);
FOR_KERNELS(ncclResult_t, ncclGetMultimemDevicePointer, ncclWindow_t, size_t, Multimem, void**);
FOR_KERNELS(ncclResult_t, ncclGetPeerDeviceLeInfo, ncclWindow_t, size_t, int, uint32_t*, size_t*);
FOR_KERNELS(ncclResult_t, ncclGetCftDeviceLeInfo, ncclWindow_t, size_t, int, Team, uint32_t*, size_t*);
FOR_KERNELS(ncclResult_t, ncclGetMultimemDeviceLeInfo, ncclWindow_t, size_t, uint32_t*, size_t*);
FOR_KERNELS(ncclResult_t, ncclLsaBarrierCreateRequirement, Team, int, void*, void*);
FOR_KERNELS(ncclResult_t, ncclGinBarrierCreateRequirement, ncclComm_t, Team, int, void*, void*);
FOR_KERNELS(ncclResult_t, ncclLLA2ACreateRequirement, int, int, void*, void*);
FOR_KERNELS(ncclResult_t, ncclGinOutboxCreateRequirement, int, int, void*, void*);
FOR_KERNELS(ncclResult_t, ncclGinInboxA2ACreateRequirement, Team, int, int, void*, void*);
}
