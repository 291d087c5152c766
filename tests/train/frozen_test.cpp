// Frozen parameters stay what they were and change no bit of what is trained, take no gradient, master, state or
// reduction, and are in checkpoints once; at every stage, with every number of ranks.
#include <filesystem>
#include <fstream>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"

namespace nought::frozen_test {
namespace {

namespace fs = std::filesystem;
using test::expect_same_bits;
using test::sharded;
using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;
using testing::AllOf;
using testing::HasSubstr;

const Freezing kHeadOnly{{"."}, {"lm_head"}};
const Freezing kNormsOnly{{"."}, {"norm"}};
const Freezing kBottom{{"embed", "layers\\.0\\."}, {}};
const Freezing kTop{{"lm_head", "layers\\.2\\.", "model\\.norm"}, {}};

TrainingCase frozen(const Freezing& freezing, bool tied = false) {
  TrainingCase each = test::learning(small_model("grouped_heads", 3));
  each.steps.end = 3, each.rows.of_step = 6, each.lr = 5e-3;
  each.freezing = freezing;
  each.model.tie_word_embeddings = tied;
  return each;
}

/// Without a run's choices of experts, the bias that helps to choose them is frozen.
std::vector<TrainingCase> frozen_cases() {
  std::vector<TrainingCase> all;
  for (const Freezing& freezing : {kHeadOnly, kNormsOnly, kBottom, kTop}) all.push_back(frozen(freezing));
  all.push_back(frozen({{"embed"}, {}}, true));
  all.push_back(frozen({{"layers"}, {}}, true));
  for (const Freezing& freezing : {Freezing{}, Freezing{{"experts", "embed"}, {"shared_experts"}}}) {
    all.push_back(frozen(freezing));
    all.back().model = small_model("latent");
  }
  return all;
}

/// The parameters of the case that are trained.
std::set<std::string> trained(const TrainingCase& each) {
  std::set<std::string> names;
  Decoder decoder(each.model);
  apply(each.freezing, decoder);
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters())
      if (parameter.trainable) names.insert(parameter.name);
  return names;
}

test::WholeTensors start_of(TrainingCase each) {
  each.steps = {0, 0};
  return each.run().weights;
}

TEST(Frozen, stages_tiers_and_replicas_of_one_rank_agree_bit_for_bit) {
  const test::TempFolder folder;
  for (const TrainingCase& of : frozen_cases())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TrainingCase each = of.in(dtype);
      each.mesh = sharded(dtype == DType::f32 ? 3 : 2, 0);
      const TrainingResult first = test::same_at_every_stage(each);
      if (dtype == DType::f32) continue;
      each.mesh.stage = 3;
      // Some frozen segments stay in memory.
      TrainingCase in_files = each, replicas = each;
      in_files.settings.offload_param = {.tier = {Pool::file, folder.path().string()}, .in_memory = 3000};
      expect_same_bits(in_files.run(), first);
      replicas.mesh.sizes = {.replicate = 2};
      expect_same_bits(replicas.run(), first);
    }
}

TEST(Frozen, replicas_of_two_ranks_follow_two_ranks) {
  for (TrainingCase each : frozen_cases()) {
    each.mesh = sharded(2, 0);
    const TrainingResult two = each.run();
    each.mesh = {.sizes = {.replicate = 3, .shard = 2}, .stage = 3};
    expect_losses_within(each.run(), two, 1e-4);
  }
}

TEST(Frozen, what_is_frozen_stays_and_all_else_moves) {
  for (const TrainingCase& each : frozen_cases()) {
    SCOPED_TRACE(each.str());
    const test::WholeTensors before = start_of(each), after = each.run().weights;
    const std::set<std::string> moves = trained(each);
    for (const auto& [name, values] : after) EXPECT_EQ(values != before.at(name), moves.contains(name)) << name;
  }
}

/// Whether an optimizer holds them or nobody does, they start alike, in bf16 too.
TEST(Frozen, starts_from_the_same_bits_as_what_is_trained) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 3}) {
      TrainingCase some = frozen(kHeadOnly).in(dtype), all = frozen({}).in(dtype);
      some.mesh = all.mesh = sharded(2, stage);
      expect_same_bits(start_of(some), start_of(all));
    }
}

