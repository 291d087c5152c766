// What a model takes while it generates on a CPU: weights as they are kept, the cache of keys and values, and what a
// pass needs beside them. The code of generation runs for its ledger alone: nothing is allocated, read or computed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/file_format.h"
#include "nought/weights/kept_codes.h"

namespace nought {

struct InferenceSizes {
  int64_t context = 4096, sequences = 1;  // the most tokens of a sequence, and how many are computed together
  std::optional<DType> kv_dtype = {};     // see Decoder::make_cache()
};

/// A smaller model that guesses tokens beside the one that draws them (--speculative).
struct DraftPlan {
  std::string folder;
  std::vector<KeptFormat> kept = {};
  int64_t weights = 0, cache = 0, pass = 0;  // bytes
};

struct InferencePlan {
  InferenceSizes sizes;
  DType dtype = DType::bf16;          // in which the model computes
  std::vector<KeptFormat> kept = {};  // weights that stay in codes
  int64_t weights = 0, cache = 0;     // bytes
  int64_t peak = 0;                   // of all at one moment, with the values of a pass, without the draft
  std::optional<DraftPlan> draft = {};

  /// With the draft: one of the two models passes at a time.
  int64_t total() const;
  /// How many sequences so many bytes have room for; 0 if not even one.
  int64_t sequences_in(int64_t bytes) const;
};

/// Plans for `source`, or for dense weights of `config` in the dtype if it is null. ConfigError if the model has
/// learned fewer positions than the context has tokens.
InferencePlan plan_inference(const ModelConfig& config, const ModelSource* source, DType dtype,
                             const InferenceSizes& sizes);

/// Plans for a draft beside it, whose cache is as large as its positions allow. ConfigError if it has another
/// vocabulary than `config`.
void add_draft(InferencePlan& plan, const ModelConfig& config, const ModelSource& draft);

/// memory: the bytes that there are, as `what` calls them.
std::string to_text(const InferencePlan& plan, int64_t memory, const std::string& what);
inline constexpr FileFormat kInferencePlanFormat{"nought-inference-plan", 1};
OrderedJson to_json(const InferencePlan& plan, int64_t memory);

}  // namespace nought
