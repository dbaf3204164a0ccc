// What newer libstdc++ headers make an object refer to, for a libstdc++ that has GLIBCXX_3.4.24 at most
// (gcc 8). Compiled once per PART, as compat.c; C++20 members of strings and streams are instantiated here
// instead of taken from the library.
#if defined(PART_bad_array_new_length)
#include <new>
namespace std {
void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std

#elif defined(PART_assert_fail)
#include <cstdlib>
namespace std {
[[noreturn]] void __glibcxx_assert_fail(const char *, int, const char *, const char *) noexcept;
[[noreturn]] void __glibcxx_assert_fail(const char *, int, const char *, const char *) noexcept { abort(); }
}  // namespace std

#elif defined(PART_string_reserve)
#include <string>
#if __cplusplus > 201703L && __GNUC__ >= 11
template void std::string::reserve();
#endif

#elif defined(PART_string_cold)
#include <string>
#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE >= 13
template void std::string::_M_replace_cold(char *, std::size_t, const char *, std::size_t, std::size_t);
#endif

#elif defined(PART_sstream)
#include <sstream>
template std::basic_stringbuf<char>::basic_stringbuf();
template std::basic_stringstream<char>::basic_stringstream();
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
#if __cplusplus > 201703L && defined(__GLIBCXX__) && _GLIBCXX_RELEASE >= 11
template std::string std::basic_stringbuf<char>::str() const &;
template std::string std::basic_stringbuf<char>::str() &&;
template std::string_view std::basic_stringbuf<char>::view() const noexcept;
template std::string std::basic_stringstream<char>::str() const &;
template std::string std::basic_stringstream<char>::str() &&;
template std::string_view std::basic_stringstream<char>::view() const noexcept;
template std::string std::basic_ostringstream<char>::str() const &;
template std::string std::basic_ostringstream<char>::str() &&;
template std::string_view std::basic_ostringstream<char>::view() const noexcept;
template std::string std::basic_istringstream<char>::str() const &;
template std::string std::basic_istringstream<char>::str() &&;
template std::string_view std::basic_istringstream<char>::view() const noexcept;
#endif

#elif defined(PART_ios_init)
// <iostream> of gcc 13 and later refers to this one function instead of holding an initialiser.
#include <ios>
namespace std {
void ios_base_library_init();
__attribute__((weak)) void ios_base_library_init() {}
}  // namespace std
static std::ios_base::Init kernelgen_streams;

#elif defined(PART_error_moves)
// Moving an error is copying it, as it was before gcc 9 gave the moves symbols of their own.
#include <stdexcept>
#define MOVE(symbol_to, symbol_from)                       \
  extern "C" void kernelgen_from_##symbol_from(void *, const void *) __asm__(#symbol_from); \
  extern "C" void kernelgen_to_##symbol_to(void *, const void *) __asm__(#symbol_to);       \
  extern "C" void kernelgen_to_##symbol_to(void *self, const void *other) { kernelgen_from_##symbol_from(self, other); }
MOVE(_ZNSt13runtime_errorC1EOS_, _ZNSt13runtime_errorC1ERKS_)
MOVE(_ZNSt13runtime_errorC2EOS_, _ZNSt13runtime_errorC2ERKS_)
MOVE(_ZNSt11logic_errorC1EOS_, _ZNSt11logic_errorC1ERKS_)
MOVE(_ZNSt11logic_errorC2EOS_, _ZNSt11logic_errorC2ERKS_)

#elif defined(PART_condition_variable)
extern "C" {
void kernelgen_old_wait(void *, void *);
void kernelgen_new_wait(void *, void *) __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
__asm__(".symver kernelgen_old_wait,_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
void kernelgen_new_wait(void *self, void *lock) { kernelgen_old_wait(self, lock); }
}

#elif defined(PART_call_terminate)
// gcc 14 calls it where an exception leaves a noexcept function.
#include <cxxabi.h>
#include <exception>
extern "C" [[noreturn]] void __cxa_call_terminate(void *exception) noexcept;
extern "C" [[noreturn]] void __cxa_call_terminate(void *exception) noexcept {
  if (exception != nullptr) abi::__cxa_begin_catch(exception);
  std::terminate();
}
#endif
