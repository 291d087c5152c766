#include "nought/models/hf_folder_writer.h"

#include <algorithm>
#include <system_error>

#include "nought/base/json.h"
#include "nought/base/open_file.h"

namespace nought {

HfFolderWriter::HfFolderWriter(std::filesystem::path folder, const std::vector<TensorSpec>& tensors,
                               int64_t max_shard_bytes)
    : folder_(std::move(folder)) {
  require<ConfigError>(max_shard_bytes > 0, "max_shard_bytes must be positive, got {}", max_shard_bytes);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  require<IoError>(!error, "{}: cannot create the folder: {}", folder_.string(), error.message());

  std::vector<std::vector<TensorSpec>> parts(1);
  int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    if (filled + tensor.bytes() > max_shard_bytes && !parts.back().empty()) parts.emplace_back(), filled = 0;
    parts.back().push_back(tensor);
    filled += tensor.bytes();
    total_bytes_ += tensor.bytes();
    require<IoError>(shard_of_.emplace(tensor.name, parts.size() - 1).second, "{}: tensor \"{}\" is declared twice",
                     folder_.string(), tensor.name);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    file_names_.push_back(parts.size() == 1 ? "model.safetensors"
                                            : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size()));
    shards_.emplace_back(folder_ / file_names_.back(), parts[i]);
  }
}

SafetensorsWriter& HfFolderWriter::writer_of(std::string_view name) {
  const auto found = shard_of_.find(name);
  require<IoError>(found != shard_of_.end(), "{}: tensor \"{}\" was not declared", folder_.string(), name);
  return shards_[found->second];
}

void HfFolderWriter::write(std::string_view name, Interval elements, const Tensor& source) {
  writer_of(name).write(name, elements, source);
}

void HfFolderWriter::write(std::string_view name, const Tensor& source) { writer_of(name).write(name, source); }

void HfFolderWriter::finish() {
  for (SafetensorsWriter& shard : shards_) shard.finish();
  if (shards_.size() > 1) write_index();
  remove_stale_files();
}

void HfFolderWriter::write_index() const {
  OrderedJson index;
  index["metadata"]["total_size"] = total_bytes_;
  for (const auto& [name, shard] : shard_of_) index["weight_map"][name] = file_names_[shard];
  write_text_atomically(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

void HfFolderWriter::remove_stale_files() const {
  const auto is_shard_name = [](std::string_view name) {
    return name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != std::string_view::npos;
  };
  std::error_code ignored;  // a file that cannot be removed now is no reason to fail a finished save
  for (const auto& file : entries_of(folder_, ignored)) {
    const std::string name = file.path().filename().string();
    const bool is_index = name == "model.safetensors.index.json";
    if (!is_index && name != "model.safetensors" && !is_shard_name(name)) continue;
    const bool current =
        is_index ? shards_.size() > 1 : std::find(file_names_.begin(), file_names_.end(), name) != file_names_.end();
    if (!current) std::filesystem::remove(file.path(), ignored);
  }
}

}  // namespace nought
