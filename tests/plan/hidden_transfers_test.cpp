// What moves beside passes is hidden where step_time() says that it can be: at least four fifths of it, by the clock,
// on a drive that is late with every byte. Passes wait in place of computing, so that the cores of the machine do not
// count.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/size.h"
#include "support/swap_fault.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/base/timing.h"
#include "nought/comm/thread.h"
#include "nought/plan/step_time.h"
#include "nought/train/engine.h"

namespace nought::hidden_transfers_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using std::chrono::steady_clock;

constexpr int64_t kElements = 16'384, kHiddenSize = 16, kTokens = 8;
constexpr size_t kWaitingUnits = 16;
constexpr std::chrono::milliseconds kForward{4}, kBackward{8};  // of each Unit
/// Seconds of the passes of a step.
constexpr double kPasses = 0.012 * static_cast<double>(kWaitingUnits);
/// Bytes of optimizer states that an update reads and writes.
constexpr double kStates = 24.0 * static_cast<double>(kElements) * static_cast<double>(kWaitingUnits);

/// One matrix in each Unit.
class WaitingModel final : public Model {
 public:
  WaitingModel() {
    for (size_t i = 0; i < kWaitingUnits; ++i) {
      Unit& unit = add_unit("layer." + std::to_string(i));
      weights_.emplace_back(unit.add(unit.name() + ".weight", {kElements}, Init::normal(0.5)));
    }
  }
  Var loss(Tape&, const Batch&, double) override { fail("it has sections"); }
  std::vector<Section> sections() override {
    std::vector<Section> all;
    for (size_t i = 0; i < weights_.size(); ++i) all.push_back(section(i));
    return all;
  }

 private:
  Section section(size_t i) {
    const WeightView weight = weights_[i];
    const bool last = i + 1 == weights_.size();
    return {.unit = units()[i].get(), .body = [weight, last](Tape& tape, const Var& x, MicroBatchState&) {
              std::this_thread::sleep_for(kForward);
              const Tensor y =
                  last ? tape.context().zeros({1}, DType::f64) : tape.context().zeros({kHiddenSize}, DType::f32);
              return tape.record(y, {x, weight}, [x, weight](Gradients& gradients, const Tensor&) {
                std::this_thread::sleep_for(kBackward);
                if (x.requires_grad()) gradients.give(x, gradients.context().zeros({kHiddenSize}, DType::f32));
                gradients.later(weight, [](const Context& context, const GradSink& into) {
                  context.run(Fill{.x = into.into, .value = 0.01});
                });
              });
            }};
  }
  std::vector<WeightView> weights_;
};

/// One byte after the other, in both directions.
class SlowDrive {
 public:
  explicit SlowDrive(double rate) : rate_(rate) {}
  SwapFault fault() {
    return [this](const SwapCall& call) {
      wait(static_cast<double>(call.bytes));
      return call.result;
    };
  }
  void set_slow(bool slow) {
    std::lock_guard lock(mutex_);
    slow_ = slow;
  }

 private:
  void wait(double bytes) {
    steady_clock::time_point until;
    {
      std::lock_guard lock(mutex_);
      if (!slow_) return;
      const auto seconds = std::chrono::duration<double>(bytes / rate_);
      free_at_ = std::max(free_at_, steady_clock::now()) + std::chrono::duration_cast<steady_clock::duration>(seconds);
      until = free_at_;
    }
    std::this_thread::sleep_until(until);
  }
  const double rate_;
  std::mutex mutex_;
  bool slow_ = false;
  steady_clock::time_point free_at_;
};

/// Seconds of one step.
struct Hidden {
  double on_way = 0;     // what transfers take
  double predicted = 0;  // what of these step_time() hides
  double measured = 0;   // what of these a step is not longer by
};

struct WaitingRun {
  WaitingRun(Communicator& ranks, const Context& context, const OffloadOptions& offload,
             const ParameterOffload& parameters)
      : store(context, ranks, model,
              {.policy = Policy::stage(parameters.tier.pool == Pool::file ? 3 : 0),
               .dtype = DType::bf16,
               .gradient_dtype = DType::bf16,
               .offload_optimizer = offload,
               .offload_param = parameters}),
        engine(store),
        batch{context.zeros({1, kTokens}, DType::i32), context.zeros({1, kTokens}, DType::i32)} {
    store.load(InitialState(3));
  }
  void step() { engine.step(std::span(&batch, 1), static_cast<double>(kTokens), 1e-3, /*max_norm=*/0); }
  /// The least of some steps; one before them brings the drive to what they find.
  double seconds() {
    step();
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) least = std::min(least, seconds_of([&] { step(); }));
    return least;
  }

  WaitingModel model;
  ShardedModel store;
  Engine engine;
  Batch batch;
};

