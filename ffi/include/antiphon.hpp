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
 * A function that the library may call (an antiphon_run_function, antiphon_select_function or antiphon_destroy_function), but that
 * exceptions of `function` are failures of it, with what they say as the reason; those of a function without a result are dropped.
 * An exception that a function lets out ends the process.
 *
 *     code.run = antiphon::guarded<run>;
 */
template <auto function>
constexpr auto guarded = &detail::guard<function>::call;

}  // namespace antiphon

#endif
