// HfFolderWriter: writes the weights of a model as Hugging Face's save_pretrained writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nought/io/safetensors_writer.h"
#include "nought/models/weight_sink.h"

namespace nought {

/// Writes model.safetensors. If the weights take more than `max_shard_bytes`, it writes numbered shards and an index
/// instead; a tensor that is larger has a shard to itself.
class HfFolderWriter final : public WeightSink {
 public:
  static constexpr int64_t kDefaultShardBytes = 5'000'000'000;  // Hugging Face's default

  /// Declares all tensors. Creates the folder if there is none. IoError.
  HfFolderWriter(std::filesystem::path folder, const std::vector<TensorSpec>& tensors,
                 int64_t max_shard_bytes = kDefaultShardBytes);

  void write(std::string_view name, Interval elements, const Tensor& source) override;
  void write(std::string_view name, const Tensor& source);
  /// Finishes every shard, then the index, then removes weight files of an earlier save that a reader would prefer.
  void finish() override;
  int num_shards() const { return static_cast<int>(shards_.size()); }

 private:
  SafetensorsWriter& writer_of(std::string_view name);
  void write_index() const;
  void remove_stale_files() const;

  std::filesystem::path folder_;
  std::vector<std::string> file_names_;
  std::vector<SafetensorsWriter> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_;
  int64_t total_bytes_ = 0;
};

}  // namespace nought
