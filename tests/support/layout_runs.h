// Short runs of a small model on thread ranks, laid out in any way: their losses, norms and weights.
#pragma once

#include "support/guarded_context.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/tensor/random.h"
#include "nought/train/engine.h"

namespace nought::test {

inline constexpr int64_t kLength = 16, kVocabulary = 96;

struct Layout {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  int accumulation = 1;
  RecomputeOptions recompute = {};
  bool overlap = true, tied = false;
  int steps = 30;
  int scale_power = 16;  // of f16
  std::optional<DType> gradients = {}, wire = {};
  double gradient_factor = 1;
  Fp8Scaling fp8 = Fp8Scaling::none;
  bool masters = true;
  int64_t bucket = 0;
  int64_t rows = 4;  // of a step, over all ranks and micro-batches
  bool guarded = false;
  OffloadOptions offload = {};
  ParameterHome parameters = {};
  Method method = AdamOptions{};
  int64_t state_block = 0;
  std::optional<PowerSgdOptions> power_sgd = {};

  std::string str() const {
    return fmt::format("{} ranks, stage {}, {}, accumulation {}{}, states in the {} pool, parameters in the {} pool",
                       ranks, stage, name_of(dtype), accumulation, guarded ? ", on the guarded device" : "",
                       name_of(offload.home), name_of(parameters.home));
  }
};

inline ModelConfig tiny_llama(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 48},
                                 {"intermediate_size", 80},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", tied}});
}

/// Rows [begin, end) of the batch of a step: a noisy sequence that can be learned.
inline Batch rows_of(const Context& context, const Layout& layout, int step, int64_t begin, int64_t end) {
  Batch batch = empty_batch(end - begin, kLength, *context.memory);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t t = 0; t < kLength; ++t) {
      const auto token = [&](int64_t i) {
        const uint32_t noise = philox(7, static_cast<uint64_t>(step * layout.rows + row), static_cast<uint64_t>(i))[0];
        return static_cast<int32_t>((i * 5 + row + (noise % 4 == 0 ? noise % 17 : 0)) % kVocabulary);
      };
      const int64_t at = (row - begin) * kLength + t;
      batch.input_ids.data<int32_t>()[at] = token(t);
      batch.targets.data<int32_t>()[at] = token(t + 1);
    }
  return batch;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<double> scales;  // that steps were computed with, negative where they were skipped
  std::vector<float> weights;
};

/// Calls body(model, engine) on every rank of a layout.
template <class Body>
void with_model(const Layout& layout, Body body) {
  run_ranks(test::contexts_of(layout.ranks, layout.guarded), [&](Communicator& ranks, const Context& context) {
    Decoder decoder(tiny_llama(layout.tied), layout.recompute, {.scaling = layout.fp8, .history = 4});
    ShardedModel model(context, ranks, decoder,
                       {.policy = Policy::stage(layout.stage),
                        .dtype = layout.dtype,
                        .gradient_dtype = layout.gradients.value_or(layout.dtype),
                        .overlap = layout.overlap,
                        .optimizer = {.method = layout.method,
                                      .weight_decay = 0.1,
                                      .state_block = layout.state_block,
                                      .state_dtype = layout.masters ? DType::f32 : DType::bf16,
                                      .master_weights = layout.masters},
                        .wire_dtype = layout.wire,
                        .reduce_bucket = layout.bucket,
                        .gather_bucket = layout.bucket,
                        .offload_optimizer = layout.offload,
                        .power_sgd = layout.power_sgd,
                        .offload_param = layout.parameters});
    model.load(InitialState(3));
    const LossScaleOptions scaling{.initial_power = layout.scale_power, .scale_window = 8};
    Engine engine(model, layout.dtype == DType::f16 ? LossScaler(scaling) : LossScaler(), layout.gradient_factor);
    body(model, engine);
  });
}

inline StepResult take_step(const Layout& layout, ShardedModel& model, Engine& engine, int step) {
  const int rank = model.mesh().world().rank();
  const int64_t parts = layout.ranks * layout.accumulation, rows = layout.rows / parts;
  require(rows * parts == layout.rows, "{} rows do not divide into {} parts", layout.rows, parts);
  std::vector<Batch> batches;
  for (int micro = 0; micro < layout.accumulation; ++micro) {
    const int64_t begin = (micro * layout.ranks + rank) * rows;
    batches.push_back(rows_of(model.context(), layout, step, begin, begin + rows));
  }
  return engine.step(batches, layout.rows * kLength, 2e-3, 1.0);
}

inline Result train(const Layout& layout) {
  Result result;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    Result mine;
    for (int step = 0; step < layout.steps; ++step) {
      const StepResult each = take_step(layout, model, engine, step);
      mine.losses.push_back(each.loss), mine.norms.push_back(each.skipped ? 0 : each.grad_norm);
      mine.scales.push_back(each.skipped ? -each.loss_scale : each.loss_scale);
    }
    for (size_t unit = 0; unit < model.model().units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (float value : model.context().to_host<float>(whole)) mine.weights.push_back(value);
      });
    if (model.mesh().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

inline void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.scales, b.scales);
}

inline void expect_losses_within(const Result& a, const Result& b, double tolerance) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], tolerance) << "step " << i;
}

}  // namespace nought::test
