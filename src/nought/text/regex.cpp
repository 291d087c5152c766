#define PCRE2_CODE_UNIT_WIDTH 8
#include "nought/text/regex.h"

#include <array>

#include <pcre2.h>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kJitStackStart = size_t{64} << 10, kJitStackLimit = size_t{64} << 20;
constexpr size_t kPatternLimit = size_t{1} << 16;

// PCRE2's \s takes U+180E, which Unicode no longer calls white space, and its \w leaves marks out.
constexpr std::string_view kSpace = R"(\p{Z}\x{9}-\x{d}\x{85})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";

// The pattern with \s \S \w \W spelt out as sets.
std::string with_unicode_classes(std::string_view pattern) {
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char kind = pattern[++i];
      const bool space = kind == 's' || kind == 'S', negated = kind == 'S' || kind == 'W';
      if (!space && kind != 'w' && kind != 'W') {
        out += c, out += kind;
      } else if (in_set) {
        // A negated class within a set has no such spelling; there PCRE2's own reading stands.
        negated ? out += fmt::format("\\{}", kind) : out += space ? kSpace : kWord;
      } else {
        out += fmt::format("[{}{}]", negated ? "^" : "", space ? kSpace : kWord);
      }
      continue;
    }
    if (c == '[') in_set = true;
    if (c == ']') in_set = false;
    out += c;
  }
  return out;
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

struct Regex::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);

  State() {
    require<DeviceError>(data && context && stack, "the system refused the memory of a regular expression");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Regex::Regex(std::string_view pattern) : pattern_(pattern), code_(std::make_unique<Code>()) {
  require<ConfigError>(pattern.size() <= kPatternLimit, "a regular expression of {} bytes; at most {} are taken",
                       pattern.size(), kPatternLimit);
  require<ConfigError>(is_valid_utf8(pattern), "a regular expression that is not valid UTF-8");
  const std::string spelt = with_unicode_classes(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr);
  require<ConfigError>(code_->code, "the regular expression \"{}\" is malformed: {}", pattern, message_of(error));
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching works without
}

Regex::~Regex() = default;

bool Regex::find(State& state, std::string_view text, size_t from, Match& match) const {
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                 PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  require<ConfigError>(result >= 0, "the regular expression \"{}\" failed on a text of {} bytes: {}", pattern_,
                       text.size(), message_of(result));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
  match = {range[0], range[1]};
  // \K and look-behind may report a match that ends before it starts.
  require<ConfigError>(from <= match.begin && match.begin <= match.end, "the regular expression \"{}\" moves backwards",
                       pattern_);
  return true;
}

bool Regex::is_in(std::string_view text) const {
  const auto state = states_.borrow();
  Match match{};
  return find(*state, text, 0, match);
}

void Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  const auto state = states_.borrow();
  Match match{};
  for (size_t from = 0; from < text.size() && find(*state, text, from, match);) {
    from = match.end;
    if (match.end > match.begin) {
      matches.push_back(match);
    } else if (from < text.size()) {
      from += utf8_length(text[from]);
    }
  }
}

}  // namespace nought
