// evaluate: the mean loss of a model over all tokens of some data, and what it is per byte of their text.
#pragma once

#include <cmath>
#include <cstdint>

namespace nought {

class Engine;
class ShardedModel;
class TokenDataset;
class Tokenizer;

struct Evaluation {
  double loss = 0;         // mean over the targets, in nats
  int64_t targets = 0;     // each token but a source's first, once, without those that are masked
  int64_t text_bytes = 0;  // that the targets stand for; markers are no text
  double seconds = 0;

  double perplexity() const { return std::exp(loss); }
  double bits_per_token() const { return loss / std::log(2.0); }
  /// 0 if the targets stand for no text.
  double bits_per_byte() const {
    return text_bytes > 0 ? bits_per_token() * static_cast<double>(targets) / static_cast<double>(text_bytes) : 0;
  }
};

/// Collective; the same on every rank, and for every number of ranks but for the rounding of sums. ConfigError if the
/// data has no target.
Evaluation evaluate(Engine& engine, ShardedModel& model, const TokenDataset& data, const Tokenizer& tokenizer,
                    int64_t micro_batch);

}  // namespace nought
