// How often a step makes the host wait for the device: once, for its sums, and once more for each count of the tokens
// that experts got. On the guarded device every wait of the host is counted, for kernels and for collectives.
#include <numeric>
#include <string_view>

#include "support/guarded_context.h"
#include "support/tiny_deepseek.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/train/engine.h"

namespace nought::transfers_test {
namespace {

constexpr int64_t kLength = 8, kVocabulary = 64;
constexpr int kSteps = 3, kMicroBatches = 2;

ModelConfig dense() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"max_position_embeddings", 32}});
}

/// Two layers of experts; `balanced`: with the loss of their routers.
ModelConfig mixtral(bool balanced) {
  return ModelConfig::from_json({{"model_type", "mixtral"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 12},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 2},
                                 {"num_local_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 32},
                                 {"output_router_logits", balanced},
                                 {"router_aux_loss_coef", 0.5}});
}

struct Case {
  std::string_view name = "";
  ModelConfig config = dense();
  OptimizerOptions optimizer = {};
  Fp8Scaling fp8 = Fp8Scaling::none;
  DType dtype = DType::f32;
  RecomputeOptions recompute = {};
  int counts = 0;  // of experts, that a micro-batch brings to the host
};

Batch batch_of(const Context& context, int32_t seed) {
  Batch batch = empty_batch(1, kLength, *context.memory);
  for (int32_t i = 0; i < kLength; ++i) {
    batch.input_ids.data<int32_t>()[i] = (seed * 31 + i * 3) % kVocabulary;
    batch.targets.data<int32_t>()[i] = (seed * 17 + i * 7) % kVocabulary;
  }
  return batch;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> chosen;  // in the last step
  std::vector<int64_t> waits;               // of the first rank, in each step
  int64_t waits_of_evaluation = 0;
};

Result train(const Case& each, int ranks, int stage, bool guarded) {
  Result result;
  run_ranks(test::contexts_of(ranks, guarded), [&](Communicator& group, const Context& context) {
    const auto waits = [&] { return guarded ? test::host_waits(context) : 0; };
    Decoder decoder(each.config, each.recompute, {.scaling = each.fp8, .history = 2});
    ShardedModel model(context, group, decoder,
                       {.policy = Policy::stage(stage),
                        .dtype = each.dtype,
                        .gradient_dtype = each.dtype,
                        .optimizer = each.optimizer});
    model.load(InitialState(3));
    Engine engine(model);
    Result mine;
    for (int32_t step = 0; step < kSteps; ++step) {
      std::vector<Batch> batches;
      for (int32_t i = 0; i < kMicroBatches; ++i)
        batches.push_back(batch_of(context, kMicroBatches * (step * ranks + group.rank()) + i));
      const int64_t before = waits();
      const StepResult done = engine.step(batches, kMicroBatches * ranks * kLength, 1e-2, 1.0);
      mine.waits.push_back(waits() - before);
      mine.losses.push_back(done.loss), mine.norms.push_back(done.grad_norm);
    }
    mine.chosen = decoder.router_loads().chosen;
    const Batch batch = batch_of(context, group.rank());
    const int64_t before = waits();
    mine.losses.push_back(engine.evaluate(std::span(&batch, 1), ranks * kLength));
    mine.waits_of_evaluation = waits() - before;
    if (group.rank() == 0) result = std::move(mine);
  });
  return result;
}

/// What the host waits for, on one rank and on two; the results are those of the CPU to the bit.
void expect_one_transfer_beside_counts(const Case& each) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, stage {}", each.name, ranks, stage));
      const Result guarded = train(each, ranks, stage, true), plain = train(each, ranks, stage, false);
      EXPECT_EQ(guarded.waits, std::vector<int64_t>(kSteps, 1 + kMicroBatches * each.counts));
      EXPECT_EQ(guarded.losses, plain.losses);
      EXPECT_EQ(guarded.norms, plain.norms);
      EXPECT_EQ(guarded.chosen, plain.chosen);
      EXPECT_LT(guarded.waits_of_evaluation, 2 + each.counts);
      for (const std::vector<double>& layer : guarded.chosen)
        EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), 0.0), 2.0 * kMicroBatches * ranks * kLength)
            << "two choices of each token of the step, over all ranks and without those of evaluations";
    }
}

TEST(Transfers, a_step_of_a_dense_model_waits_once_for_all_its_sums) {
  expect_one_transfer_beside_counts({.name = "AdamW"});
  expect_one_transfer_beside_counts(
      {.name = "recomputed, in bf16", .dtype = DType::bf16, .recompute = Recompute::full});
}

TEST(Transfers, norms_of_whole_parameters_stay_on_the_device) {
  expect_one_transfer_beside_counts({.name = "LAMB", .optimizer = {.method = LambOptions{}}});
  expect_one_transfer_beside_counts({.name = "Muon", .optimizer = {.method = MuonOptions{}}});
}

TEST(Transfers, scales_of_fp8_stay_on_the_device_with_and_without_history) {
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current})
    expect_one_transfer_beside_counts({.name = name_of(scaling), .fp8 = scaling, .dtype = DType::bf16});
}

TEST(Transfers, each_layer_of_experts_brings_its_counts_once_in_a_forward_pass_and_nothing_else) {
  expect_one_transfer_beside_counts({.name = "experts", .config = mixtral(false), .counts = 2});
  expect_one_transfer_beside_counts({.name = "loss of routers", .config = mixtral(true), .counts = 2});
  expect_one_transfer_beside_counts(
      {.name = "selection bias", .config = test::tiny_deepseek(kVocabulary), .counts = 1});
  expect_one_transfer_beside_counts({.name = "two forward passes",
                                     .config = mixtral(true),
                                     .fp8 = Fp8Scaling::delayed,
                                     .dtype = DType::bf16,
                                     .recompute = Recompute::full,
                                     .counts = 4});
}

}  // namespace
}  // namespace nought::transfers_test
