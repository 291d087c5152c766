#include "nought/data/token_folder.h"

#include <set>

#include "nought/base/text.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"

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

std::vector<fs::path> expand_data_files(std::span<const std::string> patterns) {
  std::set<fs::path> found;
  for (const std::string& pattern : patterns) {
    std::vector<fs::path> files = files_of(pattern);
    if (files.empty()) files = expand_glob(pattern);
    found.insert(files.begin(), files.end());
  }
  return {found.begin(), found.end()};
}

}  // namespace nought
