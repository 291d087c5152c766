// What is predicted is what happens: peaks by category, steady state and traffic of real steps on thread ranks.
#include <cmath>
#include <mutex>

#include "support/schedules.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/plan/predict.h"
#include "nought/train/engine.h"
#include "nought/train/text_sample.h"

namespace nought {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// Large enough that parameters, gradients, optimizer, activations and workspace pass 1 MiB on every one of two ranks.
ModelConfig model_of(const std::string& family) {
  if (family == "gpt2")
    return ModelConfig::from_json({{"model_type", "gpt2"},
                                   {"vocab_size", 2048},
                                   {"n_embd", 256},
                                   {"n_layer", 3},
                                   {"n_head", 4},
                                   {"n_positions", 128}});
  if (family == "mixtral")
    return ModelConfig::from_json({{"model_type", "mixtral"},
                                   {"vocab_size", 2048},
                                   {"hidden_size", 256},
                                   {"intermediate_size", 256},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"num_local_experts", 4},
                                   {"num_experts_per_tok", 2},
                                   {"max_position_embeddings", 128}});
  if (family == "deepseek_v2")
    return ModelConfig::from_json({{"model_type", "deepseek_v2"},
                                   {"vocab_size", 2048},
                                   {"hidden_size", 256},
                                   {"intermediate_size", 512},
                                   {"moe_intermediate_size", 128},
                                   {"num_hidden_layers", 3},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 4},
                                   {"kv_lora_rank", 64},
                                   {"q_lora_rank", 96},
                                   {"qk_rope_head_dim", 16},
                                   {"qk_nope_head_dim", 32},
                                   {"v_head_dim", 32},
                                   {"n_routed_experts", 4},
                                   {"n_shared_experts", 1},
                                   {"num_experts_per_tok", 2},
                                   {"first_k_dense_replace", 1},
                                   {"max_position_embeddings", 128}});
  return ModelConfig::from_json({{"model_type", family},
                                 {"vocab_size", 2048},
                                 {"hidden_size", 256},
                                 {"intermediate_size", 688},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 128},
                                 {"tie_word_embeddings", family == "qwen2"}});
}

struct Measurement {
  std::array<int64_t, kNumCategories> steady{};
  RankMemory memory;
  Traffic traffic;
  int64_t late_allocations = 0;  // by the system, after the second step
};

Measurement measure(const ModelConfig& config, const Layout& layout, bool documents = false) {
  Measurement result;
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    const Mesh mesh(ranks, layout.grid());
    Decoder decoder(config, layout.recompute, layout.fp8, ModelRanks(mesh, layout.sequence_parallel));
    apply(layout.freezing, decoder);
    ShardedModel::Options options = layout.sharding;
    options.policy = Policy::stage(layout.zero_stage);
    ShardedModel model(context, mesh, decoder, options);
    Engine engine(model);
    engine.set_schedule(layout.schedule);
    Traffic before;
    int64_t asked = 0;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) asked = context.memory->system_allocations();
      before = mesh.traffic();
      std::vector<Batch> batches;
      for (int64_t i = 0; i < layout.accumulation; ++i) {
        batches.push_back(empty_batch(layout.micro_batch, layout.seq_length, *context.memory));
        context.zero(batches.back().input_ids), context.zero(batches.back().targets);
        if (documents) batches.back().document_starts.assign(static_cast<size_t>(layout.micro_batch), {0, 17, 100});
      }
      engine.step(batches, layout.tokens_per_step(), 1e-3, 1);
    }
    const Traffic after = mesh.traffic();
    if (layout.evaluation_rows > 0) {
      const Batch rows = empty_batch(layout.evaluation_rows, layout.seq_length, *context.memory);
      context.zero(rows.input_ids), context.zero(rows.targets);
      engine.evaluate(std::span(&rows, 1), 1);
    }
    const int64_t before_saving = context.memory->system_allocations();
    for (size_t unit = 0; layout.tensor_ranks > 1 && unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [](const Parameter&, const Tensor&) {});
    asked += context.memory->system_allocations() - before_saving;  // no part of a step
    if (layout.sample_prompt > 0)
      continue_prompt(model, decoder, *make_tokenizer("bytes"),
                      {.prompt = std::string(static_cast<size_t>(layout.sample_prompt), 'a'),
                       .max_new_tokens = layout.sample_new_tokens});
    model.settle();
    if (ranks.rank() != 0) return;
    const MemoryLedger& ledger = context.memory->ledger();
    for (size_t c = 0; c < kNumCategories; ++c) result.steady[c] = ledger.current(static_cast<Category>(c));
    result.memory = peaks_of(*context.memory);
    result.late_allocations = context.memory->system_allocations() - asked;
    for (size_t c = 0; c < kNumCollectives; ++c)
      result.traffic.counts[c] = {after.counts[c].bytes - before.counts[c].bytes,
                                  after.counts[c].elements - before.counts[c].elements,
                                  after.counts[c].calls - before.counts[c].calls};
  });
  return result;
}

