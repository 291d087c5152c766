// StoredWeights: the weights of a model in files of any kind, and how they are stored.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/models/packed_tensor.h"
#include "nought/zero/state.h"

namespace nought {

class CarriedTensors;

class StoredWeights : public StateSource {
 public:
  /// The dtype of most parameters; quantised ones are decoded to it.
  virtual DType dtype() const = 0;
  /// The dtype in which a parameter is stored, or to which it is decoded.
  virtual DType dtype_of(const Parameter& parameter) const = 0;
  /// A hash of the model's weights: the same for the same names, dtypes, shapes and values, in whatever files.
  virtual std::string content_hash() const = 0;
  /// Tensors of the files that the model does not use.
  virtual const std::vector<std::string>& unused() const = 0;

  /// How the values of a parameter are stored: "q4_k", "gptq, 4 bits", "bf16".
  struct Storage {
    std::string format;
    int64_t bytes = 0;  // with scales and zero points
  };
  /// Whether a parameter is stored as codes.
  virtual bool decodes(const Parameter& parameter) const = 0;
  virtual Storage storage_of(const Parameter& parameter) const = 0;
  virtual int64_t num_files() const = 0;
  virtual int64_t file_bytes() const = 0;
  /// What the files hold beside the model, if exports carry it through.
  virtual const CarriedTensors* carried() const { return nullptr; }
};

/// A tensor of a file if it is codes of 4 bits as kernels read them: in the order of the parameter, in whole blocks,
/// with the tables of bitsandbytes.
std::optional<StoredFourBits> four_bits_of(const PackedTensor& packed);
/// A tensor of a folder whose codes make blocks along its rows (io/group_blocks.h). `packed` outlives what reads it.
std::optional<StoredBlocks> blocks_of(const PackedTensor& packed);

}  // namespace nought
