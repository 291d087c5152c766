// Updates whose ranks send one bit per element, beside the same arithmetic once more on plain vectors; and what the
// norm is then.
#include <cmath>

#include "support/cut_units.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/optim/compressed_phase.h"

namespace nought::compressed_update_test {
namespace {

using test::CutUnits;
using Values = std::map<std::string, std::vector<float>>;

constexpr double kLr = 1e-2, kDecay = 0.1;

/// What all workers' signs and the server's come to, for one piece (1-bit Adam's compressed mean).
class OneBitMean {
 public:
  OneBitMean(int ranks, size_t n) : workers_(static_cast<size_t>(ranks), std::vector<float>(n)), server_(n) {}

  std::vector<float> operator()(const std::vector<std::vector<float>>& values) {
    std::vector<float> mean(server_.size());
    for (size_t w = 0; w < workers_.size(); ++w) {
      const std::vector<float> sent = signs(values[w], workers_[w]);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += sent[i] / static_cast<float>(workers_.size());
    }
    return signs(mean, server_);
  }

 private:
  static std::vector<float> signs(const std::vector<float>& x, std::vector<float>& error) {
    double squares = 0;
    for (size_t i = 0; i < x.size(); ++i) error[i] += x[i], squares += static_cast<double>(error[i]) * error[i];
    const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(x.size())));
    std::vector<float> sent(x.size());
    for (size_t i = 0; i < x.size(); ++i) sent[i] = error[i] >= 0 ? scale : -scale, error[i] -= sent[i];
    return sent;
  }
  std::vector<std::vector<float>> workers_;
  std::vector<float> server_;
};

/// 1-bit Adam of one parameter: rank 0 has all of the gradient.
struct OneBitAdamOfOne {
  std::vector<float> p, m, v;
  std::vector<std::pair<Interval, OneBitMean>> pieces = {};

  void update(const std::string& name, int step, int ranks, const OneBitAdamOptions& options) {
    const bool frozen = step > options.freeze_step;
    std::vector<std::vector<float>> momenta(static_cast<size_t>(ranks), m);
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = test::cut_gradient(name, static_cast<int64_t>(i), step);
      const double b1 = options.beta1, b2 = options.beta2;
      if (!frozen) {
        m[i] = static_cast<float>(b1 * m[i] + (1 - b1) * g);
        v[i] = static_cast<float>(b2 * v[i] + (1 - b2) * g * g);
      }
      for (int rank = 0; rank < ranks; ++rank)
        momenta[static_cast<size_t>(rank)][i] = static_cast<float>(b1 * m[i] + (rank == 0 ? (1 - b1) * g * ranks : 0));
    }
    if (frozen) exchange(momenta);
    for (size_t i = 0; i < p.size(); ++i) {
      const double root = std::sqrt(static_cast<double>(v[i])) + options.eps;
      const double direction = v[i] == 0 ? 0 : m[i] / root;
      p[i] = static_cast<float>(p[i] * (1 - kLr * kDecay) - kLr * direction);
    }
  }
  void exchange(const std::vector<std::vector<float>>& momenta) {
    if (momenta.size() == 1) m = momenta.front();
    for (auto& [piece, mean] : pieces) {
      if (momenta.size() == 1) continue;
      std::vector<std::vector<float>> parts;
      for (const auto& each : momenta) parts.emplace_back(each.begin() + piece.begin, each.begin() + piece.end);
      const std::vector<float> sent = mean(parts);
      std::copy(sent.begin(), sent.end(), m.begin() + piece.begin);
    }
  }
};

