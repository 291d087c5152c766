// QLoRA: an adapter on a model whose matrices are kept in codes of 4 bits. Logits and gradients are those of peft with
// bitsandbytes, the codes are those of its files to the bit, and layouts change nothing.
#include <cmath>

#include "support/golden.h"
#include "support/golden_output.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/engine/model_schedule.h"
#include "nought/models/adapter_modules.h"
#include "nought/weights/model_source.h"

namespace nought::qlora_test {
namespace {

namespace fs = std::filesystem;
using test::MeshLayout;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr WeightCodes kNf4{CodeKind::nf4, /*double_quantized=*/true};

fs::path folder() { return test::golden_folder("lora/nf4"); }

/// The adapter on the model of a folder: that of bitsandbytes, or the dense one that it was made of.
TrainingCase on(const MeshLayout& mesh, const std::string& base = "base", WeightCodes codes = kNf4) {
  const FoundModel found = find_model(folder() / "adapter", folder() / base);
  TrainingCase each = test::learning(ModelSource(found).config(), mesh);
  each.freezing.codes = codes;
  each.steps.end = 3;
  each.load = [found](ShardedModel& model, Decoder&) { model.load(ModelSource(found).weights()); };
  return each;
}

void expect_golden_on(const MeshLayout& mesh, const std::string& base = "base") {
  const TrainingCase each = on(mesh, base);
  SCOPED_TRACE(each.str() + ", " + base);
  const std::string golden = (folder() / "golden.safetensors").string();
  ProbeOutput output;
  each.on_ranks([&](TrainingRank& rank) {
    const ProbeInput input = read_probe_input(rank.context, golden, rank.decoder.config().vocab_size);
    ProbeOutput own =
        probe(rank.model, rank.decoder, input, true,
              {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
    if (rank.is_first()) output = std::move(own);
  });
  EXPECT_EQ(output.size(), 16u) << "logits, loss, and gradients of the adapter alone";
  test::expect_golden(output, golden);
}

TEST(Qlora, logits_and_gradients_are_those_of_peft_with_bitsandbytes_at_every_stage) {
  expect_golden_on({});
  expect_golden_on({}, "original");
  for (const int stage : {0, 1, 2, 3}) expect_golden_on(sharded(2, stage));
}

TEST(Qlora, ranks_that_share_sequences_and_layers_compute_them) {
  expect_golden_on({.sizes = {.context = 2}});
  expect_golden_on({.sizes = {.pipeline = 2}});
}

/// What a rank has of a parameter when its Unit is leased.
struct Held {
  std::vector<uint8_t> codes, scales;
  std::vector<float> nested, decoded;
  friend bool operator==(const Held&, const Held&) = default;
};

std::map<std::string, Held> held_by(TrainingRank& rank) {
  std::map<std::string, Held> all;
  for (const auto& unit : rank.decoder.units()) {
    rank.model.before_forward(*unit);
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const Parameter& parameter = unit->parameters()[i];
      if (!parameter.quantized) continue;
      const Segment& segment = unit->segments()[parameter.segment];
      const auto [begin, end] = parameter.range;
      const Weight weight = ParameterView(*unit, i, i, parameter.shape).weight();
      Held& held = all[parameter.name];
      held.codes = weight.values.to_vector<uint8_t>();
      held.decoded = weight.scales.to_vector<float>();
      if (!parameter.nests_scales) continue;
      held.scales = rank.model.values(*unit, segment.scales)
                        .flat(begin / kCodeBlockBytes, end / kCodeBlockBytes)
                        .to_vector<uint8_t>();
      held.nested = rank.model.values(*unit, segment.nested)
                        .flat(parameter.nested.begin, parameter.nested.end)
                        .to_vector<float>();
    }
    rank.model.after_forward(*unit);
  }
  return all;
}

TEST(Qlora, what_is_read_and_what_is_made_are_the_bytes_of_the_file_on_any_number_of_ranks) {
  const SafetensorsFile file(folder() / "base" / "model.safetensors");
  const auto memory = Memory::create();
  for (const char* base : {"base", "original"})
    for (const int ranks : {1, 2, 3})
      on(sharded(ranks, 3), base).on_ranks([&](TrainingRank& rank) {
        const auto all = held_by(rank);
        EXPECT_EQ(all.size(), 7u);
        for (const auto& [name, held] : all) {
          EXPECT_EQ(held.codes, file.load(name, *memory).to_vector<uint8_t>()) << name << " of " << base;
          EXPECT_EQ(held.scales, file.load(name + ".absmax", *memory).to_vector<uint8_t>()) << name << " of " << base;
          EXPECT_EQ(held.nested.at(1), file.load(name + ".nested_absmax", *memory).to_vector<float>().at(0)) << name;
        }
      });
}

TEST(Qlora, scales_that_are_kept_as_fp32_have_the_values_of_the_file) {
  for (const char* base : {"base", "original"})
    on({}, base).on_ranks([&](TrainingRank& nested) {
      on({}, "base", {CodeKind::nf4, false}).on_ranks([&](TrainingRank& plain) {
        for (const auto& [name, held] : held_by(plain)) {
          EXPECT_TRUE(held.scales.empty());
          EXPECT_EQ(held.decoded, held_by(nested).at(name).decoded) << name;
        }
      });
    });
}

TEST(Qlora, what_is_kept_in_codes_is_said) {
  on({}).on_ranks([](TrainingRank& rank) {
    EXPECT_EQ(describe_four_bits(rank.decoder), "7 matrices, 74% of the parameters, are kept in nf4");
  });
  TrainingCase dense = on({});
  dense.freezing = {};
  dense.on_ranks([](TrainingRank& rank) { EXPECT_EQ(describe_four_bits(rank.decoder), ""); });
}

NOUGHT_SIZE(medium);
TEST(Qlora, stages_change_no_bit_and_the_model_stays) {
  const test::TrainingResult first = on(sharded(2, 0)).run();
  EXPECT_NE(first.losses[0], first.losses[2]) << "something moves";
  for (const int stage : {1, 2, 3}) test::expect_same_bits(on(sharded(2, stage)).run(), first);
}

/// A model whose blocks no rank cuts, with an adapter, in codes that are made of its initial values.
TrainingCase whole_blocks(const MeshLayout& mesh) {
  const ModelConfig base =
      test::small_model("grouped_heads", 2, {{"hidden_size", 128}, {"intermediate_size", 256}, {"head_dim", 64}});
  const ModelConfig config =
      with_adapter(base, resolve_adapter({.r = 4, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
  TrainingCase each = test::learning(config, mesh);
  each.freezing.codes = kNf4;
  each.steps.end = 4, each.lr = 5e-2;
  return each;
}

NOUGHT_SIZE(medium);
TEST(Qlora, ranks_that_share_matrices_sequences_and_layers_have_the_losses_of_one) {
  const test::TrainingResult one = whole_blocks({}).run();
  EXPECT_NE(one.losses[0], one.losses[3]) << "something moves";
  for (const MeshLayout& mesh :
       {MeshLayout{.sizes = {.tensor = 2}}, MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3},
        MeshLayout{.sizes = {.context = 2}}, MeshLayout{.sizes = {.pipeline = 2}}}) {
    const TrainingCase each = whole_blocks(mesh);
    SCOPED_TRACE(each.str());
    const test::TrainingResult result = each.run();
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(result.losses[i], one.losses[i], 1e-5) << i;
  }
}

NOUGHT_SIZE(medium);
TEST(Qlora, every_family_trains_with_the_same_bits_at_stages_0_and_3) {
  for (const char* name : test::kGoldenFamilies) {
    SCOPED_TRACE(name);
    const ModelConfig base = ModelConfig::from_folder(test::golden_folder(name));
    const ModelConfig config =
        with_adapter(base, resolve_adapter({.r = 1, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
    const auto at = [&](int stage) {
      TrainingCase each = test::learning(config, sharded(2, stage));
      each.freezing.codes = kNf4;
      each.steps.end = 2;
      return each.run();
    };
    const test::TrainingResult result = at(0);
    EXPECT_TRUE(std::isfinite(result.losses[1]));
    test::expect_same_bits(at(3), result);
  }
}

TEST(Qlora, codes_of_another_kind_and_blocks_that_ranks_cut_are_refused_by_name) {
  EXPECT_THAT(test::message_of<ConfigError>([] {
                on({}, "base", {CodeKind::fp4, true}).run();
              }),
              AllOf(HasSubstr("q_proj.weight is stored as nf4"), HasSubstr("bnb_4bit_quant_type to \"nf4\"")));
  EXPECT_THAT(test::message_of<ConfigError>([] { on({.sizes = {.tensor = 2}}).run(); }),
              AllOf(HasSubstr("o_proj.weight [48, 48] cannot be kept quantized to 4 bits"), HasSubstr("tp_size")));
}

}  // namespace
}  // namespace nought::qlora_test
