// quantize_model(): writes a model as a folder whose matrices are in few bits.
//
// Design goals: memory of one block and of the rows that are looked at, whatever the model's size. Blocks become codes
// in their order, and within a block products in the order in which they run: the inputs that GPTQ goes by are those
// that the quantized model has. A command that was killed goes on behind the last block that was done, with the same
// bytes at the end. What is written is what the reader of folders (models/packed_weights.h) reads.
// Non-goals: several ranks; quantized activations.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nought/quantize/calibration_rows.h"
#include "nought/quantize/folder_format.h"
#include "nought/weights/convert.h"

namespace nought {

enum class RoundingMethod : uint8_t {
  rtn,         // to the nearest code
  gptq,        // what a column loses is made up for in those behind it
  awq,         // to the nearest code, with columns scaled by their inputs, and the norm or matrix before them divided
  smoothquant  // to the nearest code, with what is large in inputs moved from norms to columns
};

/// "gptq"
std::string_view name_of(RoundingMethod method);

/// ConfigError for a rule or a method that the format has no place for, whatever the model.
void require_has_place(std::string_view format, RoundingMethod method, const MatrixRule& rule);

struct QuantizeOptions {
  std::string format = "gptq";  // see folder_format_names()
  RoundingMethod method = RoundingMethod::gptq;
  MatrixRule rule;
  double smoothing = 0.5;                  // the share of inputs' size that SmoothQuant moves to the weights
  std::vector<std::string> skip = {};      // patterns of parameters that stay dense
  std::vector<TokenRow> calibration = {};  // what all methods but rtn see; of one length
  int64_t max_shard_bytes = HfFolderWriter::kDefaultShardBytes;
  bool anew = false;  // without the blocks of an earlier command that had other options
};

/// What became of the matrices of one kind, "mlp.up_proj".
struct KindReport {
  int64_t matrices = 0, elements = 0;
  double error = 0;  // the sum of relative_error() over the matrices
};

struct QuantizeReport {
  int64_t tensors = 0, bytes = 0, dense_bytes = 0;  // the size of all weights, and dense_bytes()
  int files = 0;
  int64_t codes_elements = 0, codes_bytes = 0;  // what the matrices in codes take, with their scales
  std::map<std::string, KindReport> kinds = {};
  std::vector<std::string> notes = {};
};

/// The size of the model's weights, all of them dense, each in the dtype that the source has it in.
int64_t dense_bytes(const ModelSource& source);

/// Linear layers of blocks become codes, experts included; embeddings, head, norms, biases and routers stay as they
/// are. `said` hears of each block that is made now; the folder appears when all are there (BlockFiles). ConfigError
/// for a model whose matrices are [in, out], options that the format has no place for, and methods that go by inputs
/// without rows; Error that names a module whose inputs are not finite.
QuantizeReport quantize_model(const ModelSource& source, const std::filesystem::path& folder,
                              const QuantizeOptions& options, const Context& context,
                              const std::function<void(int64_t block, int64_t blocks)>& said);

}  // namespace nought
