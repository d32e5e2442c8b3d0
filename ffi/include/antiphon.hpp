/* What C++17 adds to the C interface, for programs with exceptions. */
#ifndef ANTIPHON_HPP
#define ANTIPHON_HPP

#include <antiphon.h>
#include <exception>
#include <type_traits>

namespace antiphon {

namespace detail {

template <auto function>
struct guard;

template <typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct guard<function> {
    static Result call(Arguments... arguments) noexcept
    {
        try {
            return function(arguments...);
        } catch (const std::exception &exception) {
            return failed(exception.what());
        } catch (...) {
            return failed("an exception that is no std::exception");
        }
    }

private:
    static Result failed(const char *why) noexcept
    {
        if constexpr (!std::is_void_v<Result>) {
            antiphon_set_last_error(why);
            /* A failure of code as well as of a selector. */
            return static_cast<Result>(-1);
        } else {
            static_cast<void>(why);
        }
    }
};

}  // namespace detail

/**
 * Wraps `function` for the library to call (as an antiphon_run_function, antiphon_select_function, antiphon_log_function or
 * antiphon_destroy_function): an exception becomes a failure whose reason is what the exception says, or is dropped if the
 * function has no result. Without this, an exception that a function lets out ends the process.
 *
 *     code.run = antiphon::guarded<run>;
 */
template <auto function>
constexpr auto guarded = &detail::guard<function>::call;

}  // namespace antiphon

#endif
