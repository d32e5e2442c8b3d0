// A library with all functions of NCCL's, each of which says that it was called, and takes nothing: what it is given it leaves
// where it is.
extern "C" {
const char* mirror_called = nullptr;

#define BOTH(name)             \
    long name() {              \
        mirror_called = #name; \
        return 0;              \
    }
// Nobody calls it.
#define ONCE(name, other)
#include "names.inc"
}
