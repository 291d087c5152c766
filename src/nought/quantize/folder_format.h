// FolderFormat: how a quantized matrix lies in a Hugging Face folder, and what config.json says of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/autograd/unit.h"
#include "nought/base/json.h"
#include "nought/io/safetensors_writer.h"
#include "nought/quantize/quantized_matrix.h"

namespace nought {

/// What linear layers of blocks became.
struct FolderModules {
  std::vector<std::string> dense;    // those whose matrix stayed as it was
  std::vector<std::string> codes;    // what those in codes are called within their layers: "mlp.up_proj"
  std::vector<std::string> routers;  // what chooses experts, which is never in codes

  /// All that a reader must leave as it is, the head too.
  std::vector<std::string> left_dense() const;
};
/// ConfigError for columns in another order than theirs, which GPTQ's format alone has a place for.
void require_plain_order(const MatrixRule& rule, std::string_view format);

class FolderFormat {
 public:
  virtual ~FolderFormat() = default;
  /// What is taken where nobody says anything else.
  virtual MatrixRule usual() const { return {}; }
  /// ConfigError for rules that the format has no place for.
  virtual void check(const MatrixRule& rule) const = 0;
  /// Whether the parameter is one of those that become codes, if its sizes fit: the matrix of a linear layer.
  virtual bool wants(const Parameter& parameter) const;
  /// Whether a matrix [rows, columns] has a place; else it stays dense.
  virtual bool takes(const Shape& shape, const MatrixRule& rule) const = 0;
  /// The tensors of a module "model.layers.0.mlp.up_proj".
  virtual std::vector<TensorSpec> specs(const std::string& module, const Shape& shape,
                                        const MatrixRule& rule) const = 0;
  virtual void write(const std::string& module, const QuantizedMatrix& matrix, SafetensorsWriter& writer,
                     Memory& memory) const = 0;
  /// The quantization_config.
  virtual OrderedJson config(const MatrixRule& rule, const FolderModules& modules) const = 0;
};

/// gptq, awq, compressed-tensors, fp8 or mxfp4, for a model of a family. ConfigError for another name.
std::unique_ptr<FolderFormat> make_folder_format(std::string_view name, std::string_view family = {});
const std::vector<std::string>& folder_format_names();

}  // namespace nought
