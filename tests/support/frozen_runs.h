// Short runs of a small model with frozen parameters on thread ranks, laid out in any way.
#pragma once

#include <map>

#include "support/tiny_deepseek.h"
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/nn/freezing.h"
#include "nought/tensor/random.h"
#include "nought/train/engine.h"

namespace nought::test::frozen {

inline constexpr int64_t kLength = 8, kRows = 6, kVocabulary = 96;

/// Sizes are odd, so that there is room between parameters and borders of shards cut through them.
inline ModelConfig llama(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 24},
                                 {"intermediate_size", 40},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", tied}});
}

struct Layout {
  ModelConfig config = llama(false);
  Freezing freezing = {};
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  RecomputeOptions recompute = {};
  bool overlap = true;
  int accumulation = 1;
  int64_t bucket = 0;
  OptimizerOptions optimizer = {.weight_decay = 0.1};
  int replicas = 1;
  ParameterHome parameters = {};

  std::string str() const {
    return fmt::format("{}, freeze {}, {} ranks, stage {}, {}", config.family,
                       freezing.freeze.empty() ? "nothing" : freezing.freeze[0], ranks, stage, name_of(dtype));
  }
};

inline const Freezing kHeadOnly{{"."}, {"lm_head"}};
inline const Freezing kNormsOnly{{"."}, {"norm"}};
inline const Freezing kBottom{{"embed", "layers\\.0\\."}, {}};
inline const Freezing kTop{{"lm_head", "layers\\.2\\.", "model\\.norm"}, {}};

inline Batch rows_of(const Context& context, int step, int64_t begin, int64_t end) {
  const Shape shape{end - begin, kLength};
  Batch batch{context.empty(shape, DType::i32), context.empty(shape, DType::i32)};
  for (int64_t row = begin; row < end; ++row)
    for (int64_t t = 0; t < kLength; ++t) {
      const auto token = [&](int64_t i) {
        const uint32_t noise = philox(7, static_cast<uint64_t>(step * kRows + row), static_cast<uint64_t>(i))[0];
        return static_cast<int32_t>((i * 5 + row + (noise % 4 == 0 ? noise % 17 : 0)) % kVocabulary);
      };
      const int64_t at = (row - begin) * kLength + t;
      batch.input_ids.data<int32_t>()[at] = token(t);
      batch.targets.data<int32_t>()[at] = token(t + 1);
    }
  return batch;
}

template <class Body>
void with_model(const Layout& layout, Body body) {
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    Decoder decoder(layout.config, layout.recompute);
    apply(layout.freezing, decoder);
    const Mesh mesh(ranks, {.replicate = layout.replicas, .shard = layout.ranks / layout.replicas});
    ShardedModel model(context, mesh, decoder,
                       {.policy = Policy::stage(layout.stage),
                        .dtype = layout.dtype,
                        .gradient_dtype = layout.dtype,
                        .overlap = layout.overlap,
                        .optimizer = layout.optimizer,
                        .reduce_bucket = layout.bucket,
                        .gather_bucket = layout.bucket,
                        .offload_param = layout.parameters});
    model.load(InitialState(3));
    Engine engine(model);
    body(model, engine);
  });
}

inline std::vector<Batch> batches_of(const Layout& layout, const ShardedModel& model, int step) {
  const int64_t rows = kRows / (layout.ranks * layout.accumulation);
  std::vector<Batch> batches;
  for (int micro = 0; micro < layout.accumulation; ++micro) {
    const int64_t begin = (micro * layout.ranks + model.mesh().world().rank()) * rows;
    batches.push_back(rows_of(model.context(), step, begin, begin + rows));
  }
  return batches;
}

inline StepResult take_step(const Layout& layout, const ShardedModel& model, Engine& engine, int step) {
  return engine.step(batches_of(layout, model, step), kRows * kLength, 5e-3, 1.0);
}

using Values = std::map<std::string, std::vector<float>>;

inline Values values_of(ShardedModel& model) {
  Values values;
  for (size_t unit = 0; unit < model.model().units().size(); ++unit)
    model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
      values[parameter.name] = whole.to_vector<float>();
    });
  return values;
}

struct Result {
  std::vector<double> losses, norms;
  Values before, after;
  friend bool operator==(const Result&, const Result&) = default;
};

inline Result train(const Layout& layout, int steps = 6) {
  Result result;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    Result mine;
    mine.before = values_of(model);
    for (int step = 0; step < steps; ++step) {
      const StepResult each = take_step(layout, model, engine, step);
      mine.losses.push_back(each.loss), mine.norms.push_back(each.grad_norm);
    }
    mine.after = values_of(model);
    if (model.mesh().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

/// The summed gradients of a step, by name.
inline Values gradients_of(const Layout& layout) {
  Values result;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    engine.accumulate(batches_of(layout, model, 0), kRows * kLength);
    Values mine;
    const auto& units = model.model().units();
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const std::vector<Tensor> gradients = model.gather_gradients(unit);
      for (size_t i = 0; i < gradients.size(); ++i)
        if (gradients[i]) mine[units[unit]->parameters()[i].name] = gradients[i].to_vector<float>();
    }
    model.discard_gradients();
    if (model.mesh().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

inline std::vector<Layout> frozen_layouts() {
  std::vector<Layout> all;
  for (const Freezing& freezing : {kHeadOnly, kNormsOnly, kBottom, kTop}) all.push_back({.freezing = freezing});
  all.push_back({.config = llama(true), .freezing = {{"embed"}, {}}});
  all.push_back({.config = llama(true), .freezing = {{"layers"}, {}}});
  all.push_back({.config = test::tiny_deepseek(kVocabulary)});
  all.push_back({.config = test::tiny_deepseek(kVocabulary), .freezing = {{"experts", "embed"}, {"shared_experts"}}});
  return all;
}

}  // namespace nought::test::frozen
