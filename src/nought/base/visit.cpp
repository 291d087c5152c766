#include "nought/base/visit.h"

#include <algorithm>

namespace nought {

std::string format_keys(const std::vector<KeyInfo>& keys) {
  size_t width = 0;
  for (const KeyInfo& key : keys) width = std::max(width, key.path.size());
  std::string text;
  for (const KeyInfo& key : keys) {
    const std::string fallback = key.fallback.empty() ? "" : fmt::format("; default {}", key.fallback);
    text += fmt::format("  {:<{}}  {} ({}{})\n", key.path, width, key.help, key.type, fallback);
  }
  return text;
}

}  // namespace nought
