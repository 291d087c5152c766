// A trace holds every operation and collective of every rank, in one file that trace viewers read.
#include "nought/diagnose/trace.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::trace_test {
namespace {

constexpr int kRanks = 2;

nlohmann::json trace_of_a_step(const std::filesystem::path& file) {
  test::TrainingCase each = test::learning(test::tiny_llama(), test::sharded(kRanks, 3));
  each.rows.of_step = kRanks, each.timed = true;
  each.on_ranks([&](test::TrainingRank& rank) {
    rank.world.record(rank.timeline);
    const TraceEvent::Clock::time_point origin = TraceEvent::Clock::now();
    rank.timeline->start();
    rank.step(0);
    rank.model.settle();
    write_trace(rank.world, rank.context, rank.timeline->take(), origin, file);
  });
  return nlohmann::json::parse(std::ifstream(file));
}

struct Named {
  std::string category, name;
  double begin = 0, end = 0;
};

TEST(Trace, has_every_operation_and_collective_of_every_rank_on_its_stream) {
  const test::TempFolder folder;
  const nlohmann::json trace = trace_of_a_step(folder.path() / "trace.json");
  std::map<int, std::vector<Named>> computing, communicating;
  std::set<std::string> names;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      names.insert(event.at("args").at("name"));
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(begin, 0);
    EXPECT_GE(duration, 0);
    const std::string category = event.at("cat");
    auto& lanes = category == "collective" ? communicating : computing;
    lanes[event.at("pid")].push_back({category, event.at("name"), begin, begin + duration});
    if (category == "collective") {
      EXPECT_GT(event.at("args").at("bytes").get<int64_t>(), 0);
    }
    if (event.at("name") == "Attention") {
      EXPECT_EQ(event.at("args").at("arguments"),
                "q 8 rows in f32[8, 48], k 8 rows in f32[8, 48], v 8 rows in f32[8, 48], out f32[8, 16], lse "
                "f32[2, 8], batch 0, q_length 0, k_length 0, num_heads 2, num_kv_heads 2, head_dim 8, scale "
                "0.35355339059327373, causal, window 0, softcap 0, v_head_dim 0, spans 1");
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 1", "compute", "communication"}));
  for (int rank = 0; rank < kRanks; ++rank) {
    std::map<std::string, int> counts;
    for (const auto& lane : {computing[rank], communicating[rank]})
      for (const Named& each : lane) ++counts[each.category + " " + each.name];
    EXPECT_EQ(counts["phase forward"], 1);
    EXPECT_EQ(counts["phase backward"], 1);
    EXPECT_EQ(counts["unit block.0, forward"], 1);
    EXPECT_EQ(counts["unit block.1, backward"], 1);
    EXPECT_EQ(counts["operation Attention"], 2);
    EXPECT_EQ(counts["operation AttentionBackward"], 2);
    EXPECT_GE(counts["operation Adam"], 4) << "one for each Unit's shard at least";
    EXPECT_EQ(counts["collective reduce_scatter"], 4);
    EXPECT_GE(counts["collective all_gather"], 7);
    EXPECT_EQ(counts["collective all_reduce"], 1) << "of the norm and the loss";
  }
}

TEST(Trace, operations_lie_within_the_phases_of_their_rank) {
  const test::TempFolder folder;
  const nlohmann::json trace = trace_of_a_step(folder.path() / "trace.json");
  std::map<int, std::vector<Named>> phases;
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("cat") == "phase")
      phases[event.at("pid")].push_back(
          {"phase", event.at("name"), event.at("ts"), event.at("ts").get<double>() + event.at("dur").get<double>()});
  constexpr double kRounding = 1e-3;  // of the times as text, us
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || (event.at("cat") != "operation" && event.at("cat") != "unit")) continue;
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    const auto& of_rank = phases[event.at("pid")];
    EXPECT_TRUE(std::any_of(of_rank.begin(), of_rank.end(), [&](const Named& phase) {
      return phase.begin <= begin + kRounding && end <= phase.end + kRounding;
    })) << event.dump();
  }
}

}  // namespace
}  // namespace nought::trace_test
