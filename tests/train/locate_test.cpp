// A value that is not finite is named by rank, Unit, pass, operation and step, alike on every rank, at every stage.
#include "nought/train/locate.h"

#include <limits>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/kernels/watch.h"
#include "nought/models/decoder.h"
#include "nought/train/engine.h"

namespace nought::locate_test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kRanks = 2;
constexpr int64_t kLength = 8, kVocabulary = 32;

ModelConfig tiny() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 2},
                                 {"max_position_embeddings", 16}});
}

/// Every layer has four experts, of which a token takes two.
ModelConfig tiny_experts() {
  return ModelConfig::from_json({{"model_type", "qwen3_moe"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"moe_intermediate_size", 12},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 8},
                                 {"num_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 16}});
}

Batch batch_of(const Context& context) {
  Batch batch{context.empty({1, kLength}, DType::i32), context.empty({1, kLength}, DType::i32)};
  for (int32_t t = 0; t < kLength; ++t)
    batch.input_ids.data<int32_t>()[t] = t, batch.targets.data<int32_t>()[t] = t + 1;
  return batch;
}

/// Turns one element of a result into infinity whenever the operation runs.
Context poisoned(const Context& context, std::string operation, std::string poisoned_result) {
  return {context.memory,
          make_watching_kernels(context.kernels,
                                [=](std::string_view op, std::string_view result, const Tensor& values) {
                                  if (op == operation && result == poisoned_result)
                                    values.data<float>()[3] = std::numeric_limits<float>::infinity();
                                }),
          context.stream};
}

/// Initial values, but for one element of one parameter.
class OneBadWeight final : public StateSource {
 public:
  explicit OneBadWeight(std::string name) : name_(std::move(name)) {}
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    InitialState(3).fill(kind, parameter, elements, destination);
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      if (kind == StateKind::master && parameter.name == name_ && interval.begin <= 7 && 7 < interval.end)
        values.data<float>()[7 - interval.begin] = std::numeric_limits<float>::quiet_NaN();
    });
  }

 private:
  std::string name_;
};

/// What each rank says of a step; `poison` gives rank 1's context.
template <class Poison>
std::vector<std::string> messages_of(int stage, Recompute recompute, const StateSource& source, Poison poison,
                                     const GridSizes& sizes = {.shard = kRanks}, const ModelConfig& config = tiny()) {
  std::vector<std::string> messages(kRanks);
  run_ranks(kRanks, [&](Communicator& ranks, const Context& plain) {
    const Context context = ranks.rank() == 1 ? poison(plain) : plain;
    const Mesh mesh(ranks, sizes);
    Decoder decoder(config, recompute, {}, ModelRanks(mesh));
    ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(stage)});
    model.load(source);
    Engine engine(model);
    const Batch batch = batch_of(context);
    try {
      engine.step(std::span(&batch, 1), kRanks * kLength, 1e-3, 1);
    } catch (const Error& error) {
      messages[static_cast<size_t>(ranks.rank())] = error.what();
    }
  });
  return messages;
}

TEST(Locate, an_activation_on_one_rank_is_named_alike_on_every_rank_at_every_stage) {
  for (const int stage : {0, 1, 2, 3})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const auto messages = messages_of(stage, recompute, InitialState(3),
                                        [](const Context& context) { return poisoned(context, "GatedActivate", "y"); });
      EXPECT_EQ(messages[0], messages[1]);
      EXPECT_THAT(messages, Each(StartsWith("step 1: the loss is ")));
      EXPECT_THAT(messages, Each(HasSubstr("first found at rank 1: block.0.mlp, forward, GatedActivate: y [8, 24] f32 "
                                           "holds 1 inf")))
          << "stage " << stage;
    }
}

TEST(Locate, of_ranks_that_share_matrices_the_one_that_computed_it_is_named) {
  const auto messages =
      messages_of(0, Recompute::none, InitialState(3),
                  [](const Context& context) { return poisoned(context, "GatedActivate", "y"); }, {.tensor = kRanks});
  EXPECT_THAT(messages,
              Each(HasSubstr("first found at rank 1: block.0.mlp, forward, GatedActivate: y [8, 12] f32 holds 1 "
                             "inf")));
}

