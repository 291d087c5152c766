#include "nought/engine/evaluation.h"

#include <array>
#include <chrono>

#include "nought/engine/engine.h"

namespace nought {

Evaluation evaluate(Engine& engine, ShardedModel& model, const TokenDataset& data, const Tokenizer& tokenizer,
                    int64_t micro_batch) {
  const auto begin = std::chrono::steady_clock::now();
  Communicator& ranks = model.mesh().group(Group::samples);
  const EvaluationSampler sampler(data, {.micro_batch = micro_batch, .world_size = ranks.size(), .rank = ranks.rank()});
  std::vector<int64_t> bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) bytes.push_back(tokenizer.text_bytes(id));
  double loss = 0;
  std::array<double, 2> counts{};  // targets, bytes of their text: whole numbers
  for (int64_t i = 0; i < sampler.num_batches(); ++i) {
    const Batch batch = sampler.batch(i, *model.context().memory);
    if (engine.has_virtual_ranks()) {  // as one rank, which evaluates the batches of all in turn
      for (const double each : engine.evaluate_by_rank(std::span(&batch, 1))) loss += each;
    } else {
      loss += engine.evaluate(std::span(&batch, 1), 1);
    }
    for (const int32_t target : batch.targets.span<int32_t>()) {
      if (target == kIgnoredTarget) continue;
      counts[0] += 1;
      counts[1] += static_cast<double>(bytes.at(static_cast<size_t>(target)));
    }
  }
  all_reduce_values(ranks, model.context(), counts);
  require<ConfigError>(counts[0] > 0, "the data to evaluate with has no target: it has {} tokens", data.num_tokens());
  return {.loss = loss / counts[0],
          .targets = static_cast<int64_t>(counts[0]),
          .text_bytes = static_cast<int64_t>(counts[1]),
          .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

}  // namespace nought
