// A decoder whose matrices and tables are kept as 8-bit codes, from end to end: it computes what a decoder with the
// values of the codes computes, and trains what remains, at every stage, with every number of ranks.
#include "nought/zero/codes.h"

#include <cmath>
#include <map>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/nn/coding.h"
#include "nought/nn/freezing.h"
#include "nought/tensor/random.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"

namespace nought::codes_test {
namespace {

constexpr int64_t kLength = 8, kRows = 4, kVocabulary = 96;

ModelConfig llama(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 96},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", tied}});
}

/// Matrices of layout [in, out], and learned positions.
ModelConfig gpt2() {
  return ModelConfig::from_json({{"model_type", "gpt2"},
                                 {"vocab_size", kVocabulary},
                                 {"n_embd", 64},
                                 {"n_layer", 2},
                                 {"n_head", 4},
                                 {"n_positions", 32}});
}

ModelConfig mixtral() {
  return ModelConfig::from_json({{"model_type", "mixtral"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 32},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"num_local_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", false}});
}

std::vector<ModelConfig> configs() { return {llama(false), llama(true), gpt2(), mixtral()}; }

/// The values that the codes of the initial values stand for.
struct ValuesOfCodes final : StateSource {
  explicit ValuesOfCodes(const Context& of) : context(of) {}
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    const InitialState initial(3);
    if (!can_be_coded(parameter.role)) return initial.fill(kind, parameter, elements, destination);
    const Tensor x = context.empty(parameter.shape, DType::f32);
    initial.fill(kind, parameter, Interval{0, x.numel()}, x.flat(0, x.numel()));
    const Weight weight{context.empty(parameter.shape, DType::i8),
                        context.empty(scales_shape(parameter.shape), DType::f16)};
    context.run(QuantizeBlocks{.x = x, .codes = weight.values, .scales = weight.scales});
    context.run(DequantizeBlocks{.weight = weight, .x = x});
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      context.run(Cast{.x = x.flat(interval.begin, interval.end), .y = values});
    });
  }
  const Context& context;
};

struct Layout {
  ModelConfig config = llama(false);
  bool coded = true;  // or dense, with the values of the codes
  int ranks = 1, stage = 0, replicas = 1;
  bool reference = false;
  DType dtype = DType::f32;
  RecomputeOptions recompute = {};
  ParameterHome parameters = {};

  std::string str() const {
    return fmt::format("{}, {}, {} ranks, stage {}, {}", config.family, coded ? "codes" : "values", ranks, stage,
                       name_of(dtype));
  }
};

template <class Body>
void with_model(const Layout& layout, Body body) {
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& of_rank) {
    Context context = of_rank;
    if (layout.reference) context.kernels = make_reference_kernels();
    Decoder decoder(layout.config, layout.recompute);
    if (layout.coded) {
      keep_as_codes({"."}, decoder);
    } else {
      for (const auto& unit : decoder.units())
        unit->choose_trained([](const Parameter& parameter) { return !can_be_coded(parameter.role); });
    }
    const Mesh mesh(ranks, {.replicate = layout.replicas, .shard = layout.ranks / layout.replicas});
    ShardedModel model(context, mesh, decoder,
                       {.policy = Policy::stage(layout.stage),
                        .dtype = layout.dtype,
                        .gradient_dtype = layout.dtype,
                        .optimizer = {.weight_decay = 0.1},
                        .offload_param = layout.parameters});
    layout.coded ? model.load(InitialState(3)) : model.load(ValuesOfCodes(context));
    body(model, decoder);
  });
}