TEST(Frozen, the_gradients_of_the_rest_are_the_same_bits_as_when_all_is_trained) {
  for (TrainingCase each : frozen_cases())
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      each.recompute = recompute;
      each.recompute.checkpoints = recompute == Recompute::full ? 2 : 0;
      SCOPED_TRACE(each.str());
      TrainingCase whole = each;
      whole.freezing = {};
      test::WholeTensors some = each.gradients(), all = whole.gradients();
      const std::set<std::string> names = trained(each);
      std::erase_if(all, [&](const auto& entry) { return !names.contains(entry.first); });
      expect_same_bits(some, all);
    }
}

TEST(Frozen, recompute_accumulation_and_buckets_change_no_bit) {
  for (TrainingCase each : frozen_cases())
    for (const int stage : {0, 2, 3}) {
      each.mesh = sharded(2, stage), each.accumulation = 3;
      const TrainingResult plain = each.run();
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        TrainingCase other = each;
        other.recompute = recompute;
        other.recompute.contiguous = recompute == Recompute::full;
        other.settings.reduce_bucket = other.settings.gather_bucket = recompute == Recompute::full ? 4000 : 1'000'000;
        expect_same_bits(other.run(), plain);
      }
    }
}

TEST(Frozen, the_choice_bias_of_experts_is_never_trained) {
  for (const bool decay_all : {false, true}) {
    TrainingCase each = frozen({});
    each.model = small_model("latent");
    each.mesh = sharded(2, 2);
    each.settings.optimizer.decay_all = decay_all;
    const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
    EXPECT_FALSE(each.gradients().contains(bias));
    each.on_ranks([&](TrainingRank& rank) {
      // Something that a decay would move.
      for (size_t unit = 0; unit < rank.decoder.units().size(); ++unit)
        rank.model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& values) {
          if (parameter.name == bias)
            for (float& value : values.span<float>()) value = 0.25F;
        });
      for (int64_t step = 0; step < 3; ++step) rank.step(step);
      EXPECT_THAT(rank.weights()[bias], testing::Each(0.25F));
      for (const auto& state : rank.model.optimizer().owned()) EXPECT_NE(state.parameter->name, bias);
    });
  }
}

/// Elements of all segments, padded to equal shards: those that are trained, or the others; of Units from `first` on.
int64_t padded(const Model& model, int ranks, bool trained_ones, size_t first = 0) {
  int64_t sum = 0;
  for (size_t unit = first; unit < model.units().size(); ++unit)
    for (const Segment& segment : model.units()[unit]->segments())
      if (segment.trainable == trained_ones) sum += Partition(segment.size, ranks).padded();
  return sum;
}

TEST(FrozenCosts, of_memory_are_what_the_formulas_say_to_the_byte) {
  for (const TrainingCase& of : frozen_cases())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [ranks, stage] : {std::pair(1, 0), {2, 1}, {3, 0}, {3, 1}, {3, 2}, {3, 3}}) {
        TrainingCase each = of.in(dtype);
        each.mesh = sharded(ranks, stage);
        SCOPED_TRACE(each.str());
        each.on_ranks([&, &ranks = ranks, &stage = stage](TrainingRank& rank) {
          rank.step(0);
          rank.model.settle();
          const MemoryLedger& ledger = rank.context.memory->ledger();
          const int64_t trains = padded(rank.decoder, ranks, true), stays = padded(rank.decoder, ranks, false);
          const auto share = [&](int64_t elements, int from) { return stage >= from ? elements / ranks : elements; };
          const int64_t element = size_of(dtype), master = dtype == DType::f32 ? 0 : 4;
          int64_t updated = 0;  // a shard that is nothing but padding has no moments
          for (const SegmentIndex at : segments_of(rank.decoder.units(), true)) {
            const Partition partition(rank.decoder.units()[at.unit]->segments()[at.segment].size, ranks);
            const bool empty = partition.owned(rank.world.rank()).begin >= partition.size();
            updated += stage == 0 ? partition.padded() : empty ? 0 : partition.shard();
          }
          EXPECT_EQ(ledger.current(Category::parameters), element * share(trains + stays, 3));
          EXPECT_EQ(ledger.current(Category::gradients), element * share(trains, 2));
          EXPECT_EQ(ledger.current(Category::optimizer), master * share(trains, 1) + 8 * updated);
        });
      }
}

