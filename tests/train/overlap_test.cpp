// At stage 3 communication goes on behind computation. What is issued before what, and what is waited for when, are
// properties of the program: the tests read them from counts and from a wire that they hold, never from a clock.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "support/forwarding_communicator.h"
#include "support/schedules.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::overlap_test {
namespace {

using test::TrainingCase;
using test::TrainingRank;

/// Units: the embedding, the blocks, the head.
constexpr int64_t kLayers = 6, kUnits = kLayers + 2;

TrainingCase at_stage_3(bool overlap = true) {
  TrainingCase each = test::learning(test::small_model("grouped_heads", kLayers), test::sharded(2, 3));
  each.settings.overlap = overlap;
  return each;
}

/// Collectives issued by the time a Unit's pass has its first result.
struct Issued {
  int64_t gathers = 0, reductions = 0;
};

/// By what is at work, "block.0.mlp, backward", in the second step of stage 3.
std::map<std::string, Issued> issued_at_first_results(bool overlap) {
  std::map<std::string, Issued> issued;
  TrainingRank* watched = nullptr;
  Traffic before;
  TrainingCase each = at_stage_3(overlap);
  each.watcher = [&](std::string_view, std::string_view, const Tensor&) {
    if (watched == nullptr) return;
    const Traffic now = watched->world.traffic();
    const auto since = [&](Collective::Kind of) { return now[of].calls - before[of].calls; };
    issued.try_emplace(watched->model.at_work(),
                       Issued{since(Collective::all_gather), since(Collective::reduce_scatter)});
  };
  each.on_ranks([&](TrainingRank& rank) {
    rank.step(0);
    if (rank.is_first()) watched = &rank, before = rank.world.traffic();
    rank.step(1);
    if (rank.is_first()) watched = nullptr;
  });
  return issued;
}

TEST(Overlap, at_stage_3_the_next_gather_and_the_last_reduction_are_under_way_while_a_unit_computes) {
  const auto issued = issued_at_first_results(true), serial = issued_at_first_results(false);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const int64_t unit = layer + 1;  // the embedding is the first
    // What each pass begins with.
    const std::string forward = fmt::format("block.{}.attention_norm, forward", layer),
                      backward = fmt::format("block.{}.mlp, backward", layer);
    ASSERT_TRUE(issued.contains(forward) && issued.contains(backward)) << forward;
    EXPECT_EQ(issued.at(forward).gathers, unit + 2) << "its own, those before it, and the next";
    EXPECT_EQ(serial.at(forward).gathers, unit + 1);
    EXPECT_EQ(issued.at(backward).gathers - serial.at(backward).gathers, 1) << "one ahead on the way back too";
    EXPECT_EQ(issued.at(backward).reductions, kUnits - 1 - unit) << "of all Units behind it";
  }
}

/// "block.3, backward" of "block.3.mlp, backward".
std::string pass_of(const std::string& at_work) {
  const size_t end = at_work.find_first_of(".,", at_work.starts_with("block.") ? 6 : 0);
  return at_work.substr(0, end) + at_work.substr(at_work.find(','));
}

/// The passes of a step of two micro-batches at stage 3 in their order, each with the gathers issued by the time of its
/// first result.
std::vector<std::pair<std::string, int64_t>> passes_of_step(const char* schedule, const RecomputeOptions& recompute,
                                                            std::vector<std::string>& told) {
  std::vector<std::pair<std::string, int64_t>> passes;
  TrainingRank* watched = nullptr;
  int64_t before = 0;
  TrainingCase each = at_stage_3();
  each.recompute = recompute, each.accumulation = 2, each.schedule = schedule;
  const auto gathers = [](TrainingRank& rank) { return rank.world.traffic()[Collective::all_gather].calls; };
  each.watcher = [&](std::string_view, std::string_view, const Tensor&) {
    if (watched == nullptr) return;
    const std::string pass = pass_of(watched->model.at_work());
    if (passes.empty() || passes.back().first != pass) passes.emplace_back(pass, gathers(*watched) - before);
  };
  each.on_ranks([&](TrainingRank& rank) {
    if (rank.is_first()) watched = &rank, before = gathers(rank);
    rank.step(0);
    if (!rank.is_first()) return;
    watched = nullptr;
    const StepSchedule made = test::schedule(schedule);
    for (const Instruction& instruction : made.instructions()) {
      if (instruction.action != Action::forward && instruction.action != Action::backward) continue;
      for (const UnitPass& pass : rank.decoder.passes(instruction.action == Action::backward))
        told.push_back(rank.decoder.units()[pass.unit]->name() + (pass.backward ? ", backward" : ", forward"));
    }
  });
  return passes;
}