/// rate: of the drive, in B/s.
Hidden hidden_with(const OffloadOptions& offload, const ParameterOffload& parameters, SlowDrive& drive, double rate) {
  Hidden hidden;
  const test::ScopedSwapFault scope(drive.fault());
  run_ranks(1, [&](Communicator& ranks, const Context& context) {
    WaitingRun run(ranks, context, offload, parameters);
    run.step(), run.step();
    const StateTraffic all = run.store.traffic(), updates = run.store.optimizer().traffic(),
                       gradients = run.store.optimizer().gradient_traffic();
    const double fast = run.seconds();
    Prediction prediction;
    prediction.executed_flops = kPasses;
    // Of four steps.
    const StateTraffic more = run.store.traffic() - all, updated = run.store.optimizer().traffic() - updates;
    const StateTraffic added = run.store.optimizer().gradient_traffic() - gradients;
    const auto each = [](const StateTraffic& of_four) {
      return StateTraffic{.read = of_four.read / 4, .written = of_four.written / 4};
    };
    prediction.states = each(more), prediction.of_gradients = each(added), prediction.by_update = each(updated - added);
    prediction.layout.sharding.offload_optimizer = offload;
    const StepTime time = step_time({}, prediction, {.flops = 1, .memory = 1e30, .read = rate, .write = rate});
    for (const StepPart& part : time.parts) {
      hidden.predicted += part.hidden;
      if (part.name.find("files") != std::string::npos) hidden.on_way += part.seconds();
    }
    drive.set_slow(true);
    hidden.measured = hidden.on_way - (run.seconds() - fast);
    drive.set_slow(false);
  });
  return hidden;
}

class HiddenTransfers : public testing::Test {
 protected:
  OffloadOptions files() const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}}};
  }
  ParameterOffload parameters() const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}}};
  }
  test::TempFolder folder_;
};

struct Case {
  const char* name;
  double seconds;  // that the drive takes for the states of an update
  bool early = false, delayed = false, gradients = false, parameters = false;
};

TEST_F(HiddenTransfers, are_four_fifths_of_what_the_model_hides) {
  for (const Case& each :
       {Case{.name = "early", .seconds = 0.09, .early = true},
        Case{.name = "early, with gradients", .seconds = 0.08, .early = true, .gradients = true},
        Case{.name = "delayed", .seconds = 0.12, .delayed = true},
        Case{.name = "delayed, and longer than a step", .seconds = 0.25, .delayed = true},
        Case{.name = "delayed, with parameters", .seconds = 0.09, .delayed = true, .parameters = true}}) {
    const double rate = kStates / each.seconds;
    Hidden hidden;
    // Other programs can make a step longer, and never shorter.
    for (int i = 0; i < 3 && (i == 0 || hidden.measured < 0.8 * hidden.predicted); ++i) {
      SlowDrive drive(rate);
      OffloadOptions offload = files();
      offload.early = each.early, offload.gradients_in_file = each.gradients;
      if (each.delayed) offload.delay_after = 0;
      hidden = hidden_with(offload, each.parameters ? parameters() : ParameterOffload{}, drive, rate);
    }
    fmt::print("{}: {:.0f} ms move, {:.0f} ms of them can be hidden, {:.0f}% of these are\n", each.name,
               1000 * hidden.on_way, 1000 * hidden.predicted, 100 * hidden.measured / hidden.predicted);
    EXPECT_GE(hidden.on_way, each.seconds * (each.gradients || each.parameters ? 1.1 : 0.99)) << each.name;
    EXPECT_GE(hidden.predicted, 0.08) << each.name;
    EXPECT_GE(hidden.measured, 0.8 * hidden.predicted) << each.name;
  }
}

TEST_F(HiddenTransfers, are_none_where_the_model_hides_none) {
  const double rate = kStates / 0.08;
  SlowDrive drive(rate);
  const Hidden hidden = hidden_with(files(), {}, drive, rate);
  EXPECT_EQ(hidden.predicted, 0);
  EXPECT_LT(hidden.measured, 0.3 * hidden.on_way);
}

}  // namespace
}  // namespace nought::hidden_transfers_test
