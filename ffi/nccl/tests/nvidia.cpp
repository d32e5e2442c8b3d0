// A communicator of one rank, by whoever makes it: Antiphon, or NVIDIA's library, which says why it cannot without a GPU.

#include <nccl.h>

#include <cstdio>

int main() {
    ncclUniqueId id = {};
    ncclComm_t comm = nullptr;
    ncclResult_t made = ncclGetUniqueId(&id);
    if (made == ncclSuccess) {
        made = ncclCommInitRank(&comm, 1, id, 0);
    }
    std::printf("made: %d, %s\n", made, made == ncclSuccess ? "" : ncclGetLastError(nullptr));
    return comm != nullptr && ncclCommDestroy(comm) != ncclSuccess;
}
