// The activations that each rank of a pipeline holds at its peak, by the ledger, beside the closed forms of the
// literature (arXiv 1811.06965, 2104.04473, 2401.10241): within 2 percent, for a model of equal layers.
//
// M is what a layer keeps of a micro-batch for its backward pass, and W what its deferred products of weight gradients
// keep behind it: tests/plan/activation_bytes_test.cpp derives both. The model's ends weigh next to nothing.
#include <algorithm>

#include "support/sweep.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::pipeline_peaks_test {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kMicroBatches = 8, kLayersPerRank = 32;
constexpr int64_t kTokens = 64, kHidden = 32, kHeads = 2, kMlp = 96, kVocabulary = 16;

ModelConfig equal_layers() {
  return test::small_model("grouped_heads", kRanks * kLayersPerRank,
                           {{"vocab_size", kVocabulary},
                            {"hidden_size", kHidden},
                            {"intermediate_size", kMlp},
                            {"num_attention_heads", kHeads},
                            {"num_key_value_heads", kHeads}});
}

/// What all layers of a rank keep of one micro-batch, in bytes of fp32: M and W.
constexpr int64_t kM =
    kLayersPerRank * 4 * kTokens * (4 * kHidden + 3 * kHidden + kHidden + 3 * kMlp + /*statistics*/ 2 + kHeads);
constexpr int64_t kW = kLayersPerRank * 4 * kTokens * ((3 * kHidden + kMlp) + (3 * kHidden + 2 * kMlp + 2 * kHidden));

/// The closed form of the peak on a rank.
int64_t closed_form(const Pipeline& pipeline, int64_t rank) {
  const int64_t p = pipeline.ranks, v = pipeline.chunks, m = kMicroBatches;
  switch (pipeline.schedule) {
    case PipelineSchedule::gpipe:
      return m * kM;
    case PipelineSchedule::one_f_one_b:
      return std::min(p - rank, m) * kM;
    case PipelineSchedule::interleaved:  // in chunks of 1 / v of the rank's layers
      return std::min(2 * (p - 1 - rank) + (v - 1) * p + 1, v * m) * kM / v;
    case PipelineSchedule::zbh1:
      return (p - rank) * kM + rank * kW;
    case PipelineSchedule::zbv:  // 2 p chunks of half the rank's layers, on every rank
      return p * kM;
  }
  return 0;
}

/// The peak of activations on every rank.
std::vector<int64_t> measured(const test::MeshLayout& layout) {
  test::TrainingCase each = test::learning(equal_layers(), layout);
  each.rows.of_step = each.accumulation = kMicroBatches, each.rows.length = kTokens;
  std::vector<int64_t> peaks(kRanks);
  each.on_ranks([&](test::TrainingRank& rank) {
    for (int step = 0; step < test::sweep(1, 2); ++step) rank.step(step);
    peaks[static_cast<size_t>(rank.world.rank())] = rank.context.memory->ledger().peak(Category::activations);
  });
  return peaks;
}

TEST(PipelinePeaks, of_every_schedule_are_the_closed_forms) {
  for (const PipelineSchedule schedule : test::kAllSchedules)
    for (const int64_t chunks : {int64_t{1}, int64_t{2}, int64_t{4}}) {
      if (chunks != default_chunks(schedule) && (schedule != PipelineSchedule::interleaved || chunks == 1)) continue;
      const test::MeshLayout layout{
          .sizes = {.pipeline = kRanks}, .schedule = schedule, .chunks = chunks, .partition = {.method = "type:block"}};
      const std::vector<int64_t> peaks = measured(layout);
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        const auto held = static_cast<double>(peaks[static_cast<size_t>(rank)]);
        const auto expected = static_cast<double>(closed_form(layout.pipeline(), rank));
        fmt::print("{:<16} {} chunks, rank {}: {:8.3f} of M measured, {:8.3f} by the closed form\n", name_of(schedule),
                   chunks, rank, held / kM, expected / kM);
        EXPECT_NEAR(held, expected, 0.02 * expected) << name_of(schedule) << ", rank " << rank;
      }
    }
}

}  // namespace
}  // namespace nought::pipeline_peaks_test
