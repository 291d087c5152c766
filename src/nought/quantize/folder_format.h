// FolderFormat: how a quantized matrix lies in a Hugging Face folder, and what config.json says of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/models/hf_folder_writer.h"
#include "nought/quantize/quantized_matrix.h"

namespace nought {

/// What linear layers of blocks became.
struct FolderModules {
  std::vector<std::string> dense;  // those whose matrix stayed as it was
  std::vector<std::string> codes;  // what those in codes are called within their layers: "mlp.up_proj"
};

class FolderFormat {
 public:
  virtual ~FolderFormat() = default;
  /// ConfigError for rules that the format has no place for.
  virtual void check(const MatrixRule& rule) const = 0;
  /// Whether a matrix of these sizes has a place; else it stays dense.
  virtual bool takes(int64_t rows, int64_t columns, const MatrixRule& rule) const = 0;
  /// The tensors of a module "model.layers.0.mlp.up_proj".
  virtual std::vector<TensorSpec> specs(const std::string& module, int64_t rows, int64_t columns,
                                        const MatrixRule& rule) const = 0;
  virtual void write(const std::string& module, const QuantizedMatrix& matrix, HfFolderWriter& writer,
                     Memory& memory) const = 0;
  /// The quantization_config.
  virtual OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const = 0;
};

/// gptq, awq or compressed-tensors. ConfigError for another name.
std::unique_ptr<FolderFormat> make_folder_format(std::string_view name);
const std::vector<std::string>& folder_format_names();

}  // namespace nought
