// What is predicted is what happens: peaks by category, steady state and traffic of real steps on thread ranks.
#include "support/agreement.h"

#include "support/schedules.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/models/adapter_modules.h"

namespace nought::agreement_test {
namespace {

using test::expect_agreement;
using test::kLarge;
using test::measure;
using test::Measurement;
using test::model_of;

struct Combination {
  std::string family;
  int ranks, stage;
  DType dtype;
  RecomputeOptions recompute;
  bool overlap;
  int64_t accumulation;
  DType wire;  // of gradients
  bool masters;
  int64_t bucket;
};

/// Stages x ranks x recompute in full; family, dtype, overlap and accumulation take turns.
std::vector<Combination> combinations() {
  std::vector<Combination> all;
  const std::array<std::string, 5> families{"llama", "gpt2", "mixtral", "qwen2", "deepseek_v2"};
  RecomputeOptions grouped = Recompute::full, hosted = Recompute::full;
  grouped.checkpoints = 2, grouped.contiguous = true;
  hosted.tier.pool = Pool::host;
  int i = 0;
  for (const int ranks : {1, 2, 3, 4})
    for (const int stage : {0, 1, 2, 3})
      for (const RecomputeOptions& recompute :
           {RecomputeOptions(Recompute::none), RecomputeOptions(Recompute::selective),
            RecomputeOptions(Recompute::full), grouped, hosted}) {
        if (ranks == 1 && stage > 1) continue;
        all.push_back({families[static_cast<size_t>(i % 7 % 5)], ranks, stage, (i / 2) % 2 ? DType::bf16 : DType::f32,
                       recompute, i % 5 < 3, 1 + (i / 3) % 2,
                       i % 4 == 3    ? DType::f32
                       : (i / 2) % 2 ? DType::bf16
                                     : DType::f32,
                       (i / 2) % 2 == 0 || i % 3 != 0, std::array<int64_t, 4>{0, 300'000, 0, 500'000'000}[i % 4]});
        ++i;
      }
  return all;
}

/// The number of one of the five ways to recompute.
int way_of(const RecomputeOptions& recompute) {
  return static_cast<int>(recompute.mode) + static_cast<int>(recompute.checkpoints) +
         (recompute.tier.pool == Pool::host ? 1 : 0);
}

/// At least `least` of them are large enough in each category to say something.
void expect_peaks_to_agree(const std::vector<Combination>& all, int least) {
  std::array<int, kNumCategories> checked{};
  for (const Combination& each : all) {
    const Layout layout{.ranks = each.ranks,
                        .zero_stage = each.stage,
                        .micro_batch = 2,
                        .seq_length = 128,
                        .accumulation = each.accumulation,
                        .recompute = each.recompute,
                        .fp8 = {.scaling = each.dtype == DType::bf16 && each.wire == DType::f32 ? Fp8Scaling::delayed
                                                                                                : Fp8Scaling::none},
                        .sharding = {.dtype = each.dtype,
                                     .gradient_dtype = each.dtype,
                                     .overlap = each.overlap,
                                     .optimizer = {.state_dtype = each.masters ? DType::f32 : DType::bf16,
                                                   .master_weights = each.masters},
                                     .wire_dtype = each.wire,
                                     .reduce_bucket = each.bucket,
                                     .gather_bucket = each.bucket},
                        .wire = Wire::threads};
    SCOPED_TRACE(fmt::format("{} on {} ranks in {}, {}, overlap {}, buckets of {}", each.family, each.ranks,
                             name_of(each.dtype), layout.str(), each.overlap, each.bucket));
    const ModelConfig config = model_of(each.family);
    const Prediction predicted = predict(config, layout);
    const Measurement measured = measure(config, layout);
    expect_agreement(predicted, measured);
    EXPECT_EQ(measured.late_allocations, 0);
    EXPECT_EQ(measured.memory.fragmentation, 0);
    for (size_t c = 0; c < kNumCategories; ++c) checked[c] += predicted.memory.peak[c] >= kLarge;
  }
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations, Category::workspace})
    EXPECT_GE(checked[static_cast<size_t>(category)], least) << name_of(category) << " is too small to say anything";
}

/// One rank count above one for each stage and way to recompute, in turns; and one rank.
NOUGHT_SIZE(medium);
TEST(Agreement, predicted_and_measured_peaks_agree_within_2_percent) {
  std::vector<Combination> some;
  for (const Combination& each : combinations())
    if (each.ranks == 1 ? each.stage == 0 && each.recompute.mode == Recompute::full
                        : (each.stage + way_of(each.recompute)) % 3 == each.ranks - 2)
      some.push_back(each);
  ASSERT_EQ(some.size(), 23u);
  expect_peaks_to_agree(some, 6);
}

NOUGHT_SIZE(long);
TEST(Agreement, predicted_and_measured_peaks_agree_within_2_percent_in_every_combination) {
  const std::vector<Combination> all = combinations();
  ASSERT_GE(all.size(), 70u);
  expect_peaks_to_agree(all, 20);
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_the_partial_sums_of_virtual_ranks) {
  for (const auto& [ranks, stage, accumulation] :
       {std::array{1, 0, 8}, std::array{2, 1, 4}, std::array{2, 2, 8}, std::array{4, 3, 2}}) {
    const Layout layout{.ranks = ranks,
                        .zero_stage = stage,
                        .micro_batch = 2,
                        .seq_length = 64,
                        .accumulation = accumulation,
                        .sharding = {.dtype = DType::bf16,
                                     .gradient_dtype = DType::f32,
                                     .reduce_bucket = stage == 2 ? 300'000 : 0,
                                     .virtual_ranks = ranks * accumulation},
                        .wire = Wire::threads};
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, layout.str()));
    const ModelConfig config = model_of("llama");
    expect_agreement(predict(config, layout), measure(config, layout));
  }
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_frozen_parameters) {
  const Freezing head{{"."}, {"lm_head|wte"}}, norms{{"."}, {"norm|ln_"}}, bottom{{"layers\\.0\\.|h\\.0\\."}, {}};
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const Freezing& freezing : {head, norms, bottom}) {
      const char* family = std::array{"llama", "gpt2", "mixtral", "deepseek_v2"}[(i + stage) % 4];
      RecomputeOptions recompute = std::array{Recompute::none, Recompute::selective, Recompute::full}[i % 3];
      if (i % 6 == 5) recompute.checkpoints = 2, recompute.contiguous = true;
      ShardingOptions sharding{.dtype = DType::bf16, .gradient_dtype = DType::bf16, .overlap = i % 5 < 3};
      if (i % 4 == 1) sharding.reduce_bucket = sharding.gather_bucket = 300'000;
      Layout layout;
      layout.ranks = 2 + i % 2, layout.accumulation = 1 + i % 2;
      layout.zero_stage = stage, layout.micro_batch = 2, layout.seq_length = 64;
      layout.recompute = recompute, layout.freezing = freezing, layout.sharding = sharding;
      layout.wire = Wire::threads;
      SCOPED_TRACE(fmt::format("{}, freeze {}, {}", family, freezing.freeze[0], layout.str()));
      const ModelConfig config = model_of(family);
      const Prediction predicted = predict(config, layout);
      const Measurement measured = measure(config, layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      EXPECT_GT(predicted.frozen, 0);
      EXPECT_LT(predicted.executed_flops, predict(config,
                                                  [&] {
                                                    Layout all = layout;
                                                    all.freezing = {};
                                                    return all;
                                                  }())
                                              .executed_flops);
      ++i;
    }
}

/// At every stage, with ways to recompute and families in turns.
NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_adapters) {
  for (const int stage : {0, 1, 2, 3}) {
    ModelConfig config = model_of(stage % 2 == 0 ? "llama" : "gpt2");
    const bool all = stage < 2;
    config.adapter = resolve_adapter({.r = 8, .targets = all ? LayerChoice{.pattern = "all-linear"} : LayerChoice{}},
                                     config, "RUN.json");
    config.adapter.dropout = stage % 2 == 0 ? 0.05 : 0;
    const Layout layout{
        .ranks = 2,
        .zero_stage = stage,
        .micro_batch = 2,
        .seq_length = 128,
        .accumulation = 1 + stage % 2,
        .recompute = std::array{Recompute::none, Recompute::selective, Recompute::full, Recompute::none}[stage],
        .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
        .wire = Wire::threads};
    SCOPED_TRACE(layout.str());
    const Prediction predicted = predict(config, layout);
    const Measurement measured = measure(config, layout);
    expect_agreement(predicted, measured);
    EXPECT_EQ(measured.late_allocations, 0);
    EXPECT_LT(predicted.parameters - predicted.frozen, predicted.parameters / 10);
  }
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_optimizer_states_in_files) {
  const test::TempFolder folder;
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const bool muon : {false, true}) {
      const char* family = std::array{"llama", "mixtral", "gpt2"}[i % 3];
      Layout layout{.ranks = 1 + i % 3,
                    .zero_stage = stage,
                    .micro_batch = 2,
                    .seq_length = 64,
                    .accumulation = 1 + i % 2,
                    .sharding = {.dtype = i % 4 == 3 ? DType::f32 : DType::bf16,
                                 .gradient_dtype = i % 4 == 3 ? DType::f32 : DType::bf16},
                    .wire = Wire::threads};
      if (muon) layout.sharding.optimizer.method = MuonOptions{};
      layout.sharding.offload_optimizer = {
          .tier = {Pool::file, folder.path().string(), {.backend = AioBackend::threads}},
          .sub_group = i % 3 == 0 ? 25'000 : OffloadOptions::kMostElements,
          .reads_ahead = i % 2 == 0,
          .writes_behind = i % 3 == 0,
          .buffers = 12,
          .ratio = i % 3 == 0 ? 0.6 : 1};
      SCOPED_TRACE(fmt::format("{}, {}, muon {}", family, layout.str(), muon));
      const ModelConfig config = model_of(family);
      const Prediction predicted = predict(config, layout);
      const Measurement measured = measure(config, layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      const auto optimizer = static_cast<size_t>(Category::optimizer);
      EXPECT_EQ(predicted.memory.peak[optimizer] > 0, layout.sharding.offload_optimizer.ratio < 1);
      EXPECT_GT(predicted.memory.file[optimizer], kLarge);
      EXPECT_GT(predicted.states.read, kLarge);
      ++i;
    }
}

