// The function of libfmt whose mangled name clang++ writes otherwise than g++, which built the library: clang's
// programs do not find it there, so they bring it along.
#ifdef __clang__
#include <fmt/format.h>

template void fmt::detail::vformat_to(buffer<char>&, basic_string_view<char>, basic_format_args<buffer_context<char>>,
                                      locale_ref);
#endif
