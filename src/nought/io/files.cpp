#include "nought/io/files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <span>

#include <fnmatch.h>

#include "nought/base/open_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

using Components = std::span<const std::string>;

bool has_wildcard(const std::string& component) { return component.find_first_of("*?[") != std::string::npos; }

// The entries of a folder; none if it cannot be listed, as a shell would have it.
std::vector<fs::directory_entry> listed(const fs::path& folder) {
  std::error_code ignored;
  return entries_of(folder.empty() ? fs::path(".") : folder, ignored);
}

// Adds to `found` the files below `base` whose remaining path matches `rest`.
void match(const fs::path& base, Components rest, std::set<fs::path>& found) {
  std::error_code error;
  if (rest.empty()) {
    if (fs::is_regular_file(base, error)) found.insert(base.lexically_normal());
    return;
  }
  const std::string& component = rest.front();
  if (component == "**") {
    match(base, rest.subspan(1), found);
    for (const fs::directory_entry& entry : listed(base)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') || entry.is_symlink(error)) continue;
      if (entry.is_directory(error)) match(base / name, rest, found);
    }
    // A trailing ** takes the files of the folder too.
    if (rest.size() == 1) match(base, std::array<std::string, 1>{"*"}, found);
  } else if (has_wildcard(component)) {
    for (const fs::directory_entry& entry : listed(base)) {
      const std::string name = entry.path().filename().string();
      if (::fnmatch(component.c_str(), name.c_str(), FNM_PERIOD) == 0) match(base / name, rest.subspan(1), found);
    }
  } else {
    match(base / component, rest.subspan(1), found);
  }
}

}  // namespace

std::vector<fs::path> expand_glob(const std::string& pattern) {
  const fs::path path(pattern);
  std::vector<std::string> components;
  for (const fs::path& part : path.relative_path()) {
    std::string name = part.string();
    const bool crosses = name.starts_with("**"), repeated = !components.empty() && components.back() == "**";
    if (crosses && !repeated) components.emplace_back("**");
    if (crosses && name != "**") name.erase(0, 1);  // **.txt is **/*.txt
    if (!name.empty() && name != "**") components.push_back(std::move(name));
  }
  std::error_code error;
  std::set<fs::path> found;
  if (fs::is_regular_file(path, error)) {
    found.insert(path.lexically_normal());  // a name that happens to look like a pattern
  } else if (!components.empty()) {
    match(path.root_path(), components, found);
  }
  if (!found.empty()) return {found.begin(), found.end()};
  require<IoError>(!fs::is_directory(path, error), "{}: is a folder; name its files, for instance {}", pattern,
                   (path / "**" / "*.txt").string());
  require<IoError>(std::any_of(components.begin(), components.end(), has_wildcard), "{}: no such file", pattern);
  fail<IoError>("{}: no file matches this pattern", pattern);
}

std::string read_bytes(const fs::path& file) {
  std::optional<std::string> text = bytes_if_there(file);
  require<IoError>(text.has_value(), "{}: cannot read: there is no such file", file.string());
  return *std::move(text);
}

std::string read_text(const fs::path& file) {
  std::string text = read_bytes(file);
  const size_t zero = text.find('\0');
  require<IoError>(zero == std::string::npos, "{}: byte 0 at offset {}: expected text, this is a binary file",
                   file.string(), zero);
  return text;
}

bool is_file_name(std::string_view name) {
  constexpr std::string_view kNotInNames("/\n\r\0", 4);
  return !name.empty() && name != "." && name != ".." && name.find_first_of(kNotInNames) == std::string_view::npos;
}

void flush_printed(std::FILE* stream) {
  errno = 0;
  if (std::fflush(stream) == 0 && std::ferror(stream) == 0) return;
  const int reason = errno;  // 0: an earlier write failed
  fail<IoError>("standard output: cannot write{}", reason == 0 ? "" : fmt::format(": {}", std::strerror(reason)));
}

}  // namespace nought