/// Micro-batches beyond those that the dry run has bring the same again.
NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_parameters_in_files) {
  const test::TempFolder folder;
  int i = 0;
  for (const int ranks : {1, 2})
    for (const int accumulation : {1, 5})
      for (const bool states : {false, true}) {
        const char* family = std::array{"llama", "mixtral", "qwen2"}[i % 3];
        Layout layout{.ranks = ranks,
                      .zero_stage = 3,
                      .micro_batch = 1,
                      .seq_length = 64,
                      .accumulation = accumulation,
                      .recompute = i % 2 == 0 ? Recompute::full : Recompute::none,
                      .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16, .overlap = i % 4 != 1},
                      .wire = Wire::threads,
                      .evaluation_rows = i == 2 ? 3 : 0};
        layout.sharding.offload_param = {.tier = {Pool::file, folder.path().string()},
                                         .buffers = 1 + i % 4,
                                         .buffer_size = 125'000,
                                         .in_memory = i % 5 == 3 ? 75'000 : 0};
        if (states)
          layout.sharding.offload_optimizer = {
              .tier = {Pool::file, folder.path().string()}, .reads_ahead = true, .buffers = 8};
        SCOPED_TRACE(fmt::format("{}, {}, {} ranks", family, layout.str(), ranks));
        const ModelConfig config = model_of(family);
        const Prediction predicted = predict(config, layout);
        const Measurement measured = measure(config, layout);
        expect_agreement(predicted, measured);
        if (layout.evaluation_rows == 0) {
          EXPECT_EQ(measured.late_allocations, 0);
        }
        const auto parameters = static_cast<size_t>(Category::parameters);
        EXPECT_EQ(predicted.memory.peak, measured.memory.peak) << "to the byte";
        EXPECT_EQ(predicted.memory.peak_total, measured.memory.peak_total);
        EXPECT_GT(predicted.memory.file[parameters], kLarge);
        EXPECT_LT(predicted.steady[parameters], layout.sharding.offload_param.in_memory * 2 + 1);
        EXPECT_GT(predicted.states.read, accumulation * predicted.memory.file[parameters]);
        ++i;
      }
}

