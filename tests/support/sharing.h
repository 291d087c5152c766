// Decoders whose matrices ranks share, and batches for them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/models/decoder.h"
#include "nought/tensor/random.h"
#include "nought/zero/sharded_model.h"

namespace nought::test {

/// A decoder on one rank of a mesh. The ranks that share matrices share those of experts too. slices: between products
/// each has a slice of the tokens. cut: how ranks along the pipeline axis hold its layers. method: how ranks that hold
/// parts of sequences attend.
struct Sharing {
  Sharing(Communicator& world, const GridSizes& sizes, const ModelConfig& config, ShardedModel::Options options = {},
          const Fp8Options& fp8 = {}, bool slices = false, const PipelineCut& cut = {},
          const RecomputeOptions& recompute = {}, std::optional<ContextMethod> method = {}, Context on = Context::cpu())
      : context(std::move(on)),
        mesh(world, sharing_experts(sizes)),
        decoder(config, recompute, fp8, ModelRanks(mesh, slices, cut, method)),
        model(context, mesh, decoder, options) {}
  static GridSizes sharing_experts(GridSizes sizes) {
    sizes.expert_tensor = sizes.tensor;
    return sizes;
  }

  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

inline constexpr int64_t kRows = 4, kSharingLength = 12, kAccumulation = 2, kSteps = 30;

inline ModelConfig small_model(const std::string& family, int layers = 2) {
  if (family == "gpt2")
    return ModelConfig::from_json({{"model_type", "gpt2"},
                                   {"vocab_size", 61},
                                   {"n_embd", 32},
                                   {"n_layer", layers},
                                   {"n_head", 4},
                                   {"n_positions", 16}});
  if (family == "deepseek_v3")  // latent attention, a dense layer, experts of which four ranks have 3, 3, 3 and 1
    return ModelConfig::from_json({{"model_type", "deepseek_v3"},
                                   {"vocab_size", 61},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"moe_intermediate_size", 10},
                                   {"num_hidden_layers", layers},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 4},
                                   {"q_lora_rank", 12},
                                   {"kv_lora_rank", 10},
                                   {"qk_nope_head_dim", 6},
                                   {"qk_rope_head_dim", 4},
                                   {"v_head_dim", 5},
                                   {"n_routed_experts", 4},
                                   {"n_shared_experts", 1},
                                   {"num_experts_per_tok", 2},
                                   {"n_group", 1},
                                   {"topk_group", 1},
                                   {"first_k_dense_replace", 1},
                                   {"max_position_embeddings", 16}});
  if (family == "gpt_oss")  // fused experts with biases, gate and up in turn: 3, 3, 3 and 1 pairs; sinks
    return ModelConfig::from_json({{"model_type", "gpt_oss"},
                                   {"vocab_size", 61},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 10},
                                   {"num_hidden_layers", layers},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 12},
                                   {"num_local_experts", 4},
                                   {"num_experts_per_tok", 2},
                                   {"sliding_window", 5},
                                   {"max_position_embeddings", 16}});
  if (family == "olmo2")  // norms of all heads, and a key/value head that ranks share
    return ModelConfig::from_json({{"model_type", "olmo2"},
                                   {"vocab_size", 61},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 42},
                                   {"num_hidden_layers", layers},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 1},
                                   {"max_position_embeddings", 16}});
  return ModelConfig::from_json({{"model_type", "qwen3"},  // norms of heads, and a key/value head that ranks share
                                 {"vocab_size", 61},       // for 4 ranks 16, 16, 16 and 13 tokens
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 12},
                                 {"max_position_embeddings", 16},
                                 {"tie_word_embeddings", true}});
}

/// The rows of a micro-batch that one of the data-parallel ranks reads. Rows have different numbers of targets.
inline Batch rows_of(Memory& memory, int64_t step, int64_t micro_batch, int rank, int ranks) {
  const int64_t rows = kRows / ranks;
  std::vector<int32_t> ids, targets;
  for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row)
    for (int64_t t = 0; t < kSharingLength; ++t) {
      const auto at = static_cast<uint64_t>(((step * kAccumulation + micro_batch) * kRows + row) * kSharingLength + t);
      ids.push_back(static_cast<int32_t>(61 * (1 - uniform_at(7, at))));
      const bool counts = t > 3 * row && (row != 2 || micro_batch == 0);
      targets.push_back(counts ? static_cast<int32_t>(61 * (1 - uniform_at(8, at))) : kIgnoredTarget);
    }
  return {Tensor::of<int32_t>(memory, {rows, kSharingLength}, ids),
          Tensor::of<int32_t>(memory, {rows, kSharingLength}, targets)};
}

}  // namespace nought::test
