//! What programs in C and C++ are watched by: valgrind, and the sanitizers of addresses and of undefined behaviour.

/// Set where these tools must be there.
pub const NEEDS: &str = "ANTIPHON_NEEDS_C_TOOLS";

/// Options of the compiler. A program that goes on after undefined behaviour would say that all is well.
pub const SANITIZERS: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// The variable of the environment that has a sanitized program look for leaks.
pub const LEAKS: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=1");

/// Options of valgrind. An error of any process, forked ones among them, is its exit status; what is still reachable at the end is
/// no leak.
pub const WATCH: [&str; 6] = [
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--fair-sched=yes",
];
