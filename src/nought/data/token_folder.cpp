#include "nought/data/token_folder.h"

#include <algorithm>
#include <set>

#include "nought/base/text.h"
#include "nought/data/corpus_kind.h"
#include "nought/data/token_file.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/io/text_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndexName = "index.json";

/// The files of a folder of token files; none if it is no such folder.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  const auto index = read_token_index(folder);
  if (!index) return {};
  require<ConfigError>(index->complete, "{}: is not complete: run the same `nought tokenize` again, it goes on",
                       folder.string());
  require<ConfigError>(!index->files.empty(), "{}: holds no tokens", folder.string());
  std::vector<fs::path> files;
  for (const TokenFolderFile& file : index->files) {
    require<ConfigError>(is_file_name(file.name), "{}: \"{}\" is not the name of a file in the same folder",
                         (folder / kIndexName).string(), one_line(file.name));
    files.push_back((folder / file.name).lexically_normal());
  }
  return files;
}

/// Whether a file's beginning is that of a text.
bool is_text_file(const fs::path& file) {
  constexpr size_t kLook = size_t{1} << 16;
  if (file.extension() == ".arrow" || file.extension() == kTokenFileExtension) return false;
  const TextBeginning beginning(file, kLook);
  const std::string_view begin = beginning.text().substr(0, kLook);
  return begin.find('\0') == std::string_view::npos && why_not_text(begin).empty();
}

}  // namespace

std::optional<TokenFolderIndex> read_token_index(const fs::path& folder) {
  const fs::path file = folder / kIndexName;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  const Json json = read_json_file(file.string());
  // First of all: a newer version may have members that this one does not know.
  if (json.is_object() && json.contains("format")) require_readable(file, json["format"], kTokenFolderFormat);
  return from_json<TokenFolderIndex>(json, Origins(file.string()));
}

void write_token_index(const fs::path& folder, const TokenFolderIndex& index) {
  write_text_atomically(folder / kIndexName, to_json(index).dump(2) + "\n");
}

DataFiles find_data_files(std::span<const std::string> patterns) {
  std::set<fs::path> found, left_out;
  for (const std::string& pattern : patterns) {
    std::vector<fs::path> files = files_of(pattern);
    std::error_code ignored;
    if (files.empty() && fs::is_directory(pattern, ignored)) {
      std::vector<fs::path> below = expand_glob((fs::path(pattern) / "**").string());
      const auto texts = std::stable_partition(below.begin(), below.end(), is_text_file);
      left_out.insert(texts, below.end());
      files.assign(below.begin(), texts);
      require<IoError>(!files.empty(), "{}: none of the {} files below this folder is text", pattern, below.size());
    }
    if (files.empty()) files = expand_glob(pattern);
    found.insert(files.begin(), files.end());
  }
  return {{found.begin(), found.end()}, {left_out.begin(), left_out.end()}};
}

std::vector<fs::path> expand_data_files(std::span<const std::string> patterns) {
  return find_data_files(patterns).files;
}

std::string describe_left_out(const DataFiles& found) {
  if (found.left_out.empty()) return "";
  const size_t count = found.left_out.size();
  return fmt::format("{} of {} files in folders are no text and are left out: {}{}", count, count + found.files.size(),
                     found.left_out.front().string(), count > 1 ? fmt::format(" and {} more", count - 1) : "");
}

}  // namespace nought