void expect_within_2_percent(int64_t predicted, int64_t measured, std::string_view what) {
  if (std::max(predicted, measured) < kMiB) return;
  EXPECT_LE(std::abs(static_cast<double>(predicted - measured)), 0.02 * static_cast<double>(measured))
      << what << ": predicted " << predicted << ", measured " << measured;
}

void expect_agreement(const Prediction& predicted, const Measurement& measured) {
  for (size_t c = 0; c < kNumCategories; ++c) {
    const std::string name(name_of(static_cast<Category>(c)));
    expect_within_2_percent(predicted.memory.peak[c], measured.memory.peak[c], "peak of " + name);
    expect_within_2_percent(predicted.steady[c], measured.steady[c], "steady " + name);
  }
  expect_within_2_percent(predicted.memory.peak_total, measured.memory.peak_total, "peak of all");
  EXPECT_EQ(predicted.memory.host_peak, measured.memory.host_peak);
  for (size_t c = 0; c < kNumCollectives; ++c) {
    SCOPED_TRACE(name_of(static_cast<Collective>(c)));
    EXPECT_EQ(predicted.traffic.counts[c].bytes, measured.traffic.counts[c].bytes);
    EXPECT_EQ(predicted.traffic.counts[c].elements, measured.traffic.counts[c].elements);
    EXPECT_EQ(predicted.traffic.counts[c].calls, measured.traffic.counts[c].calls);
  }
}

struct Combination {
  std::string family;
  int ranks, stage;
  DType dtype;
  RecomputeOptions recompute;
  bool overlap;
  int64_t accumulation;
  DType wire;  // of gradients
  bool masters;
  int64_t bucket;
};

/// Stages x ranks x recompute in full; family, dtype, overlap and accumulation take turns.
std::vector<Combination> combinations() {
  std::vector<Combination> all;
  const std::array<std::string, 5> families{"llama", "gpt2", "mixtral", "qwen2", "deepseek_v2"};
  RecomputeOptions grouped = Recompute::full, hosted = Recompute::full;
  grouped.checkpoints = 2, grouped.contiguous = true;
  hosted.pool = Pool::host;
  int i = 0;
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const RecomputeOptions& recompute :
           {RecomputeOptions(Recompute::none), RecomputeOptions(Recompute::selective),
            RecomputeOptions(Recompute::full), grouped, hosted}) {
        if (ranks == 1 && stage > 1) continue;
        all.push_back({families[static_cast<size_t>(i % 7 % 5)], ranks, stage, (i / 2) % 2 ? DType::bf16 : DType::f32,
                       recompute, i % 5 < 3, 1 + (i / 3) % 2,
                       i % 4 == 3    ? DType::f32
                       : (i / 2) % 2 ? DType::bf16
                                     : DType::f32,
                       (i / 2) % 2 == 0 || i % 3 != 0, std::array<int64_t, 4>{0, 1'200'000, 0, 500'000'000}[i % 4]});
        ++i;
      }
  return all;
}

TEST(Agreement, predicted_and_measured_peaks_agree_within_2_percent) {
  const std::vector<Combination> all = combinations();
  ASSERT_GE(all.size(), 70u);
  std::array<int, kNumCategories> checked{};
  for (const Combination& each : all) {
    const Layout layout{.ranks = each.ranks,
                        .zero_stage = each.stage,
                        .micro_batch = 2,
                        .seq_length = 128,
                        .accumulation = each.accumulation,
                        .recompute = each.recompute,
                        .fp8 = {.scaling = each.dtype == DType::bf16 && each.wire == DType::f32 ? Fp8Scaling::delayed
                                                                                                : Fp8Scaling::none},
                        .sharding = {.dtype = each.dtype,
                                     .gradient_dtype = each.dtype,
                                     .overlap = each.overlap,
                                     .optimizer = {.state_dtype = each.masters ? DType::f32 : DType::bf16,
                                                   .master_weights = each.masters},
                                     .wire_dtype = each.wire,
                                     .reduce_bucket = each.bucket,
                                     .gather_bucket = each.bucket},
                        .wire = Wire::threads};
    SCOPED_TRACE(fmt::format("{} on {} ranks in {}, {}, overlap {}, buckets of {}", each.family, each.ranks,
                             name_of(each.dtype), layout.str(), each.overlap, each.bucket));
    const ModelConfig config = model_of(each.family);
    const Prediction predicted = predict(config, layout);
    const Measurement measured = measure(config, layout);
    expect_agreement(predicted, measured);
    EXPECT_EQ(measured.late_allocations, 0);
    EXPECT_EQ(measured.memory.fragmentation, 0);
    for (size_t c = 0; c < kNumCategories; ++c) checked[c] += predicted.memory.peak[c] >= kMiB;
  }
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations, Category::workspace})
    EXPECT_GE(checked[static_cast<size_t>(category)], 20) << name_of(category) << " is too small to say anything";
}