TEST(Locate, of_ranks_that_hold_different_experts_the_one_that_computed_it_is_named) {
  for (const int stage : {0, 3}) {
    const auto messages = messages_of(
        stage, Recompute::none, InitialState(3),
        [](const Context& context) { return poisoned(context, "GatedActivate", "y"); },
        {.shard = kRanks, .expert = kRanks}, tiny_experts());
    EXPECT_THAT(messages, Each(HasSubstr("first found at rank 1: block.0.experts, forward, GatedActivate: y [")))
        << stage;
  }
}

TEST(Locate, a_parameter_of_an_expert_is_named_wherever_it_is) {
  for (const int expert : {0, 3}) {
    const std::string name = fmt::format("model.layers.1.mlp.experts.{}.up_proj.weight", expert);
    const auto messages = messages_of(
        3, Recompute::none, OneBadWeight(name), [](const Context& context) { return context; },
        {.shard = kRanks, .expert = kRanks}, tiny_experts());
    EXPECT_THAT(messages, Each(HasSubstr("first found at parameter " + name + " holds 1 nan before the step")));
  }
}

TEST(Locate, a_gradient_is_named_with_the_backward_pass) {
  for (const int stage : {0, 3}) {
    const auto messages = messages_of(stage, Recompute::none, InitialState(3), [](const Context& context) {
      return poisoned(context, "RmsNormBackward", "d_weight");
    });
    // The walk back meets the last norm first.
    EXPECT_THAT(messages, Each(HasSubstr("backward, RmsNormBackward: d_weight [16] f32 holds 1 inf")));
    EXPECT_THAT(messages, Each(HasSubstr("first found at rank 1: ")));
  }
}

TEST(Locate, a_parameter_is_named_before_anything_that_it_spoils) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  for (const int stage : {0, 3}) {
    const auto messages =
        messages_of(stage, Recompute::none, OneBadWeight(name), [](const Context& context) { return context; });
    EXPECT_THAT(messages, Each(HasSubstr("first found at parameter " + name + " holds 1 nan before the step")));
  }
}

TEST(Locate, skipping_leaves_the_weights_and_the_count_of_updates_as_they_were) {
  run_ranks(kRanks, [&](Communicator& ranks, const Context& plain) {
    bool poisoning = true;
    const Context context{plain.memory,
                          make_watching_kernels(plain.kernels,
                                                [&](std::string_view op, std::string_view, const Tensor& values) {
                                                  if (poisoning && ranks.rank() == 0 && op == "Attention")
                                                    values.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
                                                }),
                          plain.stream};
    Decoder decoder(tiny());
    ShardedModel model(context, ranks, decoder, {.policy = Policy::stage(2)});
    model.load(InitialState(3));
    Engine engine(model, {}, 1, OnNonfinite::skip);
    const Batch batch = batch_of(context);
    const auto weights = [&] {
      std::vector<float> values;
      for (size_t i = 0; i < decoder.units().size(); ++i)
        model.with_parameters(i, [&](const Parameter&, const Tensor& whole) {
          for (const float value : whole.to_vector<float>()) values.push_back(value);
        });
      return values;
    };
    const std::vector<float> before = weights();
    const StepResult bad = engine.step(std::span(&batch, 1), kRanks * kLength, 1e-3, 1);
    EXPECT_TRUE(bad.skipped);
    EXPECT_THAT(bad.nonfinite, HasSubstr("rank 0: block.0.attention, forward, Attention: out"));
    EXPECT_EQ(weights(), before);
    EXPECT_EQ(model.optimizer().updates(), 0);
    EXPECT_EQ(engine.skipped(), 1);
    poisoning = false;
    const StepResult good = engine.step(std::span(&batch, 1), kRanks * kLength, 1e-3, 1);
    EXPECT_FALSE(good.skipped);
    EXPECT_TRUE(good.nonfinite.empty());
    EXPECT_NE(weights(), before);
    EXPECT_EQ(model.optimizer().updates(), 1);
  });
}

}  // namespace
}  // namespace nought::locate_test
