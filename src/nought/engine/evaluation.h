// evaluate(): the mean loss of a model over all tokens of a dataset, and its bits per byte of text.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nought {

class Engine;
class ShardedModel;
class TokenDataset;
class Tokenizer;

/// Numbers by the names that users know them by, in their order.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

struct Evaluation {
  double loss = 0;         // mean over the targets, in nats
  int64_t targets = 0;     // all tokens but the first of each source, without those that are masked
  int64_t text_bytes = 0;  // bytes of the targets' text; markers have none
  double seconds = 0;
  NamedNumbers of_answers = {};  // TRL's metrics, where answers are compared

  double perplexity() const { return std::exp(loss); }
  double bits_per_token() const { return loss / std::log(2.0); }
  /// 0 if the targets have no text.
  double bits_per_byte() const {
    return text_bytes > 0 ? bits_per_token() * static_cast<double>(targets) / static_cast<double>(text_bytes) : 0;
  }
};

/// Evaluates `data` with micro_batch sequences per rank and forward pass. Collective; all ranks get the same result.
/// With another number of ranks only the rounding of sums differs. ConfigError if the data has no target.
Evaluation evaluate(Engine& engine, ShardedModel& model, const TokenDataset& data, const Tokenizer& tokenizer,
                    int64_t micro_batch);

}  // namespace nought