NOUGHT_SIZE(long);
TEST(Agreement, holds_with_gradients_in_files) {
  const test::TempFolder folder;
  int i = 0;
  for (const int ranks : {1, 2})
    for (const int accumulation : {1, 2, 5})
      for (const bool all : {false, true}) {
        const char* family = std::array{"llama", "mixtral", "qwen2"}[i % 3];
        Layout layout{.ranks = ranks,
                      .zero_stage = all ? 3 : 2,
                      .micro_batch = 1,
                      .seq_length = 64,
                      .accumulation = accumulation,
                      .recompute = i % 4 == 0 ? Recompute::full : Recompute::none,
                      .sharding = {.dtype = DType::bf16,
                                   .gradient_dtype = i % 5 == 4 ? DType::f32 : DType::bf16,
                                   .overlap = i % 4 != 3,
                                   .wire_dtype = DType::bf16,
                                   .reduce_bucket = i % 4 == 2 ? 300'000 : 0},
                      .wire = Wire::threads};
        layout.sharding.offload_optimizer = {.tier = {Pool::file, folder.path().string()},
                                             .sub_group = i % 3 == 0 ? 25'000 : OffloadOptions::kMostElements,
                                             .reads_ahead = true,
                                             .writes_behind = i % 2 == 0,
                                             .buffers = 12,
                                             .early = i % 2 == 1 && !all,
                                             .gradients_in_file = true};
        if (all) layout.sharding.offload_param = {.tier = {Pool::file, folder.path().string()}, .buffers = 2};
        SCOPED_TRACE(fmt::format("{}, {}, {} ranks, {}", family, layout.str(), ranks, i));
        const ModelConfig config = model_of(family);
        const Prediction predicted = predict(config, layout);
        const Measurement measured = measure(config, layout);
        expect_agreement(predicted, measured);
        EXPECT_EQ(measured.late_allocations, 0);
        const auto gradients = static_cast<size_t>(Category::gradients);
        EXPECT_EQ(predicted.memory.peak, measured.memory.peak) << "to the byte";
        EXPECT_EQ(predicted.memory.peak_total, measured.memory.peak_total);
        EXPECT_EQ(predicted.steady[gradients], 0);
        EXPECT_GT(predicted.memory.file[gradients], kLarge);
        EXPECT_GE(predicted.of_gradients.written, accumulation * (predicted.memory.file[gradients] - kLarge));
        ++i;
      }
}

/// What undoing takes is in it: states twice, and parameters that have no masters. A wrong guess takes no more, but it
/// moves more.
NOUGHT_SIZE(long);
TEST(Agreement, holds_with_updates_that_can_be_undone) {
  const test::TempFolder folder;
  struct Each {
    int ranks, stage;
    DType dtype;
    bool masters, in_files;
  };
  for (const auto& [ranks, stage, dtype, masters, in_files] : {Each{1, 0, DType::bf16, true, true},
                                                               {2, 1, DType::f32, true, true},
                                                               {2, 3, DType::bf16, false, true},
                                                               {2, 2, DType::bf16, true, false},
                                                               {1, 0, DType::f32, true, false}}) {
    Layout layout{.ranks = ranks,
                  .zero_stage = stage,
                  .micro_batch = 2,
                  .seq_length = 64,
                  .accumulation = ranks,
                  .sharding = {.dtype = dtype, .gradient_dtype = dtype, .optimizer = {.master_weights = masters}},
                  .wire = Wire::threads};
    OffloadOptions& offload = layout.sharding.offload_optimizer;
    if (in_files)
      offload = {.tier = {Pool::file, folder.path().string(), {.backend = AioBackend::threads}},
                 .sub_group = ranks == 1 ? 25'000 : OffloadOptions::kMostElements,
                 .reads_ahead = true,
                 .writes_behind = true,
                 .buffers = 12};
    SCOPED_TRACE(fmt::format("{}, {}, files {}", layout.str(), name_of(dtype), in_files));
    const ModelConfig config = model_of("llama");
    offload.early = true;
    const Prediction sure = predict(config, layout);
    offload.undo = true;
    const Prediction predicted = predict(config, layout);
    const Measurement right = measure(config, layout),
                      wrong = measure(config, layout, /*documents=*/false, {}, /*limit=*/1e-6);
    expect_agreement(predicted, right);
    EXPECT_EQ(right.late_allocations, 0);
    EXPECT_EQ(wrong.memory.peak, right.memory.peak);
    EXPECT_EQ(wrong.memory.file, right.memory.file);
    const auto states = static_cast<size_t>(Category::optimizer);
    const auto kept = [&, in_files = in_files](const Prediction& of) {
      return in_files ? of.memory.file[states] : of.steady[states];
    };
    const double more = static_cast<double>(kept(predicted)) / static_cast<double>(kept(sure));
    EXPECT_GT(more, 1.9);
    EXPECT_LT(more, 2.6);
    if (in_files && dtype == DType::bf16 && masters) {
      EXPECT_EQ(predicted.memory.peak_total, sure.memory.peak_total) << "the files alone grow";
      EXPECT_EQ(predicted.states, sure.states) << "and nothing more moves";
    }
  }
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_updates_overlapped_with_passes) {
  const test::TempFolder folder;
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const bool delayed : {false, true})
      for (const bool in_files : {false, true}) {
        if (!delayed && !in_files) continue;
        const char* family = std::array{"llama", "mixtral", "gpt2"}[i % 3];
        Layout layout{.ranks = 1 + i % 3,
                      .zero_stage = stage,
                      .micro_batch = 2,
                      .seq_length = 64,
                      .accumulation = 1 + i % 2,
                      .sharding = {.dtype = i % 4 == 3 ? DType::f32 : DType::bf16,
                                   .gradient_dtype = i % 4 == 3 ? DType::f32 : DType::bf16,
                                   .optimizer = {.state_block = i % 5 == 4 ? 256 : 0}},
                      .wire = Wire::threads};
        OffloadOptions& offload = layout.sharding.offload_optimizer;
        if (in_files)
          offload = {.tier = {Pool::file, folder.path().string(), {.backend = AioBackend::threads}},
                     .sub_group = i % 3 == 0 ? 25'000 : OffloadOptions::kMostElements,
                     .reads_ahead = i % 2 == 0,
                     .writes_behind = true,
                     .buffers = 12};
        offload.early = !delayed;
        if (delayed) offload.delay_after = 0;
        SCOPED_TRACE(fmt::format("{}, {}, delayed {}, files {}", family, layout.str(), delayed, in_files));
        const ModelConfig config = model_of(family);
        const Prediction predicted = predict(config, layout);
        const Measurement measured = measure(config, layout);
        expect_agreement(predicted, measured);
        EXPECT_EQ(measured.late_allocations, 0);
        if (in_files) {
          EXPECT_GT(predicted.states.read, kLarge);
        }
        ++i;
      }
}

