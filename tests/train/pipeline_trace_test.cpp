// The trace of a pipeline's step says what its passes and messages were, and can be read back as a timeline.
#include "nought/diagnose/pipeline_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "support/delay_model.h"
#include "support/message_of.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/comm/thread.h"
#include "nought/diagnose/trace.h"
#include "nought/engine/engine.h"

namespace nought::pipeline_trace_test {
namespace {

using ::testing::HasSubstr;
using S = PipelineSchedule;
using std::chrono::microseconds;

/// A rank of a pipeline that only waits.
struct Rank {
  Rank(Communicator& world, const Context& with, const Pipeline& pipeline, microseconds pass, int64_t hidden = 16)
      : context(with),
        mesh(world, GridSizes{.pipeline = static_cast<int>(pipeline.ranks)}),
        network(mesh, pipeline, pass, hidden),
        model(context, mesh, network, {.policy = Policy::stage(0)}),
        engine(model) {
    engine.set_schedule(schedule_at(mesh, pipeline));
    model.load(InitialState(1));
  }
  void step(int64_t micro_batches) {
    const std::vector<Batch> batches(static_cast<size_t>(micro_batches));
    engine.step(batches, 1, /*lr=*/0, /*max_norm=*/0);
    model.settle();
  }

  Context context;
  Mesh mesh;
  test::DelayModel network;
  ShardedModel model;
  Engine engine;
};

void trace_step(const Pipeline& pipeline, int64_t micro_batches, microseconds pass, const std::filesystem::path& file) {
  run_ranks(static_cast<int>(pipeline.ranks), [&](Communicator& world, const Context& context) {
    const auto timeline = std::make_shared<Timeline>();
    world.record(timeline);
    Rank rank(world, context, pipeline, pass);
    world.barrier().wait();
    const TraceEvent::Clock::time_point origin = TraceEvent::Clock::now();
    timeline->take();
    timeline->start();
    rank.step(micro_batches);
    timeline->stop();
    write_trace(world, context, timeline->take(), origin, file);
  });
}

/// Idle passes of a rank, of the times of its own; every pass takes 1.
double bubble_of(const Pipeline& pipeline) {
  const auto steps = static_cast<double>(pipeline.ranks - 1);
  return pipeline.schedule == S::zbh1 || pipeline.schedule == S::zbv ? steps : 3 * steps;
}

TEST(PipelineTrace, the_bubble_of_ranks_that_only_wait_is_that_of_the_closed_form) {
  constexpr int64_t kRanks = 4, kMicroBatches = 8;
  constexpr int kTries = 8;  // Other processes hold up a rank for some milliseconds: longer passes mind them less.
  const test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "trace.json";
  int turn = 0;
  for (const S schedule : {S::one_f_one_b, S::gpipe, S::interleaved, S::zbh1, S::zbv}) {
    if (!test::samples(turn++, 4)) continue;
    const Pipeline pipeline{.schedule = schedule, .ranks = kRanks, .chunks = default_chunks(schedule)};
    const double bubble = bubble_of(pipeline), work = 3.0 * kMicroBatches * static_cast<double>(pipeline.chunks);
    const double expected = bubble / (work + bubble);
    double nearest = 1;
    for (int i = 0; i < kTries && std::abs(nearest - expected) > 0.02; ++i) {
      const int pass = 8000 << (i / 2);
      trace_step(pipeline, kMicroBatches, microseconds(pass / pipeline.chunks), file);
      const double idle = timeline_of_trace(file, pipeline, kMicroBatches, kRanks).idle_share();
      if (std::abs(idle - expected) < std::abs(nearest - expected)) nearest = idle;
    }
    EXPECT_NEAR(nearest, expected, 0.05) << name_of(schedule);
    fmt::print("{}: ranks are idle for {:.1f}% of the passes, by the closed form {:.1f}%\n", name_of(schedule),
               100 * nearest, 100 * expected);
  }
}

TEST(PipelineTrace, has_every_pass_and_message_by_name_on_threads_without_overlap) {
  const test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "trace.json";
  const Pipeline pipeline{.schedule = S::zbv, .ranks = 2, .chunks = 2};
  trace_step(pipeline, 3, microseconds(200), file);
  std::map<std::pair<int, std::string>, int> names;
  std::map<std::pair<int, int>, double> ends;  // by rank and thread
  std::vector<nlohmann::json> events;
  const nlohmann::json trace = nlohmann::json::parse(std::ifstream(file));
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && (event.at("cat") == "pass" || event.at("cat") == "collective"))
      events.push_back(event);
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.at("ts") < b.at("ts"); });
  for (const nlohmann::json& event : events) {
    ++names[{event.at("pid"), event.at("name")}];
    double& end = ends[{event.at("pid"), event.at("tid")}];
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(begin, end - 1e-3) << event.dump();
    end = begin + duration;
  }
  for (const int rank : {0, 1})
    for (const char* pass : {"F0.0", "F2.1", "B1.0", "W2.1"}) EXPECT_EQ((names[{rank, pass}]), 1) << rank << pass;
  EXPECT_EQ((names[{0, "send activation 2"}]), 1) << "of its first stage; its second is the last";
  EXPECT_EQ((names[{1, "send activation 2"}]), 1);
  EXPECT_EQ((names[{0, "recv activation 2"}]), 1);
  EXPECT_EQ((names[{1, "recv gradient 0"}]), 1);

  const PipelineTimeline timeline = timeline_of_trace(file, pipeline, 3, 2);
  for (const auto& rank : timeline.ranks) {
    std::string passes;
    for (const TimedInstruction& each : rank)
      if (is_pass(each.instruction.action)) passes += each.instruction.str(2) + " ";
    EXPECT_THAT(passes, ::testing::StartsWith("F0.0 "));
  }
  EXPECT_GT(timeline.end(), 18 * 200e-6) << "a rank's own passes";
}

