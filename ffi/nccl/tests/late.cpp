// Communicators that belong to objects whose destructors end them: of a thread, and of the program, when what the libraries have for
// a thread is gone. The program's own, which comes last, says that all went well.
#include "program.h"

#include <thread>

namespace {

constexpr int world = 2;

// Both ranks, made by one thread.
class Owner {
public:
    Owner() { OK(ncclCommInitAll(comms_.data(), world, nullptr)); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    ~Owner() {
        sums();
        // A rank sends to itself: that takes a group.
        const int32_t sent = 7;
        int32_t received = 0;
        OK(ncclGroupStart());
        OK(ncclSend(&sent, 1, ncclInt32, 0, comms_[0], nullptr));
        OK(ncclRecv(&received, 1, ncclInt32, 0, comms_[0], nullptr));
        OK(ncclGroupEnd());
        CHECK(received == sent);
        // What a group has against it, its end tells, and takes a split of it along.
        std::array<ncclComm_t, world> halves = {};
        OK(ncclGroupStart());
        for (const ncclComm_t comm : comms_) OK(ncclCommSplit(comm, 0, 0, &halves[0], nullptr));
        CHECK(ncclCommFinalize(comms_[0]) == ncclSuccess && ncclCommFinalize(comms_[0]) == ncclInvalidArgument);
        CHECK(ncclGroupEnd() == ncclInvalidArgument && halves[0] == nullptr);
        CHECK(ncclGroupEnd() == ncclInvalidUsage);
        OK(ncclGroupStart());
        for (std::size_t rank = 0; rank < world; rank++) OK(ncclCommSplit(comms_[rank], 0, 0, &halves[rank], nullptr));
        OK(ncclGroupEnd());
        for (const ncclComm_t comm : halves) OK(ncclCommDestroy(comm));
        OK(ncclCommFinalize(comms_[0]));
        OK(ncclGroupStart());
        OK(ncclCommFinalize(comms_[1]));
        OK(ncclGroupEnd());
        for (const ncclComm_t comm : comms_) OK(ncclCommDestroy(comm));
        std::printf("late: ok\n");
    }

    // A thread that ends in a group has finalized nothing.
    void leaves_a_group() const {
        std::thread([this] {
            OK(ncclGroupStart());
            OK(ncclCommFinalize(comms_[0]));
        }).join();
        sums();
    }

    void sums() const {
        const int32_t own = 1;
        std::array<int32_t, world> sum = {};
        OK(ncclGroupStart());
        for (std::size_t rank = 0; rank < world; rank++)
            OK(ncclAllReduce(&own, &sum[rank], 1, ncclInt32, ncclSum, comms_[rank], nullptr));
        OK(ncclGroupEnd());
        CHECK(sum[0] == world && sum[1] == world);
    }

private:
    std::array<ncclComm_t, world> comms_ = {};
};

Owner& of_program() {
    static Owner owner;
    return owner;
}

// Made first, and so destroyed last.
Owner& of_thread() {
    thread_local Owner owner;
    return owner;
}

}  // namespace

int main() {
    alarm(120);
    std::thread([] { of_thread().leaves_a_group(); }).join();
    of_thread().sums();
    of_program().sums();
    return EXIT_SUCCESS;
}
