// What a run measures of itself on thread ranks, beside what is predicted of it: peaks by category, steady state,
// traffic.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/engine/engine.h"
#include "nought/engine/model_schedule.h"
#include "nought/models/decoder.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/plan/predict.h"
#include "nought/train/text_sample.h"

namespace nought::test {

inline constexpr int64_t kMiB = int64_t{1} << 20;
/// Bytes that are enough to compare: of fewer, what an allocation is rounded up by is a part.
inline constexpr int64_t kLarge = kMiB / 4;

/// Large enough that parameters, gradients, optimizer, activations and workspace pass kLarge on every one of two ranks.
/// least_layers: it gets so many, if it has less.
inline ModelConfig model_of(const std::string& family, int64_t least_layers = 0) {
  const auto layers = [&](int64_t usual) { return std::max(usual, least_layers); };
  if (family == "gpt2")
    return ModelConfig::from_json({{"model_type", "gpt2"},
                                   {"vocab_size", 1024},
                                   {"n_embd", 128},
                                   {"n_layer", layers(3)},
                                   {"n_head", 4},
                                   {"n_positions", 128}});
  if (family == "mixtral")
    return ModelConfig::from_json({{"model_type", "mixtral"},
                                   {"vocab_size", 1024},
                                   {"hidden_size", 128},
                                   {"intermediate_size", 128},
                                   {"num_hidden_layers", layers(2)},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"num_local_experts", 4},
                                   {"num_experts_per_tok", 2},
                                   {"max_position_embeddings", 128}});
  if (family == "gpt_oss")  // all experts of a layer in one tensor
    return ModelConfig::from_json({{"model_type", "gpt_oss"},
                                   {"vocab_size", 1024},
                                   {"hidden_size", 128},
                                   {"intermediate_size", 128},
                                   {"num_hidden_layers", layers(2)},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 32},
                                   {"num_local_experts", 4},
                                   {"num_experts_per_tok", 2},
                                   {"sliding_window", 64},
                                   {"layer_types", {"sliding_attention", "full_attention"}},
                                   {"rope_theta", 10000.0},
                                   {"max_position_embeddings", 128}});
  if (family == "deepseek_v2")
    return ModelConfig::from_json({{"model_type", "deepseek_v2"},
                                   {"vocab_size", 1024},
                                   {"hidden_size", 128},
                                   {"intermediate_size", 256},
                                   {"moe_intermediate_size", 64},
                                   {"num_hidden_layers", layers(3)},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 4},
                                   {"kv_lora_rank", 32},
                                   {"q_lora_rank", 48},
                                   {"qk_rope_head_dim", 8},
                                   {"qk_nope_head_dim", 16},
                                   {"v_head_dim", 16},
                                   {"n_routed_experts", 4},
                                   {"n_shared_experts", 1},
                                   {"num_experts_per_tok", 2},
                                   {"first_k_dense_replace", 1},
                                   {"max_position_embeddings", 128}});
  return ModelConfig::from_json({{"model_type", family},
                                 {"vocab_size", 1024},
                                 {"hidden_size", 128},
                                 {"intermediate_size", 344},
                                 {"num_hidden_layers", layers(3)},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 128},
                                 {"tie_word_embeddings", family == "qwen2"}});
}

inline Traffic difference(const Traffic& a, const Traffic& b) {
  Traffic result;
  for (size_t c = 0; c < kNumCollectives; ++c)
    result.counts[c] = {a.counts[c].bytes - b.counts[c].bytes, a.counts[c].elements - b.counts[c].elements,
                        a.counts[c].calls - b.counts[c].calls};
  return result;
}

struct Measurement {
  std::array<int64_t, kNumCategories> steady{}, steady_host{}, steady_file{};
  RankMemory memory;
  Traffic traffic;
  std::vector<Mesh::GroupTraffic> traffic_by_axes;
  StateTraffic states;           // of the last step
  int64_t late_allocations = 0;  // by the system, after the second step
};

