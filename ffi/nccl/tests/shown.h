#pragma once

// Writes down which calls were made and how they ended, so that a test can compare what the page says of them with what was run: lines
// of the file that ANTIPHON_TEST_SHOWN names, each with an outcome, a function of NCCL's, and the function that called it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

// `call` is a call's text; one that begins with no function of NCCL's is not written down.
inline void shown(const char* outcome, const std::string& call, const char* by) {
    static const char* const path = std::getenv("ANTIPHON_TEST_SHOWN");
    if (path == nullptr) return;
    const std::string name = call.substr(0, call.find('('));
    const char* const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if (name.rfind("nccl", 0) != 0 || name.find_first_not_of(letters) != std::string::npos) return;
    const std::string line = std::string(outcome) + ' ' + name + ' ' + by + '\n';
    static std::mutex mutex;
    static std::set<std::string> known;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!known.insert(line).second) return;
    // At the end of what other processes write, too.
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
    close(file);
}
