#include "nought/io/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "nought/base/open_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Letters, digits and -_. as the hub has them; never a path of its own.
bool is_plain(std::string_view name) {
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

fs::path hub_cache() {
  if (const std::string hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(variable("HOME")) / ".cache" : fs::path(cache)) / "huggingface" / "hub";
}

bool is_hub_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && is_plain(name.substr(0, slash)) && is_plain(name.substr(slash + 1));
}

std::optional<fs::path> hub_snapshot(const std::string& name) {
  if (!is_hub_name(name) && !is_plain(name)) return std::nullopt;
  std::string folder = "models--" + name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  const fs::path model = hub_cache() / folder;
  std::istringstream main(bytes_if_there(model / "refs" / "main").value_or(""));
  std::string commit;
  if (!(main >> commit) || !is_plain(commit)) return std::nullopt;
  const fs::path snapshot = model / "snapshots" / commit;
  std::error_code ignored;
  return fs::is_directory(snapshot, ignored) ? std::optional(snapshot) : std::nullopt;
}

}  // namespace nought