TEST(FrozenCosts, of_traffic_are_what_the_formulas_say_to_the_element) {
  for (TrainingCase each : frozen_cases())
    for (const int ranks : {1, 3})
      for (const int stage : {0, 1, 2, 3}) {
        each.mesh = sharded(ranks, stage), each.settings.overlap = stage % 2 == 1;
        SCOPED_TRACE(each.str());
        each.on_ranks([&](TrainingRank& rank) {
          rank.step(0);
          const Traffic before = rank.world.traffic();
          rank.step(1);
          const Traffic after = rank.world.traffic();
          const auto sent = [&](Collective::Kind collective) {
            return after[collective].elements - before[collective].elements;
          };
          const auto once = [&](int64_t elements) { return elements * (ranks - 1) / ranks; };
          const auto all_from = [&](size_t first) {
            return padded(rank.decoder, ranks, true, first) + padded(rank.decoder, ranks, false, first);
          };
          size_t lowest = 0;
          while (!rank.decoder.units()[lowest]->trained()) ++lowest;
          const int64_t trains = once(padded(rank.decoder, ranks, true));
          EXPECT_EQ(sent(Collective::reduce_scatter), trains);
          // At stage 3 all Units are gathered forward, and back those that the walk comes to; a tied head gathers the
          // embedding once more each way.
          const int64_t tied = each.model.tie_word_embeddings ? 2 * once(all_from(0) - all_from(1)) : 0;
          EXPECT_EQ(sent(Collective::all_gather), stage == 3 ? once(all_from(0) + all_from(lowest)) + tied : trains);
        });
      }
}

/// Below the lowest trained Unit nothing is kept for the backward pass.
TEST(FrozenCosts, activations_of_what_is_not_walked_back_are_not_kept) {
  const auto peak = [](const Freezing& freezing) {
    return frozen(freezing).on_rank(0, [](TrainingRank& rank) {
      rank.step(0);
      return rank.context.memory->ledger().peak(Category::activations);
    });
  };
  EXPECT_LT(peak(kHeadOnly), peak({}) / 3);
  EXPECT_LT(peak(kBottom), peak({}));
}

TEST(FrozenCheckpoint, resumes_bit_for_bit_at_any_stage_and_number_of_ranks) {
  const test::TempFolder drive;
  for (const TrainingCase& of : frozen_cases()) {
    TrainingCase whole = of.in(DType::bf16);
    whole.mesh = sharded(2, 2), whole.steps.end = 4;
    const TrainingResult expected = whole.run();
    TrainingCase other = whole;
    for (const int stage : {0, 3}) {
      other.mesh.stage = stage;
      if (stage == 3) other.settings.offload_param = {.tier = {Pool::file, drive.path().string()}};
      expect_same_bits(test::resumed_at(2, whole, other), expected, 2);
    }
    TrainingCase three = whole;
    three.mesh = sharded(3, 3);
    EXPECT_NEAR(test::resumed_at(2, whole, three).losses[0], expected.losses[2], 1e-2);
  }
}

TEST(FrozenCheckpoint, holds_values_of_what_is_frozen_in_its_own_dtype_and_nothing_else_of_it) {
  const test::TempFolder folder;
  TrainingCase each = frozen(kHeadOnly).in(DType::bf16);
  each.mesh = sharded(2, 3), each.steps.end = 1, each.saved = folder.path().string();
  each.run();
  const fs::path path = last_checkpoint(folder.path());
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
  const std::set<std::string> has_states = trained(each);
  const Decoder decoder(each.model);
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters())
      EXPECT_EQ(elements[parameter.name], parameter.shape.numel() * (has_states.contains(parameter.name) ? 3 : 1));
}

TEST(FrozenCheckpoint, refuses_to_resume_with_another_set_of_frozen_parameters) {
  const test::TempFolder folder;
  TrainingCase each = frozen(kBottom);
  each.steps.end = 0, each.saved = folder.path().string();
  each.run();
  const auto message = [&](const Freezing& freezing) {
    Decoder decoder(each.model);
    apply(freezing, decoder);
    return test::message_of<ConfigError>(
        [&] { Checkpoint(last_checkpoint(folder.path()), decoder).require_same_frozen(decoder); });
  };
  EXPECT_THAT(message({}), AllOf(HasSubstr("model.embed_tokens.weight was frozen and is trained now"),
                                 HasSubstr("training.freeze")));
  EXPECT_THAT(message({{"embed", "layers\\.0\\.", "lm_head"}, {}}),
              HasSubstr("lm_head.weight was trained and is frozen now"));
  EXPECT_EQ(message(kBottom), "");
}

}  // namespace
}  // namespace nought::frozen_test
