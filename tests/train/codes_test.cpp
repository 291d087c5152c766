// A decoder whose matrices and tables are kept quantized to 8 bits, from end to end: it computes what a decoder with
// the values of the codes computes, and trains what remains, at every stage, with every number of ranks.
#include "nought/zero/codes.h"

#include <cmath>

#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/nn/quantized_weights.h"

namespace nought::codes_test {
namespace {

using test::expect_same_bits;
using test::sharded;
using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

/// Rows of whole blocks. Untied and tied heads, matrices of layout [in, out] with learned positions, and experts.
std::vector<ModelConfig> configs() {
  const std::map<std::string, int64_t> wide{{"hidden_size", 64}, {"intermediate_size", 96}};
  std::vector<ModelConfig> all(2, small_model("grouped_heads", 2, wide));
  all[1].tie_word_embeddings = true;
  all.push_back(small_model("biases", 2, {{"n_embd", 64}}));
  all.push_back(small_model("experts", 2, {{"hidden_size", 64}, {"intermediate_size", 32}}));
  return all;
}

/// The values that the codes of the initial values stand for.
struct ValuesOfCodes final : StateSource {
  explicit ValuesOfCodes(const Context& of) : context(of) {}
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    const InitialState initial(3);
    if (!can_be_quantized(parameter.role)) return initial.fill(kind, parameter, elements, destination);
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

TrainingCase quantized(const ModelConfig& model, const test::MeshLayout& mesh = {}) {
  TrainingCase each = test::learning(model, mesh);
  each.steps.end = 3, each.lr = 5e-2;
  each.prepare = [](Decoder& decoder) { keep_quantized({"."}, decoder); };
  return each;
}

/// The case with the values of the quantized weights, dense.
TrainingCase dense(const ModelConfig& model) {
  TrainingCase each = quantized(model);
  each.prepare = [](Decoder& decoder) {
    for (const auto& unit : decoder.units())
      unit->choose_trained([](const Parameter& parameter) { return !can_be_quantized(parameter.role); });
  };
  each.load = [](ShardedModel& sharded_model, Decoder&) { sharded_model.load(ValuesOfCodes(sharded_model.context())); };
  return each;
}

std::vector<float> logits_of(const TrainingCase& of) {
  return of.on_rank(0, [](TrainingRank& rank) {
    return rank.decoder.logits(rank.context, rank.batches(0).front()).to_vector<float>();
  });
}

TEST(QuantizedDecoder, on_the_reference_it_has_the_bits_of_a_decoder_with_the_values_of_its_codes) {
  for (const ModelConfig& config : configs()) {
    TrainingCase codes = quantized(config), values = dense(config);
    codes.contexts = values.contexts = {Context::reference()};
    SCOPED_TRACE(codes.str());
    const TrainingResult result = codes.run();
    expect_same_bits(result, values.run());
    expect_same_bits(codes.gradients(), values.gradients());
    EXPECT_EQ(logits_of(codes), logits_of(values));
    EXPECT_NE(result.losses[0], result.losses[2]) << "something moves";
  }
}

/// Largest difference, over the largest value.
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

TEST(QuantizedDecoder, on_the_cpu_it_is_as_close_to_the_reference_as_a_dense_one) {
  for (const ModelConfig& config : configs())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // Values of codes are exact in fp32; in bf16 each activation is rounded on its way.
      const double close = dtype == DType::f32 ? 1e-4 : 0.06;
      const TrainingCase fast = quantized(config).in(dtype);
      TrainingCase plain = fast;
      plain.contexts = {Context::reference()};
      SCOPED_TRACE(fast.str());
      EXPECT_LT(distance(logits_of(fast), logits_of(plain)), close);
      EXPECT_LT(distance(fast.run().losses, plain.run().losses), close);
      const test::WholeTensors gradients = fast.gradients();
      for (const auto& [name, gradient] : plain.gradients())
        EXPECT_LT(distance(gradients.at(name), gradient), 2 * close) << name;
    }
}

TEST(QuantizedDecoder, stages_recomputation_and_tiers_of_parameters_change_no_bit) {
  const test::TempFolder folder;
  for (const ModelConfig& config : configs())
    for (const int ranks : {1, 2}) {
      TrainingCase each = quantized(config, sharded(ranks, 3));
      each.settings.offload_param = {.tier = {Pool::file, folder.path().string()}};
      expect_same_bits(each.run(), test::same_at_every_stage(quantized(config, sharded(ranks, 0))));
    }
}

TEST(QuantizedDecoder, what_is_kept_as_codes_stays_and_all_else_moves) {
  for (const ModelConfig& config : configs()) {
    const TrainingCase each = quantized(config, sharded(2, 3));
    const test::WholeTensors after = each.run().weights, gradients = each.gradients();
    each.on_ranks([&](TrainingRank& rank) {
      const test::WholeTensors before = rank.weights();
      for (const auto& unit : rank.decoder.units())
        for (const Parameter& parameter : unit->parameters()) {
          EXPECT_EQ(before.at(parameter.name) == after.at(parameter.name), parameter.quantized) << parameter.name;
          EXPECT_EQ(parameter.trainable, gradients.contains(parameter.name)) << parameter.name;
        }
    });
  }
}

TEST(QuantizedDecoder, next_tokens_have_the_logits_of_the_whole_sequence) {
  TrainingCase each = quantized(configs().front());
  each.rows.of_step = 1;
  each.on_ranks([](TrainingRank& rank) {
    const Batch batch = rank.batches(0).front();
    const int64_t length = batch.input_ids.dim(1);
    const Tensor whole = rank.decoder.logits(rank.context, batch);
    DecoderCache cache = rank.decoder.make_cache(rank.context, length, DType::f32);
    for (int64_t t = 0; t < length; ++t) {
      const NextTokens next{.sequence = 0, .ids = {batch.input_ids.data<int32_t>() + t, 1}};
      const Tensor logits = rank.decoder.next_logits(rank.context, {&next, 1}, cache);
      EXPECT_LT(distance(logits.to_vector<double>(), whole.slice(t, t + 1).to_vector<double>()), 1e-5) << t;
    }
  });
}

TEST(QuantizedDecoder, a_checkpoint_holds_the_values_and_gives_them_back_at_any_stage_and_number_of_ranks) {
  const test::TempFolder folder, drive;
  TrainingCase saves = quantized(configs().front(), {.sizes = {.replicate = 2, .shard = 2}, .stage = 3});
  saves.settings.offload_param = {.tier = {Pool::file, drive.path().string()}};
  saves.steps.end = 0, saves.saved = folder.path().string();
  const test::WholeTensors saved = saves.run().weights;
  for (const int stage : {0, 3})
    for (const int ranks : {1, 4}) {
      TrainingCase loads = quantized(configs().front(), sharded(ranks, stage));
      loads.steps.end = 0, loads.resumed = saves.saved;
      expect_same_bits(loads.run().weights, saved);
    }
}

}  // namespace
}  // namespace nought::codes_test