TEST(Agreement, holds_with_frozen_parameters) {
  const Freezing head{{"."}, {"lm_head|wte"}}, norms{{"."}, {"norm|ln_"}}, bottom{{"layers\\.0\\.|h\\.0\\."}, {}};
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const Freezing& freezing : {head, norms, bottom}) {
      const char* family = std::array{"llama", "gpt2", "mixtral", "deepseek_v2"}[(i + stage) % 4];
      RecomputeOptions recompute = std::array{Recompute::none, Recompute::selective, Recompute::full}[i % 3];
      if (i % 6 == 5) recompute.checkpoints = 2, recompute.contiguous = true;
      const Layout layout{.ranks = 2 + i % 2,
                          .zero_stage = stage,
                          .micro_batch = 2,
                          .seq_length = 128,
                          .accumulation = 1 + i % 2,
                          .recompute = recompute,
                          .freezing = freezing,
                          .sharding = {.dtype = DType::bf16,
                                       .gradient_dtype = DType::bf16,
                                       .overlap = i % 5 < 3,
                                       .reduce_bucket = i % 4 == 1 ? 1'200'000 : 0,
                                       .gather_bucket = i % 4 == 1 ? 1'200'000 : 0},
                          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{}, freeze {}, {}", family, freezing.freeze[0], layout.str()));
      const ModelConfig config = model_of(family);
      const Prediction predicted = predict(config, layout);
      const Measurement measured = measure(config, layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      EXPECT_GT(predicted.frozen, 0);
      EXPECT_LT(predicted.executed_flops, predict(config,
                                                  [&] {
                                                    Layout all = layout;
                                                    all.freezing = {};
                                                    return all;
                                                  }())
                                              .executed_flops);
      ++i;
    }
}

TEST(Agreement, holds_with_several_micro_batches_in_flight) {
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const auto& [in_flight, accumulation] : {std::pair(2, 5), {4, 4}}) {
      const char* family = std::array{"llama", "mixtral", "qwen2"}[i % 3];
      RecomputeOptions recompute = std::array{Recompute::none, Recompute::selective, Recompute::full}[(i + i / 3) % 3];
      recompute.contiguous = i % 2 == 0;
      const bool deferred = i % 4 == 3;
      const Layout layout{
          .ranks = 2,
          .zero_stage = stage,
          .micro_batch = 1,
          .seq_length = 128,
          .accumulation = accumulation,
          .recompute = recompute,
          .sharding = {.overlap = i % 3 < 2},
          .wire = Wire::threads,
          .schedule = [=, in_flight = in_flight](int64_t n) { return test::staggered(n, in_flight, deferred); }};
      SCOPED_TRACE(fmt::format("{}, {}, {}", family, layout.str(), layout.schedule(accumulation).str()));
      const ModelConfig config = model_of(family);
      const Prediction predicted = predict(config, layout);
      const Measurement measured = measure(config, layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      EXPECT_EQ(predicted.in_flight, in_flight);
      Layout plain = layout;
      plain.schedule = plain_schedule;
      const Prediction one = predict(config, plain);
      EXPECT_EQ(one.in_flight, 1);
      const auto activations = static_cast<size_t>(Category::activations);
      EXPECT_GT(predicted.memory.peak[activations], one.memory.peak[activations]);
      ++i;
    }
}

TEST(Agreement, holds_for_experts_latent_attention_and_factors_of_8_bits_that_ranks_share) {
  int i = 0;
  for (const char* family : {"mixtral", "deepseek_v2", "olmo2"})
    for (const auto& [ranks, tensor, stage] : {std::tuple(2, 2, 0), {4, 2, 3}, {4, 4, 0}}) {
      const Layout layout{
          .ranks = ranks,
          .zero_stage = stage,
          .tensor_ranks = tensor,
          .micro_batch = 2,
          .seq_length = 128,
          .recompute = std::array{Recompute::none, Recompute::full}[i % 2],
          .fp8 = {.scaling = std::array{Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}[i % 3]},
          .sharding = {.dtype = DType::bf16},
          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, tensor, ranks, layout.str()));
      const Measurement measured = measure(model_of(family), layout);
      expect_agreement(predict(model_of(family), layout), measured);
      EXPECT_EQ(measured.late_allocations, 0);
      ++i;
    }
}

