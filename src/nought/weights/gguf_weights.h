// GgufWeights: the weights of a GGUF file, as the start of a run. Each rank reads only the blocks that it needs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "nought/io/gguf_file.h"
#include "nought/models/config.h"
#include "nought/models/gguf_layouts.h"
#include "nought/models/packed_tensor.h"
#include "nought/nn/model.h"
#include "nought/weights/stored_weights.h"

namespace nought {

class GgufWeights final : public StoredWeights {
 public:
  /// Opens the file and checks that every parameter is there with its shape, but for an adapter's. IoError,
  /// ConfigError.
  GgufWeights(const std::filesystem::path& path, const ModelConfig& config, const Model& model);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  DType dtype() const override { return dtype_; }
  DType dtype_of(const Parameter& parameter) const override;
  std::string content_hash() const override;
  const std::vector<std::string>& unused() const override { return unused_; }
  bool decodes(const Parameter& parameter) const override;
  Storage storage_of(const Parameter& parameter) const override;
  std::optional<StoredBlocks> blocks(const Parameter& parameter) const override;
  int64_t num_files() const override { return static_cast<int64_t>(file_.num_files()); }
  int64_t file_bytes() const override { return file_.file_bytes(); }

 private:
  /// A parameter: a part of one tensor as it is, or sheets whose parts lie in several.
  struct Held {
    GgufPlace place;
    PackedTensor tensor;                    // if it is in order
    std::vector<const GgufEntry*> entries;  // one for each part
    std::vector<PackedMatrix> matrices;     // likewise
  };
  Held open(const Parameter& parameter, GgufPlace place) const;
  const GgufEntry& find(const Parameter& parameter, const GgufPart& part) const;
  static void read_sheets(const Held& held, std::span<const Interval> elements, const Tensor& destination);

  GgufFile file_;
  std::unordered_map<std::string, Held> held_;  // by the names of parameters
  std::vector<std::string> unused_;
  DType dtype_ = DType::f32;
};

}  // namespace nought