TEST(PipelineTrace, of_another_run_is_refused) {
  const test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "trace.json";
  const Pipeline pipeline{.schedule = S::gpipe, .ranks = 2};
  trace_step(pipeline, 3, microseconds(100), file);
  EXPECT_EQ(timeline_of_trace(file, pipeline, 3, 2).ranks.size(), 2U);
  EXPECT_THAT(test::message_of<ConfigError>([&] { timeline_of_trace(file, pipeline, 4, 2); }),
              HasSubstr("has 3 forward passes there, and 4 in this run"));
  EXPECT_THROW(timeline_of_trace(file, {.schedule = S::gpipe, .ranks = 4}, 3, 4), ConfigError);
  std::ofstream(file) << "{}";
  EXPECT_THAT(test::message_of<ConfigError>([&] { timeline_of_trace(file, pipeline, 3, 2); }),
              HasSubstr("is no trace"));
}

/// Who is slow decides how many messages are under way, but not how many there may be.
TEST(PipelineTrace, no_rank_allocates_memory_for_messages_when_another_one_becomes_slow) {
  for (const S schedule : {S::gpipe, S::one_f_one_b, S::interleaved, S::zbh1, S::zbv}) {
    const Pipeline pipeline{.schedule = schedule, .ranks = 2, .chunks = default_chunks(schedule)};
    run_ranks(2, [&](Communicator& world, const Context& context) {
      constexpr int64_t kHidden = 40000;  // beyond what the arena leaves to others
      Rank rank(world, context, pipeline, microseconds(world.rank() == 0 ? 600 : 100), kHidden);
      rank.step(8), rank.step(8);
      const int64_t asked = context.memory->system_allocations();
      rank.network.set_pass(microseconds(world.rank() == 0 ? 100 : 600));
      for (int i = 0; i < 3; ++i) rank.step(8);
      EXPECT_EQ(context.memory->system_allocations(), asked) << name_of(schedule) << ", rank " << world.rank();
      EXPECT_LT(context.memory->ledger().peak(Category::communication), kHidden * 4) << "messages are not copied";
    });
  }
}

}  // namespace
}  // namespace nought::pipeline_trace_test