TEST(Agreement, holds_with_samples_of_text) {
  for (const auto& [family, stage, prompt] : {std::tuple("llama", 0, 5), {"llama", 3, 200}, {"gpt2", 0, 100}}) {
    const Layout layout{.ranks = 1 + stage / 3,
                        .zero_stage = stage,
                        .micro_batch = 1,
                        .seq_length = 16,
                        .wire = Wire::threads,
                        .sample_prompt = prompt,
                        .sample_new_tokens = 400};
    SCOPED_TRACE(fmt::format("{}, {}, a prompt of {}", family, layout.str(), prompt));
    const ModelConfig config = model_of(family);
    const Prediction predicted = predict(config, layout);
    expect_agreement(predicted, measure(config, layout));
    Layout silent = layout;
    silent.sample_prompt = 0;
    if (stage == 0) {  // at stage 3 a step needs more than a sample
      EXPECT_GT(predicted.memory.peak_total, predict(config, silent).memory.peak_total);
    }
    EXPECT_GT(predicted.memory.peak[static_cast<size_t>(Category::kv_cache)], 100'000);
  }
}

TEST(Agreement, holds_for_ranks_that_share_matrices) {
  int i = 0;
  for (const char* family : {"llama", "qwen2", "gpt2"})
    for (const auto& [ranks, tensor, stage] :
         {std::tuple(2, 2, 0), {4, 2, 0}, {4, 2, 1}, {4, 2, 2}, {4, 2, 3}, {4, 4, 0}}) {
      const Layout layout{.ranks = ranks,
                          .zero_stage = stage,
                          .tensor_ranks = tensor,
                          .micro_batch = 2,
                          .seq_length = 128,
                          .accumulation = 1 + i % 2,
                          .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                          .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, tensor, ranks, layout.str()));
      const Prediction predicted = predict(model_of(family), layout);
      const Measurement measured = measure(model_of(family), layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      ++i;
    }
}

/// Volumes of arXiv 1909.08053: sums over the ranks of each layer's two results, and of the gradients of their inputs.
TEST(Agreement, traffic_along_the_tensor_axis_is_the_formula) {
  const ModelConfig config = model_of("llama");  // two ranks share no key/value head
  const Layout layout{.ranks = 4,
                      .zero_stage = 0,
                      .tensor_ranks = 2,
                      .micro_batch = 3,
                      .seq_length = 64,
                      .accumulation = 2,
                      .wire = Wire::threads};
  const Prediction predicted = predict(config, layout);
  const auto along = [&](const std::string& axes) {
    for (const Mesh::GroupTraffic& group : predicted.traffic_by_axes)
      if (group.axes == axes) return group.traffic;
    ADD_FAILURE() << "nothing along " << axes;
    return Traffic{};
  };
  const int64_t tokens = 3 * 64, micro_batches = 2;
  // An all-reduce of N elements over 2 ranks sends N. Of each layer 4, and those of the lookup and of the head's input;
  // the sum of the losses is one element.
  const Traffic tensor = along("tensor");
  EXPECT_EQ(tensor[Collective::all_reduce].elements,
            micro_batches * ((4 * config.num_layers + 2) * tokens * config.hidden_size + 1));
  // Each token's logarithm of a sum of exponentials.
  EXPECT_EQ(tensor[Collective::all_gather].elements, micro_batches * tokens);
  EXPECT_EQ(tensor.total_elements(), tensor[Collective::all_reduce].elements + tensor[Collective::all_gather].elements);
  // Gradients travel between the two ranks that read different samples: half a model and the norms.
  EXPECT_LT(along("shard").total_elements(), 0.51 * 2 * static_cast<double>(predicted.parameters));
  EXPECT_GT(along("shard").total_elements(), 0.49 * 2 * static_cast<double>(predicted.parameters) / 2);
}

/// Every token chooses every expert: the balance that a prediction assumes.
ModelConfig balanced_model(const std::string& family) {
  ModelConfig config = model_of(family);
  config.experts->rule.top_k = config.experts->num_experts;
  return config;
}

TEST(Agreement, holds_for_ranks_that_hold_different_experts) {
  int i = 0;
  for (const char* family : {"mixtral", "deepseek_v2"})
    for (const auto& [ranks, experts, tensor, stage] :
         {std::tuple(2, 2, 1, 0), {4, 2, 1, 1}, {4, 2, 1, 2}, {4, 2, 1, 3}, {4, 4, 1, 3}, {4, 2, 2, 0}}) {
      const Layout layout{.ranks = ranks,
                          .zero_stage = stage,
                          .tensor_ranks = tensor,
                          .expert_ranks = experts,
                          .micro_batch = 2,
                          .seq_length = 128,
                          .accumulation = 1 + i % 2,
                          .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                          .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                          .wire = Wire::threads,
                          .evaluation_rows = i % 4 == 0 ? 3 : 0};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, experts, ranks, layout.str()));
      const Prediction predicted = predict(balanced_model(family), layout);
      const Measurement measured = measure(balanced_model(family), layout);
      expect_agreement(predicted, measured);
      EXPECT_TRUE(measured.late_allocations == 0 || layout.evaluation_rows > 0) << measured.late_allocations;
      ++i;
    }
}