TEST(Overlap, at_stage_3_the_next_gather_is_that_of_the_next_pass_in_the_schedule) {
  RecomputeOptions together = Recompute::full;
  together.checkpoints = 2;
  for (const RecomputeOptions& recompute : {RecomputeOptions(), RecomputeOptions(Recompute::full), together})
    for (const char* text : {"F0 B0 F1 B1 reduce update", "F0 F1 B0 B1 reduce update", "F0 F1 B1 B0 reduce update"}) {
      SCOPED_TRACE(fmt::format("{} {}", text, recompute.str()));
      std::vector<std::string> told;
      const auto passes = passes_of_step(text, recompute, told);
      ASSERT_EQ(passes.size(), told.size());
      const auto unit_of = [&](size_t i) { return told[i].substr(0, told[i].find(',')); };
      for (size_t i = 0; i < passes.size(); ++i) {
        EXPECT_EQ(passes[i].first, told[i]);
        const bool ahead = i + 1 < passes.size() && unit_of(i) != unit_of(i + 1);
        EXPECT_EQ(passes[i].second, static_cast<int64_t>(i) + (ahead ? 2 : 1)) << "pass " << i << ": " << told[i];
      }
    }
}

/// The operations that a rank's computing thread has done in a step, and who waits for their number.
class Progress {
 public:
  explicit Progress(std::chrono::milliseconds patience) : patience_(patience) {}
  void restart() {
    std::lock_guard lock(mutex_);
    done_ = 0, pass_.clear(), borders_.clear();
  }
  /// Another one, in this pass of a Unit.
  void count(const std::string& pass) {
    std::lock_guard lock(mutex_);
    if (pass != pass_) borders_.push_back(done_);
    pass_ = pass;
    ++done_;
    changed_.notify_all();
  }
  /// How many were done when each pass began.
  const std::vector<int64_t>& borders() const { return borders_; }
  int64_t done() {
    std::lock_guard lock(mutex_);
    return done_;
  }
  /// A computing thread that is itself waiting for the caller never gets there: then this fails, after its patience.
  void wait_for(int64_t operations) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience_, [&] { return done_ >= operations; }))
      fail<CommError>("somebody waits for what is held until {} operations are done; it is at {}", operations, done_);
  }

 private:
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t done_ = 0;
  std::string pass_;
  std::vector<int64_t> borders_;
};

class CountingKernels final : public Kernels {
 public:
  CountingKernels(std::shared_ptr<Kernels> inner, Progress& progress) : inner_(std::move(inner)), progress_(progress) {}
  void watch(const ShardedModel& model) { model_ = &model; }
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op)                                       \
  void run(const Op& op, Stream& stream) override {          \
    inner_->run(op, stream);                                 \
    if (model_) progress_.count(pass_of(model_->at_work())); \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  std::shared_ptr<Kernels> inner_;
  Progress& progress_;
  const ShardedModel* model_ = nullptr;
};

/// A communicator whose collectives stay on the wire until the computing thread has done the operations that a
/// schedule asks for; without a schedule they go through at once. It keeps the order, as any wire does.
class HeldWire final : public test::ForwardingCommunicator {
 public:
  struct Issue {
    Collective::Kind collective;
    int64_t operations;  // done when it was issued
  };

