#include "nought/infer/generation_mesh.h"

#include <cstdlib>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/models/expert_spread.h"
#include "nought/models/stages.h"
#include "nought/models/tensor_cuts.h"

namespace nought {

namespace {

struct Product {
  int64_t tensor = 1, pipeline = 1, experts = 1;
};

/// "--ranks 8 --tp 4 --pp 2": sizes of 1 follow from the others.
std::string str(const Product& sizes, int64_t ranks) {
  std::string text = fmt::format("--ranks {}", ranks);
  if (sizes.tensor > 1) text += fmt::format(" --tp {}", sizes.tensor);
  if (sizes.pipeline > 1) text += fmt::format(" --pp {}", sizes.pipeline);
  if (sizes.experts > 1) text += fmt::format(" --ep {}", sizes.experts);
  return text;
}

/// Fills in what is not asked for; 0 where nothing fits.
Product fill_in(int64_t ranks, const GenerationSizes& asked) {
  const auto rest = [&](int64_t used) { return ranks % used == 0 ? ranks / used : 0; };
  Product sizes{.tensor = asked.tensor.value_or(1), .pipeline = asked.pipeline.value_or(1), .experts = asked.experts};
  if (!asked.tensor) {
    sizes.tensor = rest(sizes.pipeline * sizes.experts);
  } else if (!asked.pipeline) {
    sizes.pipeline = rest(sizes.tensor * sizes.experts);
  }
  return sizes;
}

/// Why a model cannot be shared so; "" if it can.
std::string reason_not_to_share(const ModelConfig& config, int64_t ranks, const Product& sizes) {
  if (sizes.tensor * sizes.pipeline * sizes.experts != ranks)
    return fmt::format("the number of ranks, {}, is not the product of --tp, --pp and --ep", ranks);
  if (const std::string reason = reason_not_to_cut(config, sizes.tensor); !reason.empty())
    return fmt::format("{} ranks cannot share the matrices of a {} model: {}", sizes.tensor, config.family, reason);
  if (sizes.pipeline > most_stages(config))
    return fmt::format("{} ranks cannot each hold one of the model's {} Units (the embedding, its blocks and the head)",
                       sizes.pipeline, most_stages(config));
  return reason_not_to_spread(config, sizes.experts);
}

/// What works with so many ranks, or with the nearest smaller number that something works with. Of several the one
/// that differs least from what is asked for, and of these the one with the most tensor ranks.
std::string nearest_that_works(const ModelConfig& config, int64_t ranks, const GenerationSizes& asked) {
  for (; ranks > 1; --ranks) {
    std::string nearest;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t tensor = ranks; tensor >= 1; --tensor)
      for (int64_t pipeline = 1; ranks % tensor == 0 && pipeline <= ranks / tensor; ++pipeline) {
        if (ranks / tensor % pipeline != 0) continue;
        const Product sizes{tensor, pipeline, ranks / tensor / pipeline};
        const int64_t difference = std::abs(tensor - asked.tensor.value_or(tensor)) +
                                   std::abs(pipeline - asked.pipeline.value_or(pipeline)) +
                                   std::abs(sizes.experts - asked.experts);
        if (difference >= least || !reason_not_to_share(config, ranks, sizes).empty()) continue;
        least = difference;
        nearest = str(sizes, ranks);
      }
    if (!nearest.empty()) return nearest;
  }
  return str({}, 1);
}

}  // namespace

GridSizes generation_mesh(const ModelConfig& config, int ranks, const GenerationSizes& asked) {
  const auto require_positive = [&](const char* option, int64_t size) {
    require<ConfigError>(1 <= size && size <= ranks, "{} {}: it must be 1 to the number of ranks, {}", option, size,
                         ranks);
  };
  require_positive("--tp", asked.tensor.value_or(1));
  require_positive("--pp", asked.pipeline.value_or(1));
  require_positive("--ep", asked.experts);
  const Product sizes = fill_in(ranks, asked);
  const std::string reason = reason_not_to_share(config, ranks, sizes);
  if (!reason.empty())
    fail<ConfigError>("{}; the nearest that works is {}", reason, nearest_that_works(config, ranks, asked));
  const int tensor = static_cast<int>(sizes.tensor), expert = static_cast<int>(sizes.experts);
  return {.shard = expert,
          .tensor = tensor,
          .pipeline = static_cast<int>(sizes.pipeline),
          .expert = expert,
          .expert_tensor = tensor};
}

}  // namespace nought
