#define PCRE2_CODE_UNIT_WIDTH 8
#include "nought/base/name_pattern.h"

#include <array>

#include <pcre2.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr size_t kLongestPattern = 1000;
constexpr uint32_t kMostSteps = 100'000;       // a pattern of use takes some hundred in a name
constexpr uint32_t kMostMemory = 1024;         // KiB that a search may take
constexpr size_t kMostCode = size_t{1} << 20;  // bytes of a compiled pattern: (x{1000}){60} takes more

/// As ECMAScript has it: $ is the end alone, and [] holds nothing.
constexpr uint32_t kOptions = PCRE2_DOLLAR_ENDONLY | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NEVER_BACKSLASH_C;

std::string reason_of(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <class T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* each) const { Free(each); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Deleter<T, Free>>;

}  // namespace

NamePattern::NamePattern(std::string_view pattern) : text_(pattern) {
  require<ConfigError>(pattern.size() <= kLongestPattern, "a pattern of {} bytes; at most {} are taken", pattern.size(),
                       kLongestPattern);
  int error = 0;
  PCRE2_SIZE offset = 0, size = 0;
  pcre2_code* const code = pcre2_compile(bytes_of(pattern), pattern.size(), kOptions, &error, &offset, nullptr);
  require<ConfigError>(code, "\"{}\" is not a regular expression: {}", one_line(text_), reason_of(error));
  code_ = std::shared_ptr<const void>(
      code, [](const void* each) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(each))); });
  pcre2_pattern_info(code, PCRE2_INFO_SIZE, &size);
  require<ConfigError>(size <= kMostCode, "\"{}\" repeats too much: it takes {}", one_line(text_),
                       format_bytes(static_cast<int64_t>(size)));
}

bool NamePattern::found_in(std::string_view name) const {
  const Owned<pcre2_match_data, pcre2_match_data_free> data(pcre2_match_data_create(1, nullptr));
  const Owned<pcre2_match_context, pcre2_match_context_free> context(pcre2_match_context_create(nullptr));
  require<DeviceError>(data && context, "the system refused the memory of a regular expression");
  pcre2_set_match_limit(context.get(), kMostSteps);
  pcre2_set_heap_limit(context.get(), kMostMemory);
  const int result = pcre2_match(static_cast<const pcre2_code*>(code_.get()), bytes_of(name), name.size(), 0, 0,
                                 data.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  constexpr size_t kShown = 80;  // bytes of a name that may be long
  require<ConfigError>(result >= 0, "\"{}\" takes too long to look for in \"{}\": {}; write a simpler pattern",
                       one_line(text_), one_line(name.substr(0, kShown)), reason_of(result));
  return true;
}

}  // namespace nought