Batch batch_of(const ShardedModel& model, int ranks, int step) {
  const Context& context = model.context();
  const int64_t rows = kRows / ranks, begin = rows * model.mesh().world().rank();
  const Shape shape{rows, kLength};
  Batch batch{context.empty(shape, DType::i32), context.empty(shape, DType::i32)};
  for (int64_t i = 0; i < rows * kLength; ++i) {
    const auto token = [&](int64_t at) {
      const auto index = static_cast<uint64_t>(begin * kLength + at);
      return static_cast<int32_t>((philox(7, index, static_cast<uint64_t>(step))[0]) % kVocabulary);
    };
    batch.input_ids.data<int32_t>()[i] = token(i);
    batch.targets.data<int32_t>()[i] = token(i + 1);
  }
  return batch;
}

using Values = std::map<std::string, std::vector<double>>;

struct Result {
  std::vector<double> logits, losses, norms;
  Values gradients, after;  // of what is trained, and of all
  friend bool operator==(const Result&, const Result&) = default;
};

/// The logits of a batch, the gradients of a step, and three steps.
Result train(const Layout& layout) {
  Result result;
  with_model(layout, [&](ShardedModel& model, Decoder& decoder) {
    Result mine;
    Engine engine(model);
    mine.logits = decoder.logits(model.context(), batch_of(model, layout.ranks, 0)).to_vector<double>();
    const auto batches = [&](int step) { return std::vector{batch_of(model, layout.ranks, step)}; };
    engine.accumulate(batches(0), kRows * kLength);
    for (size_t unit = 0; unit < decoder.units().size(); ++unit) {
      const std::vector<Tensor> gradients = model.gather_gradients(unit);
      for (size_t i = 0; i < gradients.size(); ++i)
        if (gradients[i])
          mine.gradients[decoder.units()[unit]->parameters()[i].name] = gradients[i].to_vector<double>();
    }
    model.discard_gradients();
    for (int step = 0; step < 3; ++step) {
      const StepResult each = engine.step(batches(step), kRows * kLength, 5e-2, 1.0);
      mine.losses.push_back(each.loss), mine.norms.push_back(each.grad_norm);
    }
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
        mine.after[parameter.name] = whole.to_vector<double>();
      });
    if (model.mesh().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(CodedDecoder, on_the_reference_it_has_the_bits_of_a_decoder_with_the_values_of_its_codes) {
  for (const ModelConfig& config : configs()) {
    Layout layout{.config = config, .reference = true};
    const Result coded = train(layout);
    layout.coded = false;
    SCOPED_TRACE(layout.str());
    const Result dense = train(layout);
    EXPECT_EQ(coded.logits, dense.logits);
    EXPECT_EQ(coded.losses, dense.losses);
    EXPECT_EQ(coded.gradients, dense.gradients);
    EXPECT_EQ(coded.after, dense.after);
    EXPECT_FALSE(coded.gradients.empty());
    EXPECT_NE(coded.losses[0], coded.losses[2]) << "something moves";
  }
}

/// Largest difference, over the largest value.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i])), largest = std::max(largest, std::abs(b[i]));
  return worst / largest;
}

TEST(CodedDecoder, on_the_cpu_it_is_as_close_to_the_reference_as_a_dense_one) {
  for (const ModelConfig& config : configs())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // Values of codes are exact in fp32; in bf16 each activation is rounded on its way.
      const double close = dtype == DType::f32 ? 1e-4 : 0.06;
      Layout layout{.config = config, .dtype = dtype};
      SCOPED_TRACE(layout.str());
      const Result fast = train(layout);
      layout.reference = true;
      const Result plain = train(layout);
      EXPECT_LT(distance(fast.logits, plain.logits), close);
      EXPECT_LT(distance(fast.losses, plain.losses), close);
      for (const auto& [name, gradient] : plain.gradients)
        EXPECT_LT(distance(fast.gradients.at(name), gradient), 2 * close) << name;
    }
}

TEST(CodedDecoder, zero_stages_agree_bit_for_bit) {
  for (const ModelConfig& config : configs())
    for (const int ranks : {1, 2}) {
      Layout layout{.config = config, .ranks = ranks};
      const Result first = train(layout);
      for (const int stage : {1, 2, 3}) {
        layout.stage = stage;
        SCOPED_TRACE(layout.str());
        EXPECT_TRUE(train(layout) == first);
      }
    }
}