/// Volumes of dispatch and combine: (e - 1) / e of T k rows there and back, in both passes.
TEST(Agreement, traffic_along_the_expert_axis_is_the_formula) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    ModelConfig config = model_of("mixtral");
    config.experts->rule.top_k = 3;  // of 4 experts, which the prediction takes to be chosen alike
    const Layout layout{.ranks = 4,
                        .zero_stage = 0,
                        .expert_ranks = 2,
                        .micro_batch = 3,
                        .seq_length = 64,
                        .accumulation = 2,
                        .recompute = recompute,
                        .wire = Wire::threads};
    const Prediction predicted = predict(config, layout);
    const auto along = std::find_if(predicted.traffic_by_axes.begin(), predicted.traffic_by_axes.end(),
                                    [](const Mesh::GroupTraffic& group) { return group.axes == "expert"; });
    ASSERT_NE(along, predicted.traffic_by_axes.end());
    const int64_t passes = layout.accumulation * config.num_layers, rows = 3 * 64 * 3 / 2;
    const int64_t exchanges = recompute == Recompute::full ? 6 : 4;
    // Beside the gradients of the experts' results travel the weights of the choices, and their gradients come back.
    EXPECT_EQ(along->traffic[Collective::all_to_all_v].elements, passes * rows * (exchanges * config.hidden_size + 2));
    EXPECT_EQ(along->traffic[Collective::all_gather].elements,
              passes * (recompute == Recompute::full ? 2 : 1) * config.experts->num_experts);
  }
}

TEST(Agreement, holds_for_experts_with_a_capacity_packed_documents_and_validations) {
  for (const int stage : {0, 2, 3}) {
    const Layout layout{.ranks = 2,
                        .zero_stage = stage,
                        .micro_batch = 2,
                        .seq_length = 128,
                        .recompute = stage == 2 ? Recompute::full : Recompute::none,
                        .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
                        .wire = Wire::threads,
                        .evaluation_rows = 12};
    SCOPED_TRACE(layout.str());
    expect_agreement(predict(model_of("llama"), layout), measure(model_of("llama"), layout, /*documents=*/true));
    ModelConfig mixtral = model_of("mixtral");
    mixtral.experts->capacity_factor = 1.25;
    mixtral.experts->drop_tokens = false;
    expect_agreement(predict(mixtral, layout), measure(mixtral, layout));
    // What is dropped takes no memory; how much that is only the data says. All tokens here choose the same experts.
    mixtral.experts->drop_tokens = true;
    const Prediction all_kept = predict(mixtral, layout);
    const Measurement some_dropped = measure(mixtral, layout);
    for (size_t c = 0; c < kNumCategories; ++c)
      EXPECT_GE(all_kept.memory.peak[c], some_dropped.memory.peak[c]) << name_of(static_cast<Category>(c));
    EXPECT_GT(all_kept.memory.peak_total, some_dropped.memory.peak_total);
  }
}

}  // namespace
}  // namespace nought