NOUGHT_SIZE(long);
TEST(Agreement, holds_with_several_micro_batches_in_flight) {
  int i = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const auto& [in_flight, accumulation] : {std::pair(2, 5), {4, 4}}) {
      const char* family = std::array{"llama", "mixtral", "qwen2"}[i % 3];
      RecomputeOptions recompute = std::array{Recompute::none, Recompute::selective, Recompute::full}[(i + i / 3) % 3];
      recompute.contiguous = i % 2 == 0;
      const bool deferred = i % 4 == 3;
      const Layout layout{
          .ranks = 2,
          .zero_stage = stage,
          .micro_batch = 1,
          .seq_length = 64,
          .accumulation = accumulation,
          .recompute = recompute,
          .sharding = {.overlap = i % 3 < 2},
          .wire = Wire::threads,
          .schedule = [=, in_flight = in_flight](int64_t n) { return test::staggered(n, in_flight, deferred); }};
      SCOPED_TRACE(fmt::format("{}, {}, {}", family, layout.str(), layout.schedule(accumulation).str()));
      const ModelConfig config = model_of(family);
      const Prediction predicted = predict(config, layout);
      const Measurement measured = measure(config, layout);
      expect_agreement(predicted, measured);
      EXPECT_EQ(measured.late_allocations, 0);
      EXPECT_EQ(predicted.in_flight, std::vector<int64_t>{in_flight});
      Layout plain = layout;
      plain.schedule = plain_schedule;
      const Prediction one = predict(config, plain);
      EXPECT_EQ(one.in_flight, std::vector<int64_t>{1});
      const auto activations = static_cast<size_t>(Category::activations);
      EXPECT_GT(predicted.memory.peak[activations], one.memory.peak[activations]);
      ++i;
    }
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_with_samples_of_text) {
  for (const auto& [family, stage, prompt] : {std::tuple("llama", 0, 5), {"llama", 3, 200}, {"gpt2", 0, 100}}) {
    const Layout layout{.ranks = 1 + stage / 3,
                        .zero_stage = stage,
                        .micro_batch = 1,
                        .seq_length = 16,
                        .wire = Wire::threads,
                        .sample_prompt = prompt,
                        .sample_new_tokens = 400};
    SCOPED_TRACE(fmt::format("{}, {}, a prompt of {}", family, layout.str(), prompt));
    const ModelConfig config = model_of(family);
    const Prediction predicted = predict(config, layout);
    expect_agreement(predicted, measure(config, layout));
    Layout silent = layout;
    silent.sample_prompt = 0;
    if (stage == 0) {  // at stage 3 a step needs more than a sample
      EXPECT_GT(predicted.memory.peak_total, predict(config, silent).memory.peak_total);
    }
    EXPECT_GT(predicted.memory.peak[static_cast<size_t>(Category::kv_cache)], 50'000);
  }
}

NOUGHT_SIZE(medium);
TEST(Agreement, holds_for_experts_with_a_capacity_packed_documents_and_validations) {
  for (const int stage : {0, 2, 3}) {
    const Layout layout{.ranks = 2,
                        .zero_stage = stage,
                        .micro_batch = 2,
                        .seq_length = 128,
                        .recompute = stage == 2 ? Recompute::full : Recompute::none,
                        .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16},
                        .wire = Wire::threads,
                        .evaluation_rows = 12};
    SCOPED_TRACE(layout.str());
    expect_agreement(predict(model_of("llama"), layout), measure(model_of("llama"), layout, /*documents=*/true));
    ModelConfig mixtral = model_of("mixtral");
    mixtral.experts->capacity_factor = 1.25;
    mixtral.experts->drop_tokens = false;
    expect_agreement(predict(mixtral, layout), measure(mixtral, layout));
    // All tokens here choose the same experts, and some are dropped: rows have as much room whatever is chosen.
    mixtral.experts->drop_tokens = true;
    const Prediction all_kept = predict(mixtral, layout);
    const Measurement some_dropped = measure(mixtral, layout);
    expect_agreement(all_kept, some_dropped);
    EXPECT_EQ(all_kept.memory.peak_total, some_dropped.memory.peak_total);
  }
}

}  // namespace
}  // namespace nought::agreement_test