  HeldWire(Communicator& wire, Progress& progress) : ForwardingCommunicator(wire), progress_(progress) {}

  /// Before a step: hold the i-th collective until until[i] operations of the step are done.
  void hold(std::vector<int64_t> until) {
    until_ = std::move(until);
    issues_.clear();
    progress_.restart();
  }
  const std::vector<Issue>& issues() const { return issues_; }

  std::string_view backend() const override { return "held"; }
  Event submit(Collective collective) override {
    const size_t i = issues_.size();
    issues_.push_back({collective.kind, progress_.done()});
    const int64_t until = i < until_.size() ? until_[i] : 0;
    return stream_.submit([this, until, collective = std::move(collective)] {
      if (broken_) return;
      try {
        progress_.wait_for(until);
        inner().submit(collective).wait();
      } catch (...) {
        broken_ = true;  // what was issued behind it need not wait too
        throw;
      }
    });
  }
  void follow(const Event& event) override { stream_.wait(event); }

 private:
  Progress& progress_;
  std::vector<int64_t> until_;
  std::vector<Issue> issues_;
  bool broken_ = false;  // of the stream's thread
  Stream stream_{Stream::Kind::worker, "held wire"};
};

/// Until which operation each collective of a step may stay on the wire: while the Unit computes that it was issued
/// beside. Nothing computes beside the first gather of each pass, the last reduction, and the sum of the loss.
std::vector<int64_t> schedule_of(const std::vector<HeldWire::Issue>& issues, std::vector<int64_t> borders) {
  for (const HeldWire::Issue& issue : issues) borders.push_back(issue.operations);
  std::sort(borders.begin(), borders.end());
  std::vector<int64_t> until;
  int64_t gathers = 0, reductions = 0;
  for (const auto& [collective, operations] : issues) {
    const bool is_gather = collective == Collective::all_gather,
               is_reduction = collective == Collective::reduce_scatter;
    const bool hidden = (is_gather && gathers % kUnits != 0) || (is_reduction && reductions != kUnits - 1);
    gathers += is_gather, reductions += is_reduction;
    const auto end = std::upper_bound(borders.begin(), borders.end(), operations);  // of the Unit's pass
    until.push_back(hidden && end != borders.end() ? *end : 0);
  }
  return until;
}

/// Makes a step on a free wire and one on a held one; returns how many of the collectives were held.
int64_t step_on_a_held_wire(bool overlap, std::chrono::milliseconds patience) {
  int64_t held = 0;
  run_ranks(2, [&](Communicator& ranks, const Context& plain) {
    Progress progress(patience);
    HeldWire wire(ranks, progress);
    Context context = plain;
    const auto kernels = std::make_shared<CountingKernels>(plain.kernels, progress);
    context.kernels = kernels;
    TrainingRank rank(wire, context, at_stage_3(overlap));
    kernels->watch(rank.model);
    const auto step = [&](std::vector<int64_t> until) {
      wire.hold(std::move(until));
      rank.step(0);
      rank.model.settle();
    };
    step({});
    const std::vector<int64_t> schedule = schedule_of(wire.issues(), progress.borders());
    step(schedule);
    if (ranks.rank() == 0)
      held = std::count_if(schedule.begin(), schedule.end(), [](int64_t until) { return until > 0; });
  });
  return held;
}

TEST(Overlap, at_stage_3_a_collective_may_take_as_long_as_the_unit_beside_it_computes) {
  constexpr int64_t kGathers = 2 * kUnits, kReductions = kUnits;
  EXPECT_EQ(step_on_a_held_wire(true, std::chrono::minutes(1)), kGathers - 2 + kReductions - 1);
}

TEST(Overlap, without_it_a_held_collective_is_waited_for_in_vain) {
  EXPECT_THROW(step_on_a_held_wire(false, std::chrono::milliseconds(1)), CommError);
}

}  // namespace
}  // namespace nought::overlap_test