/// The memory of the first rank of each pipeline stage's ranks that has as many tokens as any. contexts: what ranks
/// compute with; none: the CPU. limit: of the norm, where updates are guesses.
inline std::vector<Measurement> measure_places(const ModelConfig& config, const Layout& layout, bool documents = false,
                                               const std::vector<Context>& contexts = {}, double limit = 1e6) {
  std::vector<Measurement> results(static_cast<size_t>(layout.stages()));
  const auto measure_rank = [&](Communicator& ranks, const Context& context) {
    const Mesh mesh(ranks, layout.grid());
    Decoder decoder(config, layout.recompute, layout.fp8,
                    ModelRanks(mesh, layout.sequence_parallel, cut_of(layout.pipeline), layout.context_method));
    apply(layout.freezing, decoder);
    const ShardedModel::Options options = layout.sharding_options();
    ShardedModel model(context, mesh, decoder, options);
    if (options.offload_optimizer.tier.pool == Pool::file ||
        options.offload_param.tier.pool == Pool::file) {  // a file has nothing before it is written
      model.load(InitialState(1));
      context.memory->ledger().reset_peaks();
    }
    Engine engine(model);
    engine.set_schedule(schedules_of(layout, mesh));
    std::vector<Mesh::GroupTraffic> before;
    StateTraffic moved;
    int64_t asked = 0;
    for (int step = 0; step < 3; ++step) {
      if (step == 2) asked = context.memory->system_allocations();
      before = mesh.traffic_by_axes();
      moved = moved_by(model);
      std::vector<Batch> batches;
      for (int64_t i = 0; i < layout.accumulation; ++i) {
        batches.push_back(empty_batch(layout.micro_batch, layout.seq_length, *context.memory));
        context.zero(batches.back().input_ids), context.zero(batches.back().targets);
        if (documents) batches.back().document_starts.assign(static_cast<size_t>(layout.micro_batch), {0, 17, 100});
      }
      const OffloadOptions& states = layout.sharding.offload_optimizer;
      engine.step(batches, layout.tokens_per_step(), 1e-3, states.undo ? limit : states.early ? 0 : 1);
    }
    const std::vector<Mesh::GroupTraffic> after = mesh.traffic_by_axes();
    moved = moved_by(model) - moved;
    if (layout.evaluation_rows > 0) {
      Batch rows = empty_batch(layout.evaluation_rows, layout.seq_length, *context.memory);
      rows.row_keys.clear();
      context.zero(rows.input_ids), context.zero(rows.targets);
      engine.evaluate(std::span(&rows, 1), 1);
    }
    const int64_t before_saving = context.memory->system_allocations();
    for (size_t unit = 0; layout.cuts_parameters() && unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [](const Parameter&, const Tensor&) {});
    asked += context.memory->system_allocations() - before_saving;  // no part of a step
    if (layout.sample_prompt > 0)
      continue_prompt(model, decoder, *make_tokenizer("bytes"),
                      {.prompt = std::string(static_cast<size_t>(layout.sample_prompt), 'a'),
                       .max_new_tokens = layout.sample_new_tokens});
    model.settle();
    const int each = layout.ranks / layout.stages();
    if (ranks.rank() % each != layout.tensor_ranks * with_most_tokens(layout)) return;
    Measurement& result = results[static_cast<size_t>(ranks.rank() / each)];
    const MemoryLedger& ledger = context.memory->ledger();
    for (size_t c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      result.steady[c] = ledger.current(category);
      result.steady_host[c] = ledger.current(category, Pool::host);
      result.steady_file[c] = ledger.current(category, Pool::file);
    }
    result.memory = peaks_of(*context.memory);
    result.states = moved;
    result.late_allocations = context.memory->system_allocations() - asked;
    for (size_t i = 0; i < after.size(); ++i)
      result.traffic_by_axes.push_back({after[i].axes, difference(after[i].traffic, before[i].traffic)});
    for (const Mesh::GroupTraffic& group : result.traffic_by_axes)
      result.traffic = difference(result.traffic, difference({}, group.traffic));
  };
  contexts.empty() ? run_ranks(layout.ranks, measure_rank) : run_ranks(contexts, measure_rank);
  return results;
}

inline Measurement measure(const ModelConfig& config, const Layout& layout, bool documents = false,
                           const std::vector<Context>& contexts = {}, double limit = 1e6) {
  return measure_places(config, layout, documents, contexts, limit).front();
}

inline void expect_within_2_percent(int64_t predicted, int64_t measured, std::string_view what) {
  if (std::max(predicted, measured) < kLarge) return;
  EXPECT_LE(std::abs(static_cast<double>(predicted - measured)), 0.02 * static_cast<double>(measured))
      << what << ": predicted " << predicted << ", measured " << measured;
}

inline void expect_same_traffic(const Traffic& predicted, const Traffic& measured) {
  for (size_t c = 0; c < kNumCollectives; ++c) {
    SCOPED_TRACE(name_of(static_cast<Collective::Kind>(c)));
    EXPECT_EQ(predicted.counts[c].bytes, measured.counts[c].bytes);
    EXPECT_EQ(predicted.counts[c].elements, measured.counts[c].elements);
    EXPECT_EQ(predicted.counts[c].calls, measured.counts[c].calls);
  }
}

inline void expect_agreement(const Prediction& predicted, const Measurement& measured) {
  for (size_t c = 0; c < kNumCategories; ++c) {
    const std::string name(name_of(static_cast<Category>(c)));
    expect_within_2_percent(predicted.memory.peak[c], measured.memory.peak[c], "peak of " + name);
    expect_within_2_percent(predicted.steady[c], measured.steady[c], "steady " + name);
  }
  expect_within_2_percent(predicted.memory.peak_total, measured.memory.peak_total, "peak of all");
  EXPECT_EQ(predicted.memory.host_peak, measured.memory.host_peak);
  EXPECT_EQ(predicted.memory.host, measured.memory.host);
  EXPECT_EQ(predicted.steady_host, measured.steady_host);
  EXPECT_EQ(predicted.steady_file, measured.steady_file);
  expect_within_2_percent(predicted.memory.ram_peak, measured.memory.ram_peak, "peak in RAM");
  EXPECT_EQ(predicted.memory.file, measured.memory.file);
  EXPECT_EQ(predicted.states, measured.states);
  expect_same_traffic(predicted.traffic, measured.traffic);
  ASSERT_EQ(predicted.traffic_by_axes.size(), measured.traffic_by_axes.size());
  for (size_t i = 0; i < measured.traffic_by_axes.size(); ++i) {
    SCOPED_TRACE("along " + measured.traffic_by_axes[i].axes);
    EXPECT_EQ(predicted.traffic_by_axes[i].axes, measured.traffic_by_axes[i].axes);
    expect_same_traffic(predicted.traffic_by_axes[i].traffic, measured.traffic_by_axes[i].traffic);
  }
}

}  // namespace nought::test
