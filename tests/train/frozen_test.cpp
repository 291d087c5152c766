// Frozen parameters: they stay what they were, take no gradient, master, state or reduction, and change no bit of what
// is trained; at every stage, with every number of ranks.
#include <filesystem>
#include <fstream>
#include <map>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/tiny_deepseek.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/nn/freezing.h"
#include "nought/tensor/random.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"

namespace nought {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kLength = 8, kRows = 6, kVocabulary = 96;

/// Sizes are odd, so that there is room between parameters and borders of shards cut through them.
ModelConfig llama(bool tied) {
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

  std::string str() const {
    return fmt::format("{}, freeze {}, {} ranks, stage {}, {}", config.family,
                       freezing.freeze.empty() ? "nothing" : freezing.freeze[0], ranks, stage, name_of(dtype));
  }
};

const Freezing kHeadOnly{{"."}, {"lm_head"}};
const Freezing kNormsOnly{{"."}, {"norm"}};
const Freezing kBottom{{"embed", "layers\\.0\\."}, {}};
const Freezing kTop{{"lm_head", "layers\\.2\\.", "model\\.norm"}, {}};

Batch rows_of(const Context& context, int step, int64_t begin, int64_t end) {
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
                        .gather_bucket = layout.bucket});
    model.load(InitialState(3));
    Engine engine(model);
    body(model, engine);
  });
}

std::vector<Batch> batches_of(const Layout& layout, const ShardedModel& model, int step) {
  const int64_t rows = kRows / (layout.ranks * layout.accumulation);
  std::vector<Batch> batches;
  for (int micro = 0; micro < layout.accumulation; ++micro) {
    const int64_t begin = (micro * layout.ranks + model.mesh().world().rank()) * rows;
    batches.push_back(rows_of(model.context(), step, begin, begin + rows));
  }
  return batches;
}

StepResult take_step(const Layout& layout, const ShardedModel& model, Engine& engine, int step) {
  return engine.step(batches_of(layout, model, step), kRows * kLength, 5e-3, 1.0);
}

using Values = std::map<std::string, std::vector<float>>;

Values values_of(ShardedModel& model) {
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

Result train(const Layout& layout, int steps = 6) {
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
Values gradients_of(const Layout& layout) {
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

std::vector<Layout> frozen_layouts() {
  std::vector<Layout> all;
  for (const Freezing& freezing : {kHeadOnly, kNormsOnly, kBottom, kTop}) all.push_back({.freezing = freezing});
  all.push_back({.config = llama(true), .freezing = {{"embed"}, {}}});
  all.push_back({.config = llama(true), .freezing = {{"layers"}, {}}});
  all.push_back({.config = test::tiny_deepseek(kVocabulary)});
  all.push_back({.config = test::tiny_deepseek(kVocabulary), .freezing = {{"experts", "embed"}, {"shared_experts"}}});
  return all;
}

TEST(Frozen, zero_stages_agree_bit_for_bit) {
  for (Layout layout : frozen_layouts())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3}) {
        layout.dtype = dtype, layout.ranks = ranks, layout.stage = 0;
        const Result first = train(layout);
        for (const int stage : {1, 2, 3}) {
          layout.stage = stage;
          layout.overlap = stage != 2;
          SCOPED_TRACE(layout.str());
          EXPECT_TRUE(train(layout) == first);
        }
      }
}

TEST(Frozen, replicas_of_one_rank_have_the_bits_of_stage_0_and_those_of_two_ranks_follow) {
  for (Layout layout : frozen_layouts()) {
    layout.ranks = 2;
    const Result two = train(layout);
    layout.replicas = 2, layout.stage = 3;
    EXPECT_TRUE(train(layout) == two) << layout.str();
    layout.ranks = 6, layout.replicas = 3;
    const Result six = train(layout);
    for (size_t i = 0; i < two.losses.size(); ++i) EXPECT_NEAR(six.losses[i], two.losses[i], 1e-4) << layout.str();
  }
}

TEST(Frozen, what_is_frozen_stays_and_all_else_moves) {
  for (const Layout& layout : frozen_layouts()) {
    SCOPED_TRACE(layout.str());
    const Result result = train(layout);
    Decoder decoder(layout.config);
    apply(layout.freezing, decoder);
    for (const auto& unit : decoder.units())
      for (const Parameter& parameter : unit->parameters())
        EXPECT_EQ(result.after.at(parameter.name) != result.before.at(parameter.name), parameter.trainable)
            << parameter.name;
  }
}

/// Whether an optimizer holds them or nobody does, they start alike, in bf16 too.
TEST(Frozen, starts_from_the_same_bits_as_what_is_trained) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 3}) {
      Layout layout{.ranks = 2, .stage = stage, .dtype = dtype};
      const Values trained = train(layout, 0).before;
      layout.freezing = kHeadOnly;
      EXPECT_EQ(train(layout, 0).before, trained);
    }
}

