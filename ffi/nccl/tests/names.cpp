// Every function by both of its names, with nothing for each of its arguments. Where a library that is named makes all calls, either
// name has that make the call; else both say the same. names.inc lists them in the page's order: BOTH(name), or ONCE(name, other)
// for one that has no second name, and does what the other does.
#include "kernels.h"
#include "program.h"
#include "rccl.h"

#include <dlfcn.h>

#include <type_traits>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

// What the library that is named was called for last; null where Antiphon makes the calls.
const char** called = nullptr;

// What a call gives, in words.
template <class Result, class... Arguments>
std::string given(Result (*function)(Arguments...)) {
    if constexpr (std::is_void_v<Result>) {
        function(Arguments{}...);
        return "nothing";
    } else {
        const Result result = function(Arguments{}...);
        // The library that is named gives no text.
        if (called != nullptr) return "";
        if constexpr (std::is_same_v<Result, const char*>) {
            return result;
        } else {
            std::string words;
            const auto* bytes = reinterpret_cast<const unsigned char*>(&result);
            for (std::size_t i = 0; i < sizeof result; i++) words += std::to_string(bytes[i]) + ' ';
            return words + ncclGetLastError(nullptr);
        }
    }
}

template <class Function>
std::string outcome(const char* name, Function function) {
    if (called != nullptr) *called = nullptr;
    const std::string words = given(function);
    if (called == nullptr) return words;
    if (*called == nullptr || std::strcmp(*called, name) != 0) fail(__FILE__, __LINE__, name, "was not called there");
    return *called;
}

}  // namespace

int main() {
    alarm(60);
    int count = 0;
    // The first call decides who makes all of them, and loads the library.
    ncclGetErrorString(ncclSuccess);
    if (const char* path = std::getenv("ANTIPHON_NCCL_LIB_PATH")) {
        void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        CHECK(library != nullptr);
        called = static_cast<const char**>(dlsym(library, "mirror_called"));
        CHECK(called != nullptr);
    }
#define BOTH(name)                                                                                      \
    {                                                                                                   \
        const std::string one = outcome(#name, &name), other = outcome(#name, &p##name);                \
        if (one != other) fail(__FILE__, __LINE__, #name, one + " by one name, by the other " + other); \
        count++;                                                                                        \
    }
#define ONCE(name, other)       \
    {                           \
        outcome(#other, &name); \
        count++;                \
    }
#include "names.inc"
    std::printf("names: %d ok\n", count);
    return EXIT_SUCCESS;
}