TEST(CodedDecoder, recomputation_changes_no_bit) {
  for (const ModelConfig& config : configs()) {
    Layout layout{.config = config, .ranks = 2, .stage = 3};
    const Result plain = train(layout);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      layout.recompute = recompute;
      EXPECT_TRUE(train(layout) == plain) << layout.str();
    }
  }
}

TEST(CodedDecoder, where_parameters_live_changes_no_bit) {
  const test::TempFolder folder;
  for (const ModelConfig& config : configs())
    for (const int ranks : {1, 2}) {
      Layout layout{.config = config, .ranks = ranks, .stage = 3};
      const Result first = train(layout);
      layout.parameters = {.home = Pool::file, .folder = folder.path().string()};
      EXPECT_TRUE(train(layout) == first) << layout.str();
    }
}

TEST(CodedDecoder, what_is_kept_as_codes_stays_and_all_else_moves) {
  for (const ModelConfig& config : configs()) {
    Layout layout{.config = config, .ranks = 2, .stage = 3};
    const Result result = train(layout);
    with_model(layout, [&](ShardedModel& model, Decoder& decoder) {
      for (size_t unit = 0; unit < decoder.units().size(); ++unit)
        model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& before) {
          EXPECT_EQ(before.to_vector<double>() == result.after.at(parameter.name), parameter.coded) << parameter.name;
          EXPECT_EQ(parameter.trainable, result.gradients.contains(parameter.name)) << parameter.name;
        });
    });
  }
}

TEST(CodedDecoder, next_tokens_have_the_logits_of_the_whole_sequence) {
  with_model({}, [](ShardedModel& model, Decoder& decoder) {
    const Context& context = model.context();
    const Batch batch = batch_of(model, 1, 0);
    const Tensor whole = decoder.logits(context, batch);
    DecoderCache cache = decoder.make_cache(context, kLength, DType::f32);
    for (int64_t t = 0; t < kLength; ++t) {
      const NextTokens next{.sequence = 0, .ids = {batch.input_ids.data<int32_t>() + t, 1}};
      const Tensor logits = decoder.next_logits(context, {&next, 1}, cache);
      EXPECT_LT(distance(logits.to_vector<double>(), whole.slice(t, t + 1).to_vector<double>()), 1e-5) << t;
    }
  });
}

TEST(CodedDecoder, a_checkpoint_holds_the_values_and_gives_them_back_at_any_stage_and_number_of_ranks) {
  const test::TempFolder folder, drive;
  const ParameterHome in_file{.home = Pool::file, .folder = drive.path().string()};
  std::filesystem::path path;
  Values saved;
  const auto values_of = [](ShardedModel& model) {
    Values values;
    for (size_t unit = 0; unit < model.model().units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
        values[parameter.name] = whole.to_vector<double>();
      });
    return values;
  };
  with_model({.ranks = 4, .stage = 3, .replicas = 2, .parameters = in_file}, [&](ShardedModel& model, Decoder&) {
    const std::filesystem::path written = save_checkpoint(
        model, {.step = 0, .world_size = 4, .zero_stage = 3, .run = nlohmann::json::object()}, folder.path());
    const Values values = values_of(model);
    if (model.mesh().world().rank() == 0) path = written, saved = values;
  });
  for (const int stage : {0, 3})
    for (const int ranks : {1, 3})
      with_model({.ranks = ranks, .stage = stage}, [&](ShardedModel& model, Decoder& decoder) {
        const Checkpoint checkpoint(path, decoder);
        checkpoint.require_same_frozen(decoder);
        model.load(checkpoint);
        EXPECT_EQ(values_of(model), saved);
      });
}

}  // namespace
}  // namespace nought::codes_test
