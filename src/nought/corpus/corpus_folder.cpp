#include "nought/corpus/corpus_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

// No pattern matches it, so `nought tokenize DIR` does not take it for text.
constexpr const char* kStateName = ".nought-data.json";

/// Whether a file is one that this class writes.
bool is_shard(const fs::path& file) {
  const std::string name = file.filename().string();
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view rest = std::string_view(name).substr(digits);
  return digits >= 5 && (rest == ".jsonl" || rest == ".jsonl.partial");
}

}  // namespace

CorpusFolder::CorpusFolder(CorpusFolderOptions options, std::string settings) : options_(std::move(options)) {
  std::vector<fs::path> folders{options_.folder};
  if (options_.rejected) folders.push_back(*options_.rejected);
  const fs::path file = options_.folder / kStateName;
  std::error_code error;
  const bool known = fs::is_regular_file(file, error) && !options_.overwrite;
  if (known) state_ = from_json<CorpusFolderState>(read_json_file(file.string()), Origins(file.string()));
  require<ConfigError>(!known || state_.settings == settings,
                       "{}: holds what another run made, with other inputs or options: --overwrite makes it again",
                       options_.folder.string());
  state_.settings = std::move(settings);
  is_new_ = !known;
  for (const fs::path& folder : folders) {
    with_io_errors(folder, [&] { fs::create_directories(folder); });
    if (!known) start_anew(folder);
  }
  if (!known) write_text_atomically(file, to_json(state_).dump() + "\n");
}

void CorpusFolder::start_anew(const fs::path& folder) const {
  with_io_errors(folder, [&] {
    std::vector<fs::path> shards;
    for (const auto& entry : fs::directory_iterator(folder))
      if (is_shard(entry.path())) shards.push_back(entry.path());
    require<ConfigError>(shards.empty() || options_.overwrite,
                         "{}: holds {} already: give another folder, or --overwrite", folder.string(),
                         shards.empty() ? "" : std::min_element(shards.begin(), shards.end())->filename().string());
    for (const fs::path& shard : shards) fs::remove(shard);
  });
}

fs::path CorpusFolder::shard_path(const fs::path& folder, bool partial) const {
  return folder / fmt::format("{:05}.jsonl{}", state_.shards, partial ? ".partial" : "");
}

void CorpusFolder::append(Shard& shard, const fs::path& folder, std::string_view lines) {
  if (lines.empty()) return;
  const fs::path path = shard_path(folder, /*partial=*/true);
  if (!shard.file) shard.file.reset(std::fopen(path.c_str(), "wb"));
  const bool good = shard.file && std::fwrite(lines.data(), 1, lines.size(), shard.file.get()) == lines.size();
  require<IoError>(good, "cannot write {}: {}", path.string(), std::strerror(errno));
  shard.bytes += static_cast<int64_t>(lines.size());
}

void CorpusFolder::reject(std::string_view lines) {
  if (options_.rejected) append(rejected_, *options_.rejected, lines);
}

bool CorpusFolder::is_full() const { return std::max(kept_.bytes, rejected_.bytes) >= options_.shard_bytes; }

/// Gives the shard its name. A shard without a document is no file.
void CorpusFolder::finish(Shard& shard, const fs::path& folder) {
  if (!shard.file) return;
  const fs::path path = shard_path(folder, /*partial=*/true);
  const bool good = std::fflush(shard.file.get()) == 0 && ::fsync(fileno(shard.file.get())) == 0;
  require<IoError>(good, "cannot write {}: {}", path.string(), std::strerror(errno));
  shard = {};
  with_io_errors(path, [&] { fs::rename(path, shard_path(folder, /*partial=*/false)); });
}

void CorpusFolder::save(const DocumentPlace& place, Json report, bool complete) {
  finish(kept_, options_.folder);
  if (options_.rejected) finish(rejected_, *options_.rejected);
  state_.file = static_cast<int64_t>(place.file);
  state_.offset = place.offset;
  state_.line = place.line;
  state_.shards += 1;
  state_.complete = complete;
  state_.report = std::move(report);
  write_text_atomically(options_.folder / kStateName, to_json(state_).dump() + "\n");
}

std::string identity_of(const std::vector<fs::path>& files) {
  std::string identity;
  for (const fs::path& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    const auto time = fs::last_write_time(file, error).time_since_epoch().count();
    require<IoError>(!error, "{}: cannot read: {}", file.string(), error.message());
    identity += fmt::format("{} {} {}\n", file.string(), size, time);
  }
  return identity;
}

}  // namespace nought
