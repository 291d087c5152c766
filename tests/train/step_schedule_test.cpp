// Schedules are lists: what they are made of, what is read from them, and which of them cannot run.
#include "nought/engine/step_schedule.h"

#include "support/message_of.h"
#include "support/schedules.h"
#include "support/tapes_in_flight.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::step_schedule_test {
namespace {

using test::schedule;
using testing::HasSubstr;

TEST(StepSchedule, a_plain_step_runs_one_micro_batch_after_another) {
  EXPECT_EQ(plain_schedule(1).str(), "F0 B0 reduce update");
  EXPECT_EQ(plain_schedule(3).str(), "F0 B0 F1 B1 F2 B2 reduce update");
  for (const int64_t count : {1, 2, 7}) {
    const StepSchedule plain = plain_schedule(count);
    EXPECT_EQ(plain.micro_batches(), count);
    EXPECT_EQ(plain.in_flight(0), 1);
    EXPECT_EQ(plain.last(), count - 1);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(plain.walks_back(i));
      EXPECT_FALSE(plain.defers(i));
      EXPECT_EQ(plain.end_of(i), 2 * i + 1);
    }
  }
}

TEST(StepSchedule, an_evaluation_walks_nothing_back) {
  const StepSchedule evaluation = evaluation_schedule(2);
  EXPECT_EQ(evaluation.str(), "F0 F1");
  EXPECT_FALSE(evaluation.walks_back(0) || evaluation.walks_back(1));
  EXPECT_EQ(evaluation.in_flight(0), 1);
  EXPECT_EQ(evaluation_schedule(0).micro_batches(), 0);
}

struct Facts {
  const char* text;
  int64_t in_flight, last;
};

TEST(StepSchedule, says_how_many_micro_batches_are_in_flight_and_which_ends_last) {
  for (const auto& [text, in_flight, last] : {Facts{"F0 F1 B0 B1 reduce update", 2, 1},
                                              {"F0 F1 B1 B0 reduce update", 2, 0},
                                              {"F0 F1 B0 F2 B1 B2 reduce update", 2, 2},
                                              {"F0 F1 F2 B0 B1 B2 reduce update", 3, 2},
                                              {"F0 B0 F1 B1 W1 W0 reduce update", 2, 0},
                                              {"F0 F1 B0 B1 W0 reduce update", 2, 0},
                                              {"F0 B0 W0 F1 B1 W1 reduce update", 1, 1},
                                              {"F1 B1 F0 B0 reduce update", 1, 0}}) {
    const StepSchedule made = schedule(text);
    EXPECT_EQ(made.str(), text);
    EXPECT_EQ(made.in_flight(0), in_flight) << text;
    EXPECT_EQ(test::tapes_in_flight(made), in_flight) << text;
    EXPECT_EQ(made.last(), last) << text;
  }
  const StepSchedule mixed = schedule("F0 F1 B0 B1 W0 reduce update");
  EXPECT_TRUE(mixed.defers(0));
  EXPECT_FALSE(mixed.defers(1));
  EXPECT_EQ(mixed.end_of(0), 4);
  EXPECT_EQ(mixed.end_of(1), 3);
}

TEST(StepSchedule, each_chunk_has_its_own_passes_transfers_and_end) {
  const char* text = "RF0.0 F0.0 F0.1 SF0.1 RB0.1 RF1.0 B0.1 F1.0 B0.0 SB0.0 F1.1 B1.1 B1.0 W1.0 reduce update";
  const StepSchedule made = schedule(text);
  EXPECT_EQ(made.str(), text);
  EXPECT_EQ(made.chunks(), 2);
  EXPECT_EQ(made.micro_batches(), 2);
  EXPECT_EQ(test::tapes_in_flight(made), 2) << "micro-batch 0 in both chunks";
  EXPECT_EQ(made.in_flight(0), 2) << "micro-batch 1 begins while micro-batch 0 is walked back";
  EXPECT_EQ(made.in_flight(1), 1);
  EXPECT_EQ(made.end_of(0, 1), 6);
  EXPECT_EQ(made.end_of(0, 0), 9) << "what is sent is kept until then";
  EXPECT_EQ(made.end_of(0), 9);
  EXPECT_EQ(made.last(0), 1);
  EXPECT_TRUE(made.defers(1, 0));
  EXPECT_FALSE(made.defers(1, 1));
  EXPECT_TRUE(made.has(Action::receive_activation, 0, 0));
  EXPECT_FALSE(made.has(Action::receive_activation, 0, 1)) << "it comes from this rank's first chunk";
}

TEST(StepSchedule, what_cannot_run_is_refused_with_the_whole_list) {
  for (const auto& [text, place] : {std::pair("B0 F0 reduce update", "B0 cannot come there"),
                                    {"F0 F0 B0 reduce update", "F0 cannot come there"},
                                    {"F0 B0 B0 reduce update", "B0 cannot come there"},
                                    {"F0 W0 B0 reduce update", "W0 cannot come there"},
                                    {"F0 B0 W0 W0 reduce update", "W0 cannot come there"},
                                    {"F0 F1 B0 reduce B1 update", "reduce cannot come there"},
                                    {"F0 B0 reduce F1 B1 update", "reduce cannot come there"},
                                    {"F0 B0 reduce W0 update", "W0 cannot come there"},
                                    {"F0 B0 update", "update cannot come there"},
                                    {"F0 B0 reduce reduce update", "reduce cannot come there"},
                                    {"F0 B0 reduce update F0", "F0 cannot come there"},
                                    {"reduce update", "reduce cannot come there"},
                                    {"F1 B1 reduce update", "reduce cannot come there"},
                                    {"F1 B1", "a micro-batch has no forward pass"},
                                    {"F0.1 F0.0", "F0.1 cannot come there"},
                                    {"F0.0 F0.1 B0.0 B0.1 reduce update", "B0.0 cannot come there"},
                                    {"F0.0 F0.1 F1.0", "a micro-batch has no forward pass"},
                                    {"F0.0 F0.1 B0.1 reduce B0.0 update", "reduce cannot come there"},
                                    {"SF0 F0", "SF0 cannot come there"},
                                    {"F0 RF0", "RF0 cannot come there"},
                                    {"RF0 RF0 F0", "RF0 cannot come there"},
                                    {"F0 SB0 B0", "SB0 cannot come there"},
                                    {"F0 B0 RB0", "RB0 cannot come there"},
                                    {"F0 SF0 SF0 B0", "SF0 cannot come there"},
                                    {"RB0 F0", "a gradient is received that no backward pass reads"},
                                    {"F9", "a micro-batch has no forward pass"}})
    EXPECT_THAT(test::message_of<Error>([text = text] { schedule(text); }),
                testing::AllOf(HasSubstr(fmt::format("schedule {}: ", text)), HasSubstr(place)));
}

}  // namespace
}  // namespace nought::step_schedule_test
