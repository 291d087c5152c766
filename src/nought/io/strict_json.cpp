#include "nought/io/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

std::string excerpt(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string line;
  for (char c : text.substr(0, kLongest)) line += c >= ' ' && c < 127 ? c : '?';
  return text.size() > kLongest ? line + "..." : line;
}

int nesting_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest;
}

Json parse_strictly(const std::string& file, std::string_view part, std::string_view text, int max_depth) {
  return parse_strictly(file, part, text, max_depth, {});
}

Json parse_strictly(const std::string& file, std::string_view part, std::string_view text, int max_depth,
                    const std::function<void(const std::string& name, const Json& value)>& member) {
  std::vector<std::set<std::string>> keys;
  std::string name;  // the member of the outermost object that is being read
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    require<IoError>(depth <= max_depth, "{}: {} nests deeper than {} levels", file, part, max_depth);
    if (event == Event::object_start) keys.resize(static_cast<size_t>(depth)), keys.emplace_back();
    if (event == Event::key) {
      require<IoError>(keys[static_cast<size_t>(depth) - 1].insert(value.get<std::string>()).second,
                       "{}: {} holds \"{}\" twice", file, part, excerpt(value.get<std::string>()));
      if (depth == 1) name = value.get<std::string>();
    }
    if (!member || event != Event::object_end || depth != 1) return true;
    member(name, value);
    return false;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    fail<IoError>("{}: {} is not valid JSON: {}", file, part, excerpt(error.what()));
  }
}

}  // namespace nought