TEST(Frozen, the_gradients_of_the_rest_are_the_same_bits_as_when_all_is_trained) {
  for (Layout layout : frozen_layouts())
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      layout.recompute = recompute;
      layout.recompute.checkpoints = recompute == Recompute::full ? 2 : 0;
      SCOPED_TRACE(fmt::format("{}, recompute {}", layout.str(), name_of(recompute)));
      const Values some = gradients_of(layout);
      Layout whole = layout;
      whole.freezing = {};
      const Values all = gradients_of(whole);
      Decoder decoder(layout.config);
      apply(layout.freezing, decoder);
      size_t trained = 0;
      for (const auto& unit : decoder.units())
        for (const Parameter& parameter : unit->parameters()) trained += parameter.trainable;
      EXPECT_EQ(some.size(), trained);
      for (const auto& [name, gradient] : some) EXPECT_EQ(gradient, all.at(name)) << name;
    }
}

TEST(Frozen, recompute_accumulation_and_buckets_change_no_bit) {
  for (Layout layout : frozen_layouts())
    for (const int stage : {0, 2, 3}) {
      layout.ranks = 2, layout.stage = stage, layout.accumulation = 3;
      const Result plain = train(layout, 3);
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        Layout other = layout;
        other.recompute = recompute;
        other.recompute.contiguous = recompute == Recompute::full;
        other.bucket = recompute == Recompute::full ? 4000 : 1'000'000;
        SCOPED_TRACE(fmt::format("{}, recompute {}", layout.str(), name_of(recompute)));
        EXPECT_TRUE(train(other, 3) == plain);
      }
    }
}

TEST(Frozen, the_choice_bias_of_experts_is_never_trained) {
  for (const bool decay_all : {false, true}) {
    Layout layout{.config = test::tiny_deepseek(kVocabulary), .ranks = 2, .stage = 2};
    layout.optimizer.decay_all = decay_all;
    const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
    EXPECT_FALSE(gradients_of(layout).contains(bias));
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      // Something that a decay would move.
      for (size_t unit = 0; unit < model.model().units().size(); ++unit)
        model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& values) {
          if (parameter.name == bias)
            for (float& value : values.span<float>()) value = 0.25F;
        });
      for (int step = 0; step < 3; ++step) take_step(layout, model, engine, step);
      EXPECT_THAT(values_of(model)[bias], Each(0.25F));
      for (const auto& state : model.optimizer().owned()) EXPECT_NE(state.parameter->name, bias);
    });
  }
}

/// Elements of all segments, padded to equal shards: those that are trained, or the others; of Units from `first` on.
int64_t padded(const Model& model, int ranks, bool trained, size_t first = 0) {
  int64_t sum = 0;
  for (size_t unit = first; unit < model.units().size(); ++unit)
    for (const Segment& segment : model.units()[unit]->segments())
      if (segment.trainable == trained) sum += Partition(segment.size, ranks).padded();
  return sum;
}

