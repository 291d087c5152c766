// What is proposed fits, keeps the batch, and changes least first; a budget refuses with the ledger.
#include "nought/plan/advice.h"

#include <set>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/text.h"
#include "nought/models/adapter_modules.h"

namespace nought::advice_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig small_model() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 1024},
                                 {"intermediate_size", 2816},
                                 {"num_hidden_layers", 12},
                                 {"num_attention_heads", 16},
                                 {"max_position_embeddings", 2048}});
}

Layout on(int ranks) {
  return {.ranks = ranks,
          .micro_batch = 8,
          .seq_length = 1024,
          .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
}

NOUGHT_SIZE(medium);
TEST(Advice, what_is_proposed_fits_and_keeps_the_batch) {
  const Layout layout = on(4);
  const int64_t budget = predict(small_model(), layout).memory.peak_total / 2;
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = budget});
  ASSERT_FALSE(all.empty());
  for (const Advice& each : all) {
    EXPECT_LE(each.prediction.memory.peak_total, budget) << each.change;
    EXPECT_EQ(each.prediction.layout.tokens_per_step(), layout.tokens_per_step()) << each.change;
  }
}

TEST(Advice, the_least_intrusive_change_comes_first) {
  const Layout layout = on(4);
  const int64_t at_stage_1 = predict(small_model(), layout.at_zero_stage(1)).memory.peak_total;
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = at_stage_1});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().change, "zero_optimization.stage 1");
}

TEST(Advice, offers_the_base_of_an_adapter_in_4_bits_before_files) {
  const ModelConfig base = small_model();
  const ModelConfig config =
      with_adapter(base, resolve_adapter({.r = 8, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
  Layout layout = on(1);
  layout.micro_batch = 1, layout.seq_length = 128;
  const int64_t peak = predict(config, layout).memory.peak_total;
  const auto in_codes = HasSubstr("quantization_config.load_in_4bit");
  const std::vector<Advice> beside = changes_that_fit(config, layout, {.device = peak - 1});
  ASSERT_GE(beside.size(), 2u);
  EXPECT_THAT(beside.back().change, in_codes) << "others change no number";
  EXPECT_THAT(beside.front().change, Not(in_codes));
  const std::vector<Advice> first = changes_that_fit(config, layout, {.device = peak / 2});
  ASSERT_FALSE(first.empty());
  EXPECT_THAT(first.front().change, in_codes);
  EXPECT_LE(first.front().prediction.memory.peak_total, peak / 2);
  EXPECT_EQ(with_four_bits(base, layout), std::nullopt) << "codes are not trained";
}

TEST(Advice, one_rank_has_nothing_to_shard) {
  const Layout layout = on(1);
  const int64_t budget = predict(small_model(), layout).memory.peak_total - 1;
  for (const Advice& each : changes_that_fit(small_model(), layout, {.device = budget})) {
    EXPECT_EQ(each.prediction.layout.zero_stage, 0);
    EXPECT_THAT(each.change, ::testing::Not(HasSubstr("stage")));
  }
}

/// ZeRO shards over ranks that share sequences, too.
TEST(Advice, ranks_that_share_sequences_have_states_to_shard) {
  Layout layout = on(2);
  layout.context_ranks = 2, layout.context_method = ContextMethod::ring;
  const int64_t at_stage_1 = predict(small_model(), layout.at_zero_stage(1)).memory.peak_total;
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = at_stage_1});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front().change, "zero_optimization.stage 1");
}

/// A long row: 8192 tokens of a hidden size of 1024.
TEST(Advice, long_rows_may_have_their_mlps_in_tiles) {
  Layout layout = on(1), tiled = on(1), full = on(1);
  for (Layout* each : {&layout, &tiled, &full}) each->micro_batch = 1, each->seq_length = 8192;
  layout.recompute.mode = tiled.recompute.mode = full.recompute.mode = Recompute::full;
  layout.recompute.tier.pool = tiled.recompute.tier.pool = Pool::host;  // no other change is left
  tiled.recompute.mlp_tiles = 0;
  const int64_t budget = predict(small_model(), tiled).memory.peak_total;
  EXPECT_LT(budget, predict(small_model(), layout).memory.peak_total);
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = budget});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].change, "training.tiled_mlp true");
  for (const Advice& each : changes_that_fit(small_model(), tiled, {.device = budget - 1}))
    EXPECT_THAT(each.change, Not(HasSubstr("tiled_mlp"))) << "it is in tiles already";
}

