#pragma once

// What is the same wherever a program's buffers are: what tells of the library, and what is refused with its reason.
#include "kernels.h"
#include "program.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

inline void tells() {
    int number = 0;
    const char *text = nullptr, **table = &text;
    CHECK(std::strlen(GIVES(ncclGetErrorString(ncclInvalidUsage))) > 0);
    FAILS(ncclInvalidUsage, "encrypt", ncclSetEncryption(nullptr));
    CHECK(std::strstr(GIVES(ncclGetLastError(nullptr)), "encrypt"));
    OK(ncclGetVersion(&number));
    CHECK(number == NCCL_VERSION_CODE);
    DOES(ncclParamDumpAll());
    DOES(ncclResetDebugInit());
    DOES(ncclResetDebugInitInternal());
    OK(ncclParamGetAllParameterKeys(&table, &number));
    CHECK(number == 0 && table == nullptr);
}

// What is not done here.
inline void refusals(ncclComm_t comm) {
    float x = 1;
    int number = 0;
    ncclUniqueId id{};
    ncclComm_t other = nullptr;
    ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
    ncclParamHandle_t parameter = nullptr;
    ncclWaitSignalDesc_t signals{};
    const char* text = nullptr;
    OK(ncclGroupStart());
    FAILS(ncclInvalidUsage, "simulate", ncclGroupSimulateEnd(&simulation));
    FAILS(ncclInvalidUsage, "suspend", ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    FAILS(ncclInvalidUsage, "resume", ncclCommResume(comm));
    FAILS(ncclInvalidUsage, "grow", ncclCommGetUniqueId(comm, &id));
    FAILS(ncclInvalidUsage, "grow", ncclCommGrow(comm, 9, nullptr, -1, &other, nullptr));
    FAILS(ncclInvalidUsage, "ncclSend", ncclPutSignal(&x, 1, ncclFloat, 0, nullptr, 0, 0, 0, 0, comm, nullptr));
    FAILS(ncclInvalidUsage, "ncclSend", ncclSignal(0, 0, 0, 0, comm, nullptr));
    FAILS(ncclInvalidUsage, "ncclSend", ncclWaitSignal(1, &signals, comm, nullptr));
    FAILS(ncclInvalidUsage, "encrypt", ncclSetEncryption(nullptr));
    FAILS(ncclInvalidArgument, "NCCL_DEBUG", ncclParamBind(&parameter, "NCCL_DEBUG"));
    FAILS(ncclInvalidArgument, "NCCL_DEBUG", ncclParamGetParameter("NCCL_DEBUG", &text, &number));
    int8_t small = 0;
    uint8_t tiny = 0;
    int16_t short_one = 0;
    uint16_t short_two = 0;
    uint32_t word = 0;
    int64_t long_one = 0;
    uint64_t long_two = 0;
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetI8(parameter, &small));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetU8(parameter, &tiny));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetI16(parameter, &short_one));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetU16(parameter, &short_two));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetI32(parameter, &number));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetU32(parameter, &word));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetI64(parameter, &long_one));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetU64(parameter, &long_two));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGetStr(parameter, &text));
    FAILS(ncclInvalidArgument, "parameter", ncclParamGet(parameter, &word, 4, &number));
}

// Nothing here serves kernels; a rank is by itself among those that kernels would reach.
inline void kernels(ncclComm_t comm, int rank, int world) {
    const auto is = [](const Team& team, int ranks, int own) {
        return team.ranks == ranks && team.rank == own && team.stride == 1;
    };
    const Team all = GIVES(ncclTeamWorld(comm)), own = GIVES(ncclTeamLsa(comm));
    CHECK(is(all, world, rank) && is(GIVES(ncclTeamRail(comm)), world, rank));
    CHECK(is(own, 1, 0) && is(GIVES(ncclTeamCft(comm, 0)), 1, 0) && is(GIVES(ncclTeamCftMultimem(comm)), 1, 0));
    CHECK(GIVES(ncclTeamRankToWorld(comm, all, 1)) == 1 && ncclTeamRankToWorld(comm, own, 0) == rank);
    CHECK(GIVES(ncclTeamRankToLsa(comm, all, rank)) == 0 && ncclTeamRankToLsa(comm, all, 1) == 1 - rank);
    CHECK(ncclTeamWorld(nullptr).ranks == 0 && std::strstr(ncclGetLastError(nullptr), "null"));
    CHECK(ncclTeamRankToWorld(nullptr, all, 1) == -1);
    alignas(8) unsigned char place[512] = {};
    void* at = nullptr;
    const Multimem nowhere = {nullptr};
    uint32_t number = 0;
    size_t offset = 0;
    const auto why = "kernels of NCCL's device interface";
    FAILS(ncclInvalidUsage, why, ncclCommQueryProperties(comm, place));
    FAILS(ncclInvalidUsage, why, ncclDevCommCreate(comm, place, place));
    FAILS(ncclInvalidArgument, "null", ncclDevCommCreate(nullptr, place, place));
    FAILS(ncclInvalidUsage, why, ncclDevCommDestroy(comm, place));
    FAILS(ncclInvalidUsage, why, ncclGetLsaDevicePointer(nullptr, 0, 0, &at));
    FAILS(ncclInvalidUsage, why, ncclGetPeerDevicePointer(nullptr, 0, 0, &at));
    FAILS(ncclInvalidUsage, why, ncclGetLsaMultimemDevicePointer(nullptr, 0, &at));
    FAILS(ncclInvalidUsage, why, ncclGetMultimemDevicePointer(nullptr, 0, nowhere, &at));
    FAILS(ncclInvalidUsage, why, ncclGetPeerDeviceLeInfo(nullptr, 0, 0, &number, &offset));
    FAILS(ncclInvalidUsage, why, ncclGetCftDeviceLeInfo(nullptr, 0, 0, own, &number, &offset));
    FAILS(ncclInvalidUsage, why, ncclGetMultimemDeviceLeInfo(nullptr, 0, &number, &offset));
    FAILS(ncclInvalidUsage, why, ncclLsaBarrierCreateRequirement(own, 1, place, place));
    FAILS(ncclInvalidUsage, why, ncclGinBarrierCreateRequirement(comm, all, 1, place, place));
    FAILS(ncclInvalidUsage, why, ncclLLA2ACreateRequirement(1, 1, place, place));
    FAILS(ncclInvalidUsage, why, ncclGinOutboxCreateRequirement(1, 1, place, place));
    FAILS(ncclInvalidUsage, why, ncclGinInboxA2ACreateRequirement(all, 1, 1, place, place));
    FAILS(0, why, ncclLLA2ACalcSlots(1, 8));
}

inline void everywhere(ncclComm_t comm, int rank, int world) {
    tells();
    refusals(comm);
    kernels(comm, rank, world);
}
