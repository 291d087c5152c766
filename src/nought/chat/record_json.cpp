#include "nought/chat/record_json.h"

#include <algorithm>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

constexpr std::ptrdiff_t kMostKeys = 5000;

/// The keys of the object that has the most, by the colons in it.
std::ptrdiff_t most_keys(std::string_view json) {
  std::vector<std::ptrdiff_t> open{0};  // the keys so far of all that is open
  std::ptrdiff_t most = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      for (++i; i < json.size() && json[i] != '"'; ++i)
        if (json[i] == '\\') ++i;
    } else if (c == '{' || c == '[') {
      open.push_back(0);
    } else if ((c == '}' || c == ']') && open.size() > 1) {
      open.pop_back();
    } else if (c == ':') {
      most = std::max(most, ++open.back());
    }
  }
  return most;
}

}  // namespace

bool has_few_keys(std::string_view json) {
  return std::count(json.begin(), json.end(), ':') <= kMostKeys || most_keys(json) <= kMostKeys;
}

OrderedJson parse_record(std::string_view text, bool allow_exceptions) {
  if (!has_few_keys(text))
    fail<ConfigError>("an object has {} keys, more than {}: a list of them can be read", most_keys(text), kMostKeys);
  return OrderedJson::parse(text, nullptr, allow_exceptions);
}

}  // namespace nought