int64_t peak_of(const Layout& layout) { return predict(small_model(), layout).memory.peak_total; }

NOUGHT_SIZE(medium);
TEST(Advice, validations_follow_the_micro_batch_unless_their_size_was_given) {
  Layout layout = on(1), smallest = on(1);
  layout.recompute.mode = smallest.recompute.mode = Recompute::full;
  layout.recompute.tier.pool = smallest.recompute.tier.pool =
      Pool::host;  // so that nothing but batches is left to change
  layout.evaluation_rows = 8, layout.evaluation_follows = true;
  smallest.micro_batch = smallest.evaluation_rows = 1, smallest.accumulation = 8;
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = peak_of(smallest)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].change, "micro-batch 1 with accumulation 8");
  EXPECT_EQ(all[0].prediction.layout.evaluation_rows, 1);
}

TEST(Advice, validations_that_are_too_large_get_fewer_rows_before_training_changes) {
  Layout layout = on(1);
  layout.micro_batch = 1, layout.evaluation_rows = 64;
  Layout fewer = layout;
  fewer.evaluation_rows = 16;
  ASSERT_GT(peak_of(layout), peak_of(fewer)) << "choose a size at which validations decide";
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = peak_of(fewer)});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].change, "training.per_device_eval_batch_size 16");
  EXPECT_THAT(describe_changes(small_model(), layout, {.device = peak_of(fewer)}),
              HasSubstr("would fit: training.per_device_eval_batch_size 16, which takes"));
}

NOUGHT_SIZE(medium);
TEST(Advice, suggestions_with_the_same_number_are_one) {
  for (const int ranks : {1, 2, 4})
    for (const double part : {0.95, 0.8, 0.6}) {
      const auto budget = static_cast<int64_t>(part * static_cast<double>(peak_of(on(ranks))));
      std::set<std::string> peaks;
      const std::vector<Advice> all = changes_that_fit(small_model(), on(ranks), {.device = budget});
      for (const Advice& each : all) peaks.insert(format_bytes(each.prediction.memory.peak_total));
      EXPECT_EQ(peaks.size(), all.size()) << describe_changes(small_model(), on(ranks), {.device = budget});
    }
}

TEST(Advice, states_move_to_files_where_nothing_else_is_enough) {
  Layout layout = on(1), moved = on(1);
  moved.sharding.offload_optimizer.tier.pool = Pool::file;
  layout.micro_batch = moved.micro_batch = 1;
  const std::string to_files = "zero_optimization.offload_optimizer.device nvme";
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = peak_of(moved)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].change, to_files);
  EXPECT_LE(all[0].prediction.memory.peak_total, peak_of(moved));
  for (const Advice& each : changes_that_fit(small_model(), layout, {.device = peak_of(moved) - 1}))
    EXPECT_THAT(each.change, ::testing::StartsWith(to_files + " and ")) << each.change;
}

TEST(Advice, inputs_of_blocks_move_to_files_last) {
  Layout layout = on(1);
  layout.micro_batch = 1;
  layout.recompute = Recompute::full, layout.recompute.tier.pool = Pool::host;
  layout.recompute.mlp_tiles = 0, layout.recompute.unit_tiles = 2;  // nothing else is left
  layout = layout.at_zero_stage(3);
  layout.sharding.offload_optimizer.tier.pool = layout.sharding.offload_param.tier.pool = Pool::file;
  layout.sharding.offload_optimizer.gradients_in_file = true;
  const auto ram_of = [](const Layout& of) { return predict(small_model(), of).memory.ram_peak; };
  Layout moved = layout;
  moved.recompute.tier.pool = Pool::file;
  ASSERT_LT(ram_of(moved), ram_of(layout));
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.host = ram_of(moved)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].change, "training.recompute full with training.offload_inputs file");
  EXPECT_EQ(all[0].prediction.memory.ram_peak, ram_of(moved));
}

