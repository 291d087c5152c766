// What is predicted for ranks that share matrices, slice tokens and hold different experts is what happens, and what
// they send is the formula of the literature.
#include "support/agreement.h"
#include "support/formulas.h"
#include "support/schedules.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::mesh_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::AxisTraffic;
using test::between_replicas_traffic;
using test::expect_agreement;
using test::inside_replica_traffic;
using test::measure;
using test::Measurement;
using test::model_of;
using test::ShardedReplicas;
using test::shared_layers_traffic;
using test::spread_experts_traffic;

/// The ledger and the counters of a run say what was predicted of it, and nothing is allocated late.
void expect_plan_to_hold(const ModelConfig& config, const Layout& layout) {
  const Measurement measured = measure(config, layout);
  expect_agreement(predict(config, layout), measured);
  EXPECT_EQ(measured.late_allocations, 0);
}

TEST(MeshAgreement, holds_for_ranks_that_share_matrices) {
  int i = 0, turn = 0;
  for (const char* family : {"llama", "qwen2", "gpt2"})
    for (const auto& [ranks, tensor, stage] :
         {std::tuple(2, 2, 0), {4, 2, 0}, {4, 2, 1}, {4, 2, 2}, {4, 2, 3}, {4, 4, 0}}) {
      if (turn++ % 5 % 3 == 2 || turn % 7 == 0) continue;  // every family and every mesh, but not each by each
      const Layout layout{.ranks = ranks,
                          .zero_stage = stage,
                          .tensor_ranks = tensor,
                          .micro_batch = 2,
                          .seq_length = 64,
                          .accumulation = 1 + i % 2,
                          .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                          .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, tensor, ranks, layout.str()));
      expect_plan_to_hold(model_of(family), layout);
      ++i;
    }
}

NOUGHT_SIZE(long);
TEST(MeshAgreement, holds_for_ranks_that_have_slices_of_the_tokens) {
  int i = 0;
  for (const char* family : {"llama", "qwen2", "gpt2"})
    for (const auto& [ranks, tensor, stage] : {std::tuple(2, 2, 0), {4, 2, 3 - i / 3}, {4, 4, 0}}) {
      const bool staggers = i % 3 == 2;
      const Layout layout{
          .ranks = ranks,
          .zero_stage = stage,
          .tensor_ranks = tensor,
          .sequence_parallel = true,
          .micro_batch = i % 2 == 0 ? 2 : 3,
          .seq_length = i % 2 == 0 ? 64 : 63,  // 189 tokens: the last slice has padding
          .accumulation = 1 + i % 3,
          .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[(i + i / 3) % 3],
          .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
          .wire = Wire::threads,
          .schedule = staggers ? [](int64_t n) { return test::staggered(n, 2, /*deferred=*/true); } : plain_schedule};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, tensor, ranks, layout.str()));
      expect_plan_to_hold(model_of(family), layout);
      ++i;
    }
}

