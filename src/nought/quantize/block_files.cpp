#include "nought/quantize/block_files.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "nought/base/open_file.h"
#include "nought/io/atomic_file.h"
#include "nought/io/atomic_folder.h"
#include "nought/io/files.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 8;

fs::path made(const fs::path& folder) {
  with_io_errors(folder, [&] { fs::create_directories(folder); });
  return folder;
}

/// The bytes of a tensor of a file, as they are: codes that are floats of 8 bits stay codes.
Tensor flat_values(const SafetensorsFile& file, const TensorEntry& entry, Memory& memory) {
  const DType dtype = entry.packed ? DType::u8 : entry.dtype;
  const std::span<const std::byte> raw = file.raw(entry);
  const Tensor values =
      Tensor::empty(memory, {std::ssize(raw) / size_of(dtype)}, dtype, Category::workspace, memory.host_pool());
  std::memcpy(values.raw(), raw.data(), raw.size());
  file.release(entry);
  return values;
}

}  // namespace

BlockFiles::BlockFiles(const fs::path& folder, Json made_of, bool anew)
    : folder_(made(partial_folder(folder))), lock_(folder_ / "lock", this_process()), made_of_(std::move(made_of)) {
  require<IoError>(lock_.state() != FileLock::State::taken, "{} is being written by {}", folder.string(),
                   lock_.owner());
  recall(anew);
}

BlockFiles::~BlockFiles() {
  std::error_code ignored;
  if (done_ == 0 && lock_.state() != FileLock::State::taken) fs::remove_all(folder_, ignored);
}

void BlockFiles::recall(bool anew) {
  const fs::path file = folder_ / "progress.json";
  if (!fs::exists(file)) return;
  Json progress = parse_strictly(file.string(), "it", read_bytes(file), kMaxDepth);
  for (const auto& [name, value] : made_of_.items())
    if (progress["made_of"].value(name, Json()) != value) {
      require<ConfigError>(anew,
                           "{} holds {} blocks that were made with another {}: give that one to go on, or --force to "
                           "begin anew",
                           folder_.string(), progress["blocks"].dump(), name);
      with_io_errors(file, [&] { fs::remove(file); });
      return;
    }
  done_ = progress["blocks"].get<int64_t>(), remembered_ = std::move(progress["remembered"]);
}

fs::path BlockFiles::file_of(std::string_view kind, int64_t block) const {
  return folder_ / fmt::format("{}-{}.safetensors", kind, block);
}

std::vector<Tensor> BlockFiles::rows(Memory& memory) const {
  const SafetensorsFile file(file_of("rows", done_ - 1));
  std::vector<Tensor> rows;
  for (size_t i = 0; i < file.entries().size(); ++i) rows.push_back(file.load(fmt::format("{}", i), memory));
  return rows;
}

SafetensorsWriter BlockFiles::next(const std::vector<TensorSpec>& tensors) const {
  return {file_of("block", done_), tensors};
}

void BlockFiles::add(SafetensorsWriter& block, const std::vector<Tensor>& rows, Json remembered) {
  block.finish();
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < rows.size(); ++i) named.emplace_back(fmt::format("{}", i), rows[i]);
  if (!named.empty()) save_safetensors(file_of("rows", done_), named);
  remembered_ = std::move(remembered);
  const Json progress{{"made_of", made_of_}, {"blocks", done_ + 1}, {"remembered", remembered_}};
  write_text_atomically(folder_ / "progress.json", progress.dump(2) + "\n");
  std::error_code ignored;  // a file too many hurts nobody
  fs::remove(file_of("rows", done_ - 1), ignored);
  ++done_;
}

void BlockFiles::for_each(Memory& memory,
                          const std::function<void(const std::string& name, const Tensor& values)>& f) const {
  for (int64_t block = 0; block < done_; ++block) {
    const SafetensorsFile file(file_of("block", block));
    for (const TensorEntry& entry : file.entries()) f(entry.name, flat_values(file, entry, memory));
  }
}

void BlockFiles::remove() {
  with_io_errors(folder_, [&] { remove_all_of(folder_); });
}

}  // namespace nought