TEST(CompressedUpdate, one_bit_adam_follows_the_reference_before_and_after_it_freezes) {
  const OneBitAdamOptions options{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .freeze_step = 3};
  for (const int count : {1, 2, 3})
    run_ranks(count, [&](Communicator& world, const Context& context) {
      CutUnits units{Mesh(world)};
      ShardedModel model(
          context, world, units,
          {.policy = Policy::stage(0), .optimizer = {.method = options, .weight_decay = kDecay, .decay_all = true}});
      model.load(InitialState(3));
      std::map<std::string, OneBitAdamOfOne> references;
      for (const auto& [name, values] : test::whole_weights(model))
        references[name] = {
            .p = values, .m = std::vector<float>(values.size()), .v = std::vector<float>(values.size())};
      for (const auto& unit : units.units())
        for (size_t segment = 0; segment < unit->segments().size(); ++segment) {
          const Partition partition(unit->segments()[segment].size, count);
          for (int rank = 0; rank < count; ++rank)
            for (const ParameterPiece& piece : pieces_in(*unit, segment, partition.owned(rank)))
              references.at(unit->parameters()[piece.parameter].name)
                  .pieces.emplace_back(piece.in_parameter,
                                       OneBitMean(count, static_cast<size_t>(piece.in_parameter.size())));
        }
      for (int step = 1; step <= 8; ++step) {
        test::walk_back(model, step);
        model.update(kLr, 1);
        for (const auto& [name, values] : test::whole_weights(model)) {
          OneBitAdamOfOne& reference = references.at(name);
          reference.update(name, step, count, options);
          for (size_t i = 0; i < values.size(); ++i)
            ASSERT_NEAR(values[i], reference.p[i], 2e-5)
                << name << "[" << i << "] after " << step << " updates on " << count << " ranks";
        }
      }
    });
}

TEST(CompressedUpdate, once_nothing_is_summed_the_norm_is_the_root_mean_square_of_the_ranks_own) {
  std::map<int, double> plain, own;
  for (const int count : {1, 2, 4})
    for (const int64_t freeze : {5, 1})
      run_ranks(count, [&](Communicator& world, const Context& context) {
        CutUnits units{Mesh(world)};
        ShardedModel model(
            context, world, units,
            {.policy = Policy::stage(0), .optimizer = {.method = OneBitAdamOptions{.freeze_step = freeze}}});
        model.load(InitialState(3));
        test::walk_back(model, 1);
        model.update(kLr, 1);
        double sum = 0;
        for (const double square : test::walk_back(model, 2)) sum += square;
        if (world.rank() == 0) (freeze == 5 ? plain : own)[count] = sum;
      });
  // Rank 0 has all of the gradient g: as a mean of its own it is count * g, those of the others are 0.
  for (const auto& [count, sum] : plain) EXPECT_NEAR(own.at(count), count * sum, 1e-6 * count * sum);
}

TEST(CompressedUpdate, momenta_travel_as_signs_and_gradients_not_at_all) {
  run_ranks(4, [&](Communicator& world, const Context& context) {
    CutUnits units{Mesh(world)};
    ShardedModel model(context, world, units,
                       {.policy = Policy::stage(0), .optimizer = {.method = OneBitAdamOptions{.freeze_step = 1}}});
    model.load(InitialState(3));
    int64_t elements = 0;
    for (const auto& unit : units.units())
      for (const Segment& segment : unit->segments()) elements += Partition(segment, 4).padded();
    const auto sent = [&](int step) {
      const Traffic before = world.traffic();
      test::walk_back(model, step);
      model.update(kLr, 1);
      const Traffic after = world.traffic();
      return std::pair(after[Collective::reduce_scatter].bytes - before[Collective::reduce_scatter].bytes,
                       after[Collective::all_to_all].bytes - before[Collective::all_to_all].bytes);
    };
    const auto warm = sent(1), frozen = sent(2);
    EXPECT_EQ(warm, std::pair(3 * elements / 4 * 4, int64_t{0}));
    EXPECT_EQ(frozen.first, 0);
    EXPECT_GT(frozen.second, 3 * elements / 4 / 8);
    EXPECT_LT(frozen.second, warm.first / 2) << "tiny pieces have a scale each";
  });
}

TEST(CompressedUpdate, phases_of_zero_one_adam_are_deepspeeds) {
  const ZeroOneAdamOptions options{
      .var_freeze_step = 14, .var_update_scaler = 2, .local_step_scaler = 6, .local_step_clipper = 2};
  std::string phases;
  for (int64_t update = 1; update <= 28; ++update) phases += "vmgle"[static_cast<size_t>(phase_of(options, update))];
  // Second moments at 1, 2 (every one), 4, 6 (every other), 8, 12 (every fourth); then alone, meeting at every update,
  // and after six at every other one.
  EXPECT_EQ(phases,
            "vvgvgvgvgggvgg"
            "eeeeee"
            "lelelele");
}

}  // namespace
}  // namespace nought::compressed_update_test
