// The instruction lists of all ranks of a pipeline, without a model and without communication.
#include "nought/engine/pipeline_schedules.h"

#include "support/message_of.h"
#include "support/pipelines.h"
#include "support/schedule_run.h"
#include "support/schedules.h"
#include "support/tapes_in_flight.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::pipeline_schedules_test {
namespace {

using test::for_each_pipeline;
using test::PipelineCase;

constexpr Pipeline kFour{.schedule = PipelineSchedule::one_f_one_b, .ranks = 4};

/// The passes alone.
std::string passes(const StepSchedule& schedule) {
  std::string text;
  for (const Instruction& each : schedule.instructions())
    if (is_pass(each.action)) text += (text.empty() ? "" : " ") + each.str(schedule.chunks());
  return text;
}

struct Worked {
  PipelineSchedule schedule;
  int64_t ranks, chunks, rank, micro_batches;
  const char* passes;
};

TEST(PipelineSchedules, the_passes_have_the_published_orders) {
  const auto gpipe = PipelineSchedule::gpipe, one = PipelineSchedule::one_f_one_b;
  const auto interleaved = PipelineSchedule::interleaved, zbh1 = PipelineSchedule::zbh1, zbv = PipelineSchedule::zbv;
  for (const Worked& worked : {
           Worked{gpipe, 4, 1, 1, 4, "F0 F1 F2 F3 B0 B1 B2 B3"},
           Worked{one, 4, 1, 1, 8, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"},
           Worked{one, 4, 1, 3, 3, "F0 B0 F1 B1 F2 B2"},
           Worked{one, 4, 1, 0, 2, "F0 F1 B0 B1"},
           Worked{interleaved, 4, 2, 1, 8,
                  "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 B0.1 F5.0 B1.1 F6.0 B2.1 F7.0 B3.1 F4.1 B0.0 F5.1 "
                  "B1.0 F6.1 B2.0 F7.1 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0"},
           Worked{zbh1, 4, 1, 1, 8, "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7"},
           Worked{zbv, 2, 2, 0, 4,
                  "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 F3.0 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 F3.1 B3.1 "
                  "W3.1 B2.0 W2.0 B3.0 W3.0"},
           Worked{zbv, 2, 2, 1, 4,
                  "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 F3.0 B1.0 W1.0 F3.1 B2.1 W2.1 B2.0 "
                  "B3.1 B3.0 W2.0 W3.1 W3.0"},
       }) {
    const Pipeline pipeline{worked.schedule, worked.ranks, worked.chunks};
    EXPECT_EQ(passes(pipeline_schedule(pipeline, worked.rank, worked.micro_batches)), worked.passes)
        << name_of(worked.schedule);
  }
}

TEST(PipelineSchedules, transfers_stand_overlapped_with_the_passes_that_make_and_read_them) {
  EXPECT_EQ(pipeline_schedule(kFour, 0, 2).str(), "F0 SF0 F1 SF1 RB0 B0 RB1 B1 reduce update");
  EXPECT_EQ(pipeline_schedule(kFour, 2, 2).str(), "RF0 F0 SF0 RF1 F1 SF1 RB0 B0 SB0 RB1 B1 SB1 reduce update");
  EXPECT_EQ(pipeline_schedule(kFour, 3, 2).str(), "RF0 F0 B0 SB0 RF1 F1 B1 SB1 reduce update");
  const Pipeline v{PipelineSchedule::zbv, 2, 2};
  EXPECT_EQ(pipeline_schedule(v, 1, 1).str(), "RF0.0 F0.0 F0.1 SF0.1 RB0.1 B0.1 W0.1 B0.0 SB0.0 W0.0 reduce update")
      << "the stages in the middle are neighbours on the last rank";
}

TEST(PipelineSchedules, one_rank_sends_nothing) {
  for_each_pipeline([](const PipelineCase& each) {
    if (each.pipeline.ranks > 1) return;
    for (const Instruction& at : each.ranks[0].instructions())
      ASSERT_FALSE(sends(at.action) || receives(at.action)) << each.str();
  });
  EXPECT_EQ(pipeline_schedule({.ranks = 1}, 0, 3).instructions(), plain_schedule(3).instructions());
}

TEST(PipelineSchedules, every_chunk_walks_back_in_the_order_of_the_micro_batches) {
  for_each_pipeline([](const PipelineCase& each) {
    const bool splits = each.schedule() == PipelineSchedule::zbh1 || each.schedule() == PipelineSchedule::zbv;
    for (const StepSchedule& schedule : each.ranks) {
      ASSERT_EQ(schedule.chunks(), each.pipeline.chunks) << each.str();
      ASSERT_EQ(schedule.micro_batches(), each.micro_batches) << each.str();
      std::map<std::pair<Action, int64_t>, int64_t> next;
      for (const Instruction& at : schedule.instructions())
        if (is_pass(at.action)) {
          ASSERT_EQ(at.micro_batch, (next[{at.action, at.chunk}]++)) << each.str() << ": " << schedule.str();
        }
      for (int64_t chunk = 0; chunk < each.pipeline.chunks; ++chunk) {
        ASSERT_EQ((next[{Action::backward, chunk}]), each.micro_batches) << each.str();
        ASSERT_EQ(schedule.last(chunk), each.micro_batches - 1) << each.str();
        ASSERT_EQ((next[{Action::weight_gradients, chunk}]), splits ? each.micro_batches : 0) << each.str();
      }
    }
  });
}

TEST(PipelineSchedules, every_send_meets_its_receive_in_the_same_order) {
  for_each_pipeline([](const PipelineCase& each) {
    const auto [sent, received] = test::ScheduleRun(each.ranks, each.pipeline.v_shaped(), 0).exchanged();
    ASSERT_EQ(sent, received) << each.str();
    size_t messages = 0;
    for (const auto& [pair, list] : sent) messages += list.size();
    // Each boundary between stages of two ranks has an activation and a gradient of each micro-batch.
    const int64_t boundaries = each.pipeline.v_shaped()   ? 2 * (each.pipeline.ranks - 1)
                               : each.pipeline.ranks == 1 ? 0
                                                          : each.pipeline.ranks * each.pipeline.chunks - 1;
    ASSERT_EQ(messages, 2 * boundaries * each.micro_batches) << each.str();
  });
}

TEST(PipelineSchedules, no_rank_waits_for_ever_with_the_room_that_is_told_and_two_receives_begun) {
  for_each_pipeline([](const PipelineCase& each) {
    test::ScheduleRun run(each.ranks, each.pipeline.v_shaped(), message_room(each.pipeline, each.micro_batches));
    ASSERT_TRUE(run.ends()) << each.str();
    ASSERT_LE(run.most_received(), each.pipeline.v_shaped() ? 3 : 2) << each.str();
  });
}

TEST(PipelineSchedules, less_room_is_too_little) {
  for (const auto& [pipeline, micro_batches] : {std::pair(Pipeline{PipelineSchedule::zbv, 2, 2}, 4),
                                                {Pipeline{PipelineSchedule::interleaved, 4, 2}, 8},
                                                {Pipeline{PipelineSchedule::interleaved, 6, 3}, 16}}) {
    const PipelineCase each(pipeline, micro_batches);
    const int64_t room = message_room(pipeline, micro_batches);
    EXPECT_TRUE(test::ScheduleRun(each.ranks, pipeline.v_shaped(), room).ends()) << each.str();
    EXPECT_FALSE(test::ScheduleRun(each.ranks, pipeline.v_shaped(), room - 1).ends()) << each.str();
  }
}

/// The tapes that a rank holds at most, from the forward pass to the last gradient.
int64_t most_alive(const PipelineCase& each, int64_t rank) {
  const int64_t p = each.pipeline.ranks, m = each.micro_batches, v = each.pipeline.chunks;
  switch (each.schedule()) {
    case PipelineSchedule::gpipe:
      return m;
    case PipelineSchedule::one_f_one_b:
      return std::min(p - rank, m);
    case PipelineSchedule::interleaved:
      return std::min(2 * (p - 1 - rank) + (v - 1) * each.round() + 1, v * m);
    case PipelineSchedule::zbh1:
      return std::min(p, m);
    case PipelineSchedule::zbv:
      return std::min({2 * p, 2 * m, m + 1 + rank});
  }
  return -1;
}

TEST(PipelineSchedules, micro_batches_in_flight_are_those_of_the_closed_forms) {
  for_each_pipeline([](const PipelineCase& each) {
    for (size_t rank = 0; rank < each.ranks.size(); ++rank)
      ASSERT_EQ(test::tapes_in_flight(each.ranks[rank]), most_alive(each, static_cast<int64_t>(rank)))
          << each.str() << ", rank " << rank << ": " << each.ranks[rank].str();
  });
}

TEST(PipelineSchedules, a_chunk_has_no_more_in_flight_than_micro_batches_and_all_chunks_no_fewer_than_the_tapes) {
  for_each_pipeline([](const PipelineCase& each) {
    for (const StepSchedule& schedule : each.ranks) {
      int64_t sum = 0;
      for (int64_t chunk = 0; chunk < schedule.chunks(); ++chunk) {
        ASSERT_LE(schedule.in_flight(chunk), each.micro_batches) << each.str();
        sum += schedule.in_flight(chunk);
      }
      ASSERT_GE(sum, test::tapes_in_flight(schedule)) << each.str();
      if (schedule.chunks() == 1) {
        ASSERT_EQ(sum, test::tapes_in_flight(schedule)) << each.str();
      }
    }
  });
}

TEST(PipelineSchedules, zbh1_holds_no_more_than_1f1b_but_for_what_weight_gradients_need) {
  // What a pass keeps until its backward pass, and then until its weight gradients.
  const int64_t until_backward = 5, until_weights = 3;
  for_each_pipeline([&](const PipelineCase& each) {
    if (each.schedule() != PipelineSchedule::zbh1) return;
    const int64_t p = each.pipeline.ranks, m = each.micro_batches;
    for (int64_t rank = 0; rank < p; ++rank) {
      int64_t held = 0, most = 0;
      for (const Instruction& at : each.ranks[static_cast<size_t>(rank)].instructions()) {
        if (at.action == Action::forward) most = std::max(most, held += until_backward);
        if (at.action == Action::backward) most = std::max(most, held -= until_backward - until_weights);
        if (at.action == Action::weight_gradients) held -= until_weights;
      }
      const int64_t deferred = std::clamp<int64_t>(m - (p - rank), 0, rank);
      ASSERT_EQ(most, std::min(p - rank, m) * until_backward + deferred * until_weights) << each.str();
    }
  });
}

TEST(PipelineSchedules, an_evaluation_takes_any_number_of_micro_batches) {
  for_each_pipeline([](PipelineCase each) {
    for (int64_t rank = 0; rank < each.pipeline.ranks; ++rank)
      each.ranks[static_cast<size_t>(rank)] = pipeline_evaluation_schedule(each.pipeline, rank, each.micro_batches);
    test::ScheduleRun run(each.ranks, each.pipeline.v_shaped(), message_room(each.pipeline, each.micro_batches));
    const auto [sent, received] = run.exchanged();
    ASSERT_EQ(sent, received) << each.str();
    ASSERT_TRUE(run.ends()) << each.str();
    ASSERT_FALSE(each.ranks[0].walks_back(0)) << each.str();
    ASSERT_EQ(each.ranks[0].micro_batches(), each.micro_batches) << each.str();
  });
  const Pipeline interleaved{PipelineSchedule::interleaved, 2, 2};
  EXPECT_EQ(pipeline_evaluation_schedule(interleaved, 0, 3).str(),
            "F0.0 SF0.0 F1.0 SF1.0 RF0.1 F0.1 SF0.1 RF1.1 F1.1 SF1.1 F2.0 SF2.0 RF2.1 F2.1 SF2.1");
  EXPECT_EQ(pipeline_evaluation_schedule(kFour, 0, 0).micro_batches(), 0);
}

TEST(PipelineSchedules, what_the_rules_refuse_is_refused) {
  EXPECT_THROW(pipeline_schedule({PipelineSchedule::interleaved, 4, 2}, 0, 13), ConfigError);
  EXPECT_THROW(pipeline_schedule({PipelineSchedule::gpipe, 4, 2}, 0, 8), ConfigError);
  EXPECT_THROW(pipeline_schedule(kFour, 0, 0), ConfigError);
  EXPECT_THROW(pipeline_schedule(kFour, 4, 8), Error);
}

}  // namespace
}  // namespace nought::pipeline_schedules_test