TEST(FrozenMemory, is_what_the_formulas_say_to_the_byte) {
  for (Layout layout : frozen_layouts())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3})
        for (const int stage : {0, 1, 2, 3}) {
          layout.dtype = dtype, layout.ranks = ranks, layout.stage = stage;
          SCOPED_TRACE(layout.str());
          with_model(layout, [&](ShardedModel& model, Engine& engine) {
            take_step(layout, model, engine, 0);
            model.settle();
            const MemoryLedger& ledger = model.context().memory->ledger();
            const int64_t trained = padded(model.model(), ranks, true), frozen = padded(model.model(), ranks, false);
            const auto share = [&](int64_t elements, int from) { return stage >= from ? elements / ranks : elements; };
            const int64_t element = size_of(dtype), master = dtype == DType::f32 ? 0 : 4;
            int64_t updated = 0;  // a shard that is nothing but padding has no moments
            for (const SegmentIndex at : segments_of(model.model().units(), true)) {
              const Partition partition(model.model().units()[at.unit]->segments()[at.segment].size, ranks);
              const bool empty = partition.owned(model.mesh().world().rank()).begin >= partition.size();
              updated += stage == 0 ? partition.padded() : empty ? 0 : partition.shard();
            }
            EXPECT_EQ(ledger.current(Category::parameters), element * share(trained + frozen, 3));
            EXPECT_EQ(ledger.current(Category::gradients), element * share(trained, 2));
            EXPECT_EQ(ledger.current(Category::optimizer), master * share(trained, 1) + 8 * updated);
          });
        }
}

TEST(FrozenTraffic, is_what_the_formulas_say_to_the_element) {
  for (Layout layout : frozen_layouts())
    for (const int ranks : {1, 2, 3})
      for (const int stage : {0, 1, 2, 3})
        for (const bool overlap : {false, true}) {
          layout.ranks = ranks, layout.stage = stage, layout.overlap = overlap;
          SCOPED_TRACE(layout.str());
          with_model(layout, [&](ShardedModel& model, Engine& engine) {
            take_step(layout, model, engine, 0);
            const Traffic before = model.mesh().world().traffic();
            take_step(layout, model, engine, 1);
            const Traffic after = model.mesh().world().traffic();
            const auto sent = [&](Collective collective) {
              return after[collective].elements - before[collective].elements;
            };
            const auto& units = model.model().units();
            const auto once = [&](int64_t elements) { return elements * (ranks - 1) / ranks; };
            const auto all_from = [&](size_t first) {
              return padded(model.model(), ranks, true, first) + padded(model.model(), ranks, false, first);
            };
            size_t lowest = 0;
            while (!units[lowest]->trained()) ++lowest;
            const int64_t trained = once(padded(model.model(), ranks, true));
            EXPECT_EQ(sent(Collective::reduce_scatter), trained);
            // At stage 3 all Units are gathered forward, and back those that the walk comes to; a tied head gathers
            // the embedding once more each way.
            const int64_t tied = layout.config.tie_word_embeddings ? 2 * once(all_from(0) - all_from(1)) : 0;
            EXPECT_EQ(sent(Collective::all_gather), stage == 3 ? once(all_from(0) + all_from(lowest)) + tied : trained);
          });
        }
}

/// Below the lowest trained Unit nothing is kept for the backward pass.
TEST(FrozenMemory, activations_of_what_is_not_walked_back_are_not_kept) {
  const auto peak = [](const Freezing& freezing) {
    int64_t bytes = 0;
    const Layout layout{.freezing = freezing};
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      take_step(layout, model, engine, 0);
      bytes = model.context().memory->ledger().peak(Category::activations);
    });
    return bytes;
  };
  EXPECT_LT(peak(kHeadOnly), peak({}) / 3);
  EXPECT_LT(peak(kBottom), peak({}));
}

fs::path save(const Layout& layout, ShardedModel& model, Engine&, const fs::path& folder, int64_t step) {
  return save_checkpoint(
      model, {.step = step, .world_size = layout.ranks, .zero_stage = layout.stage, .run = nlohmann::json::object()},
      folder);
}

