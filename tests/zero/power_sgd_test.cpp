// Sums of gradients that travel as factors: exact where the rank allows, the same bits on all ranks, nothing lost over
// time, and r (n + m) elements on the wire.
#include "nought/zero/power_sgd.h"

#include <cmath>

#include "support/cut_units.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/zero/power_sgd_options.h"
#include "nought/zero/rank_local_tensor.h"

namespace nought::power_sgd_test {
namespace {

/// One matrix of 40 x 24 and a vector.
class OneMatrix final : public Model {
 public:
  OneMatrix() {
    Unit& unit = add_unit("unit");
    unit.add("matrix", {40, 24}, Init::zeros());
    unit.add("vector", {10}, Init::zeros(), ParameterRole::bias);
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

/// A matrix of rank 2, another one on each rank and in each round; the ranks' sum has rank 2, too.
float matrix_at(int rank, int round, int64_t i) {
  const auto row = static_cast<float>(i / 24), column = static_cast<float>(i % 24);
  const auto weight = static_cast<float>(1 + rank);
  return weight * (std::sin(row + static_cast<float>(round)) * std::cos(column) +
                   0.3F * std::cos(2 * row) * std::sin(3 * column));
}

struct Summed {
  std::vector<std::vector<float>> matrices;  // by rank, of the last round
  std::vector<float> vector;
  std::vector<double> sent, put_in, errors;  // of all rounds
  Traffic traffic;                           // of the last one
};

Summed sum(int count, PowerSgdOptions options, int rounds, DType dtype = DType::f32) {
  Summed result;
  result.matrices.resize(static_cast<size_t>(count));
  options.start_iter = 0, options.min_compression_rate = 1;
  run_ranks(count, [&](Communicator& ranks, const Context& context) {
    OneMatrix units;
    ShardedModel model(context, ranks, units, {.policy = Policy::stage(0), .gradient_dtype = dtype});
    Reducer reducer(context, ranks, {.gradient_dtype = dtype}, units.units());
    PowerSgd power(context, ranks, options, dtype, units.units(), reducer);
    EXPECT_EQ(power.matrices(), 1u);
    reducer.keep_local(true);
    std::vector<double> sent(960), put_in(960), errors(960);
    for (int round = 0; round < rounds; ++round) {
      Reducer::MicroBatch micro_batch = reducer.begin_micro_batch(true);
      const auto write = [&](size_t parameter, const auto& value) {
        const GradSink sink = reducer.sink(micro_batch, 0, parameter, parameter);
        const Tensor wide = context.empty(sink.into.shape(), DType::f32);
        for (int64_t i = 0; i < wide.numel(); ++i) wide.data<float>()[i] = value(i);
        context.run(Cast{.x = wide, .y = sink.into});
      };
      write(0, [&](int64_t i) { return matrix_at(ranks.rank(), round, i); });
      write(1, [&](int64_t i) { return static_cast<float>(i * (1 + ranks.rank())); });
      reducer.finish(micro_batch, 0);
      reducer.finish_step();
      const Traffic before = ranks.traffic();
      power.reduce(round);
      const Traffic after = ranks.traffic();
      const auto values = reducer.reduced({0, 0}).to_vector<float>();
      for (size_t i = 0; i < 960; ++i)
        sent[i] += values[i], put_in[i] += matrix_at(ranks.rank(), round, static_cast<int64_t>(i));
      result.matrices[static_cast<size_t>(ranks.rank())] = {values.begin(), values.begin() + 960};
      if (ranks.rank() == 0) {
        const auto vector = units.units()[0]->parameters()[1].range;
        result.vector = {values.begin() + vector.begin, values.begin() + vector.end};
        for (size_t c = 0; c < kNumCollectives; ++c)
          result.traffic.counts[c] = {after.counts[c].bytes - before.counts[c].bytes, 0, 0};
      }
      reducer.reset();
    }
    for (const RankLocalTensor& own : power.rank_local_tensors())
      if (own.name == "power_sgd_error")
        for (size_t i = 0; i < 960; ++i) errors[i] = own.tensor.to_vector<float>()[i];
    all_reduce_values(ranks, context, put_in);
    all_reduce_values(ranks, context, errors);
    if (ranks.rank() == 0) result.sent = sent, result.put_in = put_in, result.errors = errors;
  });
  return result;
}

TEST(PowerSgd, is_exact_if_its_rank_is_that_of_the_sum_or_more) {
  for (const int count : {2, 3, 4})
    for (const int64_t rank : {2, 5})
      for (const bool warm : {false, true}) {
        const Summed summed = sum(count, {.rank = rank, .warm_start = warm}, 3);
        const auto weights = static_cast<float>(count * (count + 1) / 2);
        for (int64_t i = 0; i < 960; ++i)
          ASSERT_NEAR(summed.matrices[0][static_cast<size_t>(i)], weights * matrix_at(0, 2, i), 1e-4)
              << "element " << i << ", rank " << rank << " on " << count << " ranks";
        for (int64_t i = 0; i < 10; ++i)
          EXPECT_EQ(summed.vector[static_cast<size_t>(i)], weights * static_cast<float>(i));
      }
}

TEST(PowerSgd, all_ranks_hold_the_same_bits) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool feedback : {false, true}) {
      const Summed summed = sum(4, {.rank = 1, .use_error_feedback = feedback}, 4, dtype);
      for (const auto& each : summed.matrices) EXPECT_EQ(each, summed.matrices[0]);
    }
}

TEST(PowerSgd, what_was_sent_and_what_is_left_add_up_to_what_was_put_in) {
  for (const int count : {2, 3})
    for (const int rounds : {1, 2, 10}) {
      const Summed summed = sum(count, {.rank = 1}, rounds);
      double left = 0;
      for (size_t i = 0; i < summed.sent.size(); ++i) {
        ASSERT_NEAR(summed.sent[i] + summed.errors[i], summed.put_in[i], 1e-3) << "element " << i;
        left = std::max(left, std::abs(summed.errors[i]));
      }
      EXPECT_GT(left, 0.1) << "a rank of 1 leaves something out";
    }
}

TEST(PowerSgd, sends_r_rows_and_columns_and_the_rest) {
  for (const int count : {2, 4})
    for (const int64_t rank : {1, 3}) {
      const Traffic traffic = sum(count, {.rank = rank}, 1).traffic;
      int64_t bytes = 0;
      for (const int64_t elements : {rank * 40, rank * 24, int64_t{10}})
        bytes += 2 * (count - 1) * ceil_div(elements * 4, count);
      EXPECT_NEAR(static_cast<double>(traffic.total_bytes()), static_cast<double>(bytes), 2.0 * 3 * 4 * count);
    }
}

TEST(PowerSgd, a_gradient_that_was_zero_once_is_not_lost) {
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    OneMatrix units;
    ShardedModel model(context, ranks, units, {.policy = Policy::stage(0)});
    Reducer reducer(context, ranks, {}, units.units());
    PowerSgd power(context, ranks, {.rank = 2, .start_iter = 0, .min_compression_rate = 1}, DType::f32, units.units(),
                   reducer);
    reducer.keep_local(true);
    for (int round = 0; round < 2; ++round) {
      Reducer::MicroBatch micro_batch = reducer.begin_micro_batch(true);
      const Tensor into = reducer.sink(micro_batch, 0, 0, 0).into;
      for (int64_t i = 0; i < 960; ++i) into.data<float>()[i] = round == 0 ? 0 : matrix_at(ranks.rank(), 1, i);
      reducer.finish(micro_batch, 0);
      reducer.finish_step();
      power.reduce(round);
      if (round == 1) {
        for (int64_t i = 0; i < 960; ++i) ASSERT_NEAR(into.data<float>()[i], 3 * matrix_at(0, 1, i), 1e-4);
      }
      reducer.reset();
    }
  });
}

}  // namespace
}  // namespace nought::power_sgd_test
