// What nobody wrote is zero: parameters, and whole Units, that some micro-batches of some ranks leave out (experts that
// no token chose), in every layout of the reductions.
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/zero/reducer.h"

namespace nought::unwritten_gradients_test {
namespace {

struct Layout {
  int ranks = 1, stage = 0;
  int64_t bucket = 0;
  DType wire = DType::f32;
  bool overlap = true;

  std::string str() const {
    return fmt::format("{} ranks, stage {}, bucket {}, wire {}, overlap {}", ranks, stage, bucket, name_of(wire),
                       overlap);
  }
};

constexpr int kSteps = 3, kMicroBatches = 2;
constexpr int64_t kSize = 37;

std::vector<std::unique_ptr<Unit>> make_units() {
  std::vector<std::unique_ptr<Unit>> units;
  for (const char* name : {"a", "b", "c"}) {
    Unit& unit = *units.emplace_back(std::make_unique<Unit>(name));
    for (const char* parameter : {".0", ".1", ".2"}) unit.add(std::string(name) + parameter, {kSize}, Init::zeros());
  }
  return units;
}

/// Which parameters a micro-batch of a rank writes; of one Unit none.
bool writes(int step, int micro_batch, int rank, size_t unit, size_t parameter) {
  const size_t turn = static_cast<size_t>(step * 7 + micro_batch * 3 + rank * 5);
  return turn % 4 != unit && (turn + unit + parameter) % 3 != 0;
}

/// A whole number, which every dtype here holds and sums exactly.
float value_of(int step, int micro_batch, int rank, size_t unit, size_t parameter) {
  return static_cast<float>(1 + (step * 5 + micro_batch * 2 + rank * 3 + static_cast<int>(unit + parameter)) % 11);
}

float expected(int ranks, int step, size_t unit, size_t parameter) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch)
      if (writes(step, micro_batch, rank, unit, parameter)) sum += value_of(step, micro_batch, rank, unit, parameter);
  return sum;
}

void run_step(Reducer& reducer, const std::vector<std::unique_ptr<Unit>>& units, int rank, int step) {
  for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
    Reducer::MicroBatch of = reducer.begin_micro_batch(micro_batch + 1 == kMicroBatches);
    for (size_t unit = units.size(); unit-- > 0;) {
      for (size_t parameter = 0; parameter < 3; ++parameter) {
        if (!writes(step, micro_batch, rank, unit, parameter)) continue;
        const GradSink sink = reducer.sink(of, unit, parameter, parameter);
        for (float& x : sink.into.span<float>())
          x = (sink.accumulate ? x : 0) + value_of(step, micro_batch, rank, unit, parameter);
      }
      reducer.finish(of, unit);
    }
  }
  reducer.settle();
}

void expect_sums(const Layout& layout) {
  SCOPED_TRACE(layout.str());
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    const auto units = make_units();
    const Policy policy = Policy::stage(layout.stage).for_ranks(ranks.size());
    Reducer reducer(
        context, ranks,
        {.policy = policy, .overlap = layout.overlap, .wire_dtype = layout.wire, .reduce_bucket = layout.bucket},
        units);
    for (int step = 0; step < kSteps; ++step) {
      run_step(reducer, units, ranks.rank(), step);
      for (size_t unit = 0; unit < units.size(); ++unit) {
        const Partition partition(units[unit]->segments()[0].size, ranks.size());
        const Interval own = partition.owned(ranks.rank());
        const std::vector<float> values = reducer.owned({unit, 0}).to_vector<float>();
        ASSERT_EQ(static_cast<int64_t>(values.size()), own.size());
        for (int64_t i = own.begin; i < own.end; ++i) {
          float want = 0;  // in the room between parameters and behind them
          for (size_t parameter = 0; parameter < 3; ++parameter) {
            const Interval range = units[unit]->parameters()[parameter].range;
            if (range.begin <= i && i < range.end) want = expected(ranks.size(), step, unit, parameter);
          }
          ASSERT_EQ(values[static_cast<size_t>(i - own.begin)], want)
              << "step " << step << ", unit " << unit << ", element " << i;
        }
      }
      reducer.reset();
    }
  });
}

NOUGHT_SIZE(medium);
TEST(UnwrittenGradients, are_zero_in_every_layout) {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3})
      for (const int64_t bucket : {0, 300, 10000})
        for (const DType wire : {DType::f32, DType::bf16})
          for (const bool overlap : {false, true}) expect_sums({ranks, stage, bucket, wire, overlap});
}

}  // namespace
}  // namespace nought::unwritten_gradients_test