TEST(Advice, gradients_that_the_run_keeps_in_memory_stay_there_when_all_else_moves) {
  const auto with_all_in_files = [](bool gradients_stay) {
    Layout layout = on(1);
    layout.micro_batch = 1, layout.seq_length = 128, layout.gradients_stay = gradients_stay;
    layout.recompute = Recompute::full, layout.recompute.tier.pool = Pool::host, layout.recompute.mlp_tiles = 2;
    Layout moved = layout.at_zero_stage(3);
    moved.sharding.offload_optimizer.tier.pool = moved.sharding.offload_param.tier.pool = Pool::file;
    moved.sharding.offload_optimizer.gradients_in_file = !gradients_stay;
    const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.device = peak_of(moved)});
    return all.empty() ? OffloadOptions{} : all.back().prediction.layout.sharding.offload_optimizer;
  };
  EXPECT_EQ(with_all_in_files(/*gradients_stay=*/false).gradients(), Pool::file);
  const OffloadOptions kept = with_all_in_files(/*gradients_stay=*/true);
  EXPECT_EQ(kept.tier.pool, Pool::file);
  EXPECT_NE(kept.gradients(), Pool::file);
}

TEST(Advice, a_budget_of_the_host_counts_all_that_is_in_its_ram) {
  const Layout layout = on(4);
  const int64_t peak = predict(small_model(), layout).memory.ram_peak;
  EXPECT_TRUE(MemoryBudgets{.host = peak}.hold(predict(small_model(), layout).memory));
  EXPECT_FALSE(MemoryBudgets{.host = peak - 1}.hold(predict(small_model(), layout).memory));
  const std::vector<Advice> all = changes_that_fit(small_model(), layout, {.host = peak - 1});
  ASSERT_FALSE(all.empty());
  for (const Advice& each : all) EXPECT_LT(each.prediction.memory.ram_peak, peak) << each.change;
}

NOUGHT_SIZE(medium);
TEST(Advice, with_rates_says_how_much_longer_a_step_takes_and_begins_with_the_least) {
  const Layout layout = on(1);
  Layout full = layout;
  full.recompute.mode = Recompute::full;
  const MemoryBudgets budgets{.device = peak_of(full)};
  const MachineRates rates{.flops = 1e11, .memory = 1e10, .read = 1e9, .write = 1e9, .note = {}};
  const double now = step_time(small_model(), predict(small_model(), layout), rates).seconds();
  const double longer = step_time(small_model(), predict(small_model(), full), rates).seconds() / now - 1;
  EXPECT_GT(longer, 0.2);
  const std::string text = describe_changes(small_model(), layout, budgets, rates);
  const size_t line = text.find("would fit: training.recompute full, which takes ");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_EQ(text.rfind("would fit"), line) << "what costs most comes last";
  EXPECT_THAT(text, HasSubstr(fmt::format(", and {:.0f}% more time per step\n", 100 * longer)));
  EXPECT_THAT(describe_changes(small_model(), layout, budgets), Not(HasSubstr("more time")));
}

NOUGHT_SIZE(medium);
TEST(Advice, says_what_is_needed_at_least_when_nothing_fits) {
  ModelConfig flat = small_model();
  flat.num_layers = 2;
  const std::string text = describe_changes(flat, on(1), {.device = int64_t{1} << 20});
  EXPECT_THAT(text, HasSubstr("the least that 1 rank can do is"));
  EXPECT_THAT(text, HasSubstr("\"cpu\" as the device of offload_optimizer or offload_param saves nothing"));
}

TEST(Budget, a_refusal_prints_the_ledger_and_the_largest_buffers) {
  const auto memory = Memory::create();
  memory->set_limit(1 << 20);
  const auto half = memory->allocate(1 << 19, Category::optimizer);
  try {
    memory->allocate((1 << 19) + 64, Category::activations);
    FAIL() << "the budget was exceeded";
  } catch (const MemoryLimitError& refusal) {
    for (const char* part : {"budget of 1.00 MiB", "activations", "optimizer", "largest: 1 x 512.0 KiB optimizer"})
      EXPECT_THAT(refusal.what(), HasSubstr(part));
  }
  EXPECT_NO_THROW(memory->allocate(1 << 19, Category::activations));
}

}  // namespace
}  // namespace nought::advice_test