TEST(MeshAgreement, holds_for_experts_latent_attention_and_factors_of_8_bits_that_ranks_share) {
  int i = 0;
  for (const char* family : {"mixtral", "deepseek_v2", "olmo2"})
    for (const auto& [ranks, tensor, stage] : {std::tuple(2, 2, 0), {4, 2, 3}, {4, 4, 0}}) {
      const Layout layout{
          .ranks = ranks,
          .zero_stage = stage,
          .tensor_ranks = tensor,
          .micro_batch = 2,
          .seq_length = 64,
          .recompute = std::array{Recompute::none, Recompute::full}[i % 2],
          .fp8 = {.scaling = std::array{Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}[i % 3]},
          .sharding = {.dtype = DType::bf16},
          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{}, {} of {} ranks, {}", family, tensor, ranks, layout.str()));
      expect_plan_to_hold(model_of(family), layout);
      ++i;
    }
}

Traffic along(const std::string& axes, const Prediction& predicted) {
  for (const Mesh::GroupTraffic& group : predicted.traffic_by_axes)
    if (group.axes == axes) return group.traffic;
  ADD_FAILURE() << "nothing along " << axes;
  return {};
}

TEST(MeshAgreement, holds_for_ranks_that_share_out_the_inputs_of_blocks) {
  for (const auto& [ranks, tensor, stage] : {std::tuple(2, 2, 0), {4, 2, 2}, {4, 4, 0}}) {
    Layout layout{.ranks = ranks,
                  .zero_stage = stage,
                  .tensor_ranks = tensor,
                  .micro_batch = 2,
                  .seq_length = 64,
                  .recompute = Recompute::full,
                  .wire = Wire::threads};
    SCOPED_TRACE(layout.str());
    const ModelConfig config = model_of("llama");
    const Prediction whole = predict(config, layout);
    layout.recompute.partitioned = true;
    expect_plan_to_hold(config, layout);
    const Prediction parts = predict(config, layout);
    const int64_t input = 2 * 64 * config.hidden_size * 4, inputs = config.num_layers * input;
    const auto activations = static_cast<size_t>(Category::activations);
    // While the first block that the walk back meets is computed again, its own input is there as a whole.
    EXPECT_EQ(whole.memory.peak[activations] - parts.memory.peak[activations], inputs - inputs / tensor - input);
    EXPECT_EQ(along("tensor", parts)[Collective::all_gather].elements -
                  along("tensor", whole)[Collective::all_gather].elements,
              (tensor - 1) * inputs / 4 / tensor);
  }
}

TEST(MeshAgreement, traffic_along_the_tensor_axis_is_the_formula) {
  for (const int tensor : {2, 4})
    for (const bool slices : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        SCOPED_TRACE(fmt::format("{} ranks, slices {}, {}", tensor, slices, name_of(recompute)));
        ModelConfig config = model_of("llama");
        config.num_kv_heads = 4;  // ranks share none
        const Layout layout{.ranks = 2 * tensor,
                            .zero_stage = 0,
                            .tensor_ranks = tensor,
                            .sequence_parallel = slices,
                            .micro_batch = 3,
                            .seq_length = slices ? 63 : 64,  // the last slice has padding
                            .accumulation = 2,
                            .recompute = recompute,
                            .wire = Wire::threads};
        const AxisTraffic formula = shared_layers_traffic({.ranks = tensor,
                                                           .tokens = 3 * layout.seq_length,
                                                           .hidden = config.hidden_size,
                                                           .layers = config.num_layers,
                                                           .slices = slices,
                                                           .recomputes = recompute == Recompute::full});
        const Prediction predicted = predict(config, layout);
        const Traffic sent = along("tensor", predicted);
        // Each rank has a part of the gradients of norms, if it sees a slice of the tokens: they are summed once.
        const int64_t norms = slices ? (2 * config.num_layers + 1) * config.hidden_size : 0;
        EXPECT_EQ(sent[Collective::all_reduce].elements, 2 * formula.all_reduce + 2 * norms / tensor * (tensor - 1));
        EXPECT_EQ(sent[Collective::all_gather].elements, 2 * formula.all_gather);
        EXPECT_EQ(sent[Collective::reduce_scatter].elements, 2 * formula.reduce_scatter);
        EXPECT_EQ(sent.total_elements(), sent[Collective::all_reduce].elements + sent[Collective::all_gather].elements +
                                             sent[Collective::reduce_scatter].elements);
        // Gradients travel between the two ranks that read different samples: a rank's part of the model, and the
        // norms.
        const double part = static_cast<double>(predicted.parameters) / tensor;
        EXPECT_NEAR(static_cast<double>(along("shard", predicted).total_elements()), part, 0.02 * part);
      }
}

/// A model whose tokens choose every expert, so that the choices are balanced, as the dry run takes them to be.
ModelConfig balanced(const std::string& family) {
  ModelConfig config = model_of(family);
  config.experts->rule.top_k = config.experts->num_experts;
  return config;
}

TEST(MeshAgreement, holds_for_ranks_that_hold_different_experts) {
  int i = 0, turn = 0;
  for (const char* family : {"mixtral", "deepseek_v2", "gpt_oss"})
    for (const auto& [ranks, tensor, expert, stage] :
         {std::tuple(2, 1, 2, 0), {4, 1, 2, 3}, {4, 1, 4, 2}, {4, 2, 2, 1}, {4, 2, 2, 3}}) {
      if (turn++ % 2 != 0) continue;  // every family and every mesh, but not each by each
      const Layout layout{.ranks = ranks,
                          .zero_stage = stage,
                          .tensor_ranks = tensor,
                          .expert_ranks = expert,
                          .sequence_parallel = tensor > 1 && stage == 3,
                          .micro_batch = 2,
                          .seq_length = 64,
                          .accumulation = 1 + i % 2,
                          .recompute = std::array{Recompute::none, Recompute::full, Recompute::selective}[i % 3],
                          .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                          .wire = Wire::threads,
                          .evaluation_rows = i % 4 == 0 ? 3 : 0};
      SCOPED_TRACE(
          fmt::format("{}, tensor {} x expert {} of {} ranks, {}", family, tensor, expert, ranks, layout.str()));
      const Prediction predicted = predict(balanced(family), layout);
      const Measurement measured = measure(balanced(family), layout);
      expect_agreement(predicted, measured);
      EXPECT_TRUE(measured.late_allocations == 0 || layout.evaluation_rows > 0) << measured.late_allocations;
      ++i;
    }
}

TEST(MeshAgreement, traffic_along_the_expert_axis_is_the_formula) {
  ModelConfig config = model_of("mixtral");
  config.experts->rule.top_k = 3;  // of 4 experts, which the prediction takes to be chosen alike
  for (const Recompute recompute : {Recompute::none, Recompute::full})
    for (const int tensor : {1, 2}) {
      const Layout layout{.ranks = 4 * tensor,
                          .tensor_ranks = tensor,
                          .expert_ranks = 2,
                          .micro_batch = 3,
                          .seq_length = 64,
                          .accumulation = 2,
                          .recompute = recompute,
                          .wire = Wire::threads};
      const AxisTraffic formula = spread_experts_traffic({.ranks = 2,
                                                          .tokens = 3 * 64,
                                                          .hidden = config.hidden_size,
                                                          .experts = config.experts->num_experts,
                                                          .top_k = config.experts->rule.top_k,
                                                          .layers = config.num_layers,
                                                          .recomputes = recompute == Recompute::full});
      const Traffic sent = along("expert", predict(config, layout));
      EXPECT_EQ(sent[Collective::all_to_all_v].elements, 2 * formula.all_to_all_v);
      EXPECT_EQ(sent[Collective::all_gather].elements, 2 * formula.all_gather);
      EXPECT_EQ(sent.total_elements(), 2 * (formula.all_to_all_v + formula.all_gather));
    }
}

TEST(MeshAgreement, holds_for_replicas_of_a_sharded_model) {
  int i = 0;
  for (const auto& [ranks, replicas, tensor, stage] :
       {std::tuple(4, 2, 1, 0), {4, 2, 1, 1}, {4, 2, 1, 2}, {4, 2, 1, 3}, {4, 4, 1, 3}, {8, 2, 2, 3}}) {
    Layout layout{.ranks = ranks,
                  .zero_stage = stage,
                  .replicas = replicas,
                  .tensor_ranks = tensor,
                  .micro_batch = 2,
                  .seq_length = 64,
                  .accumulation = 1 + i % 3,
                  .recompute = std::array{Recompute::none, Recompute::full}[i % 2],
                  .sharding = {.dtype = i % 2 == 0 ? DType::bf16 : DType::f32},
                  .wire = Wire::threads};
    if (i % 4 > 1) layout.sharding.wire_dtype = DType::bf16;
    if (i % 3 == 1) layout.sharding.reduce_bucket = 500'000;
    SCOPED_TRACE(fmt::format("{} replicas on {} ranks, {}", replicas, ranks, layout.str()));
    expect_plan_to_hold(model_of("qwen2"), layout);
    ++i;
  }
}

TEST(MeshAgreement, holds_for_replicas_whose_ranks_hold_different_experts) {
  for (const int stage : {1, 3}) {
    const Layout layout{.ranks = 4,
                        .zero_stage = stage,
                        .replicas = 2,
                        .expert_ranks = 2,
                        .micro_batch = 2,
                        .seq_length = 64,
                        .accumulation = 2,
                        .sharding = {.dtype = DType::bf16},
                        .wire = Wire::threads};
    SCOPED_TRACE(layout.str());
    expect_plan_to_hold(balanced("mixtral"), layout);
  }
}

NOUGHT_SIZE(long);
TEST(MeshAgreement, holds_for_parameters_that_are_gathered_by_hosts) {
  for (const int replicas : {1, 2}) {
    const Layout layout{.ranks = 4 * replicas,
                        .zero_stage = 3,
                        .replicas = replicas,
                        .host_ranks = 2,
                        .micro_batch = 2,
                        .seq_length = 64,
                        .accumulation = 2,
                        .wire = Wire::threads};
    expect_plan_to_hold(model_of("llama"), layout);
    const Prediction predicted = predict(model_of("llama"), layout);
    // Each rank sends its shard to the other host, and then two ranks' shards of both hosts inside.
    const int64_t between = along("shard, between hosts", predicted)[Collective::all_gather].elements;
    EXPECT_EQ(between, 2 * 2 * predicted.parameters / 4);
    EXPECT_EQ(along("shard, inside hosts", predicted)[Collective::all_gather].elements, 2 * between);
  }
}

/// The sizes of all segments divide by the ranks: nothing is padding.
TEST(MeshAgreement, traffic_inside_replicas_and_between_them_is_the_formula) {
  for (const auto& [shards, replicas] : {std::pair(2, 2), {4, 2}, {2, 4}, {1, 4}, {4, 1}})
    for (const int64_t accumulation : {1, 3}) {
      const Layout layout{.ranks = shards * replicas,
                          .zero_stage = 3,
                          .replicas = replicas,
                          .seq_length = 64,
                          .accumulation = accumulation,
                          .wire = Wire::threads};
      SCOPED_TRACE(fmt::format("{} shards, {} replicas, {} micro-batches", shards, replicas, accumulation));
      const Prediction predicted = predict(model_of("llama"), layout);
      const ShardedReplicas of{
          .shards = shards, .replicas = replicas, .parameters = predicted.parameters, .micro_batches = accumulation};
      if (replicas > 1 && shards > 1) {
        const Traffic between = along("replicate", predicted);
        EXPECT_EQ(between[Collective::all_reduce].elements, between_replicas_traffic(of).all_reduce);
        EXPECT_EQ(between.total_elements(), between[Collective::all_reduce].elements);
        const Traffic inside = along("shard", predicted);
        EXPECT_EQ(inside[Collective::all_gather].elements, inside_replica_traffic(of).all_gather);
        EXPECT_EQ(inside[Collective::reduce_scatter].elements, inside_replica_traffic(of).reduce_scatter);
        EXPECT_EQ(inside.total_elements(),
                  inside[Collective::all_gather].elements + inside[Collective::reduce_scatter].elements);
      } else {
        // One group of all ranks, in which the sums of the losses and of the norm go, too: less than a thousand
        // numbers.
        const int64_t others = predicted.traffic.total_elements() - inside_replica_traffic(of).all_gather -
                               inside_replica_traffic(of).reduce_scatter - between_replicas_traffic(of).all_reduce;
        EXPECT_TRUE(0 <= others && others < 1000) << others;
      }
    }
}

}  // namespace
}  // namespace nought::mesh_agreement_test