TEST(FrozenCheckpoint, resumes_bit_for_bit_at_any_stage_and_number_of_ranks) {
  for (Layout layout : frozen_layouts()) {
    layout.dtype = DType::bf16, layout.ranks = 2, layout.stage = 2;
    test::TempFolder folder;
    fs::path path;
    std::vector<double> rest;
    Values last;
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      for (int step = 0; step < 3; ++step) take_step(layout, model, engine, step);
      const fs::path saved = save(layout, model, engine, folder.path(), 3);
      std::vector<double> losses;
      for (int step = 3; step < 6; ++step) losses.push_back(take_step(layout, model, engine, step).loss);
      const Values values = values_of(model);
      if (model.mesh().world().rank() == 0) path = saved, rest = losses, last = values;
    });
    for (const int stage : {0, 3}) {
      Layout other = layout;
      other.stage = stage;
      SCOPED_TRACE(other.str());
      with_model(other, [&](ShardedModel& model, Engine& engine) {
        const Checkpoint checkpoint(path, model.model());
        checkpoint.require_same_frozen(model.model());
        model.load(checkpoint, 3);
        std::vector<double> losses;
        for (int step = 3; step < 6; ++step) losses.push_back(take_step(other, model, engine, step).loss);
        EXPECT_EQ(losses, rest);
        EXPECT_EQ(values_of(model), last);
      });
    }
    Layout three = layout;
    three.ranks = 3, three.stage = 3;
    with_model(three, [&](ShardedModel& model, Engine& engine) {
      model.load(Checkpoint(path, model.model()), 3);
      EXPECT_NEAR(take_step(three, model, engine, 3).loss, rest[0], 1e-2);
    });
  }
}

TEST(FrozenCheckpoint, holds_values_of_what_is_frozen_in_its_own_dtype_and_nothing_else_of_it) {
  const Layout layout{.freezing = kHeadOnly, .ranks = 2, .stage = 3, .dtype = DType::bf16};
  test::TempFolder folder;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    take_step(layout, model, engine, 0);
    const fs::path path = save(layout, model, engine, folder.path(), 1);
    if (model.mesh().world().rank() != 0) return;
    const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(path / "manifest.json"));
    std::map<std::string, int64_t> elements;
    for (const nlohmann::json& block : manifest.at("blocks")) {
      const std::string name = block.at("parameter"), state = block.at("state");
      const bool is_head = name == "lm_head.weight";
      EXPECT_EQ(block.value("frozen", false), !is_head) << name;
      EXPECT_TRUE(is_head || state == "master") << name << " has " << state;
      const SafetensorsFile file(path / block.at("file").get<std::string>());
      EXPECT_EQ(file.at(block.at("tensor").get<std::string>()).dtype, is_head ? DType::f32 : DType::bf16) << name;
      elements[name] += block.at("end").get<int64_t>() - block.at("begin").get<int64_t>();
    }
    for (const auto& unit : model.model().units())
      for (const Parameter& parameter : unit->parameters())
        EXPECT_EQ(elements[parameter.name], parameter.shape.numel() * (parameter.trainable ? 3 : 1));
  });
}

TEST(FrozenCheckpoint, refuses_to_resume_with_another_set_of_frozen_parameters) {
  const Layout layout{.freezing = kBottom};
  test::TempFolder folder;
  fs::path path;
  with_model(layout,
             [&](ShardedModel& model, Engine& engine) { path = save(layout, model, engine, folder.path(), 0); });
  const auto message = [&](const Freezing& freezing) {
    Decoder decoder(layout.config);
    apply(freezing, decoder);
    return test::message_of<ConfigError>([&] { Checkpoint(path, decoder).require_same_frozen(decoder); });
  };
  EXPECT_THAT(message({}), AllOf(HasSubstr("model.embed_tokens.weight was frozen and is trained now"),
                                 HasSubstr("training.freeze")));
  EXPECT_THAT(message({{"embed", "layers\\.0\\.", "lm_head"}, {}}),
              HasSubstr("lm_head.weight was trained and is frozen now"));
  Decoder same(layout.config);
  apply(kBottom, same);
  EXPECT_NO_THROW(Checkpoint(path, same).require_same_frozen(same));
}

}  // namespace
}  // namespace nought
