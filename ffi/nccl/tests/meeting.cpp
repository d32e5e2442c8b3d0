// Where ranks meet, as NCCL's variables say it: `meeting WAY`, at the place of NCCL_COMM_ID (`named`), which takes a secret
// (`unproven`), or at the interface of NCCL_SOCKET_IFNAME (`interface`), if there is one (`nowhere`); or by an id that another rank's
// process made (`other`), or one that is no rank's (`none`).
#include "program.h"

#include <arpa/inet.h>
#include <sys/socket.h>

namespace {

constexpr int world = 3;

// A place where nobody listens.
std::string free_place() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
    CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    close(listener);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

void sums(const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    OK(ncclCommInitRank(&comm, world, id, rank));
    int32_t own = 1, sum = 0;
    OK(ncclAllReduce(&own, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    CHECK(sum == world);
    OK(ncclCommDestroy(comm));
}

// Each process makes the id by itself, and again for the next communicator.
void named(const ncclUniqueId&, int rank) {
    for (int turn = 0; turn < 2; turn++) {
        ncclUniqueId id;
        OK(ncclGetUniqueId(&id));
        sums(id, rank);
    }
}

// Refused while there is no such interface, though the id is good, and then let in.
void joined(const ncclUniqueId& id, int rank) {
    ncclComm_t comm = nullptr;
    setenv("NCCL_SOCKET_IFNAME", "=nowhere", 1);
    FAILS(ncclSystemError, "NCCL_SOCKET_IFNAME==nowhere", ncclCommInitRank(&comm, world, id, rank));
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    sums(id, rank);
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    const std::string way = arguments[1];
    alarm(120);
    ncclUniqueId id{};
    if (way == "named" || way == "unproven") setenv("NCCL_COMM_ID", free_place().c_str(), 1);
    if (way == "named") {
        processes(world, named);
    } else if (way == "unproven") {
        ncclComm_t comm = nullptr;
        OK(ncclGetUniqueId(&id));
        FAILS(ncclSystemError, "NCCL_COMM_ID", ncclCommInitRank(&comm, world, id, 0));
        CHECK(std::strstr(ncclGetLastError(nullptr), "ANTIPHON_SECRET"));
    } else if (way == "interface") {
        setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
        processes(world, joined);
    } else if (way == "other" || way == "none") {
        processes(world, sums, way == "other" ? 1 : world);
    } else {
        CHECK(way == "nowhere");
        setenv("NCCL_SOCKET_IFNAME", "=nowhere", 1);
        FAILS(ncclSystemError, "NCCL_SOCKET_IFNAME==nowhere", ncclGetUniqueId(&id));
        ncclComm_t comm = nullptr;
        // Ranks of one process need no network.
        OK(ncclCommInitAll(&comm, 1, nullptr));
        OK(ncclCommDestroy(comm));
    }
    std::printf("meeting: ok\n");
    return EXIT_SUCCESS;
}
