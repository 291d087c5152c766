// What is concluded from the flight recorders of several ranks.
#include "nought/comm/flight_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/flight_recorder.h"

namespace nought::flight_report_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A rank of a job without communication: its calls are only recorded.
struct Rank {
  Rank(int rank, int size)
      : recorder(FlightPage::make(), rank, size, "host"), world(recorder.join(1, "world", rank, size)) {
    recorder.set_step(12);
    recorder.set_phase("forward");
  }
  FlightTicket issue(Collective::Kind collective, int64_t bytes = 4096, std::string_view subject = "block.3") {
    recorder.set_subject(subject);
    return recorder.submit(world, collective, ReduceOp::sum, DType::f32, bytes, -1);
  }
  void begin(Collective::Kind collective, int64_t bytes = 4096) { recorder.start(issue(collective, bytes)); }
  void make(Collective::Kind collective) {
    const FlightTicket ticket = issue(collective);
    recorder.start(ticket);
    recorder.end(ticket, false);
  }
  FlightRecorder recorder;
  FlightMembership world;
};

struct Job {
  explicit Job(int size) {
    for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<Rank>(rank, size));
    for (auto& rank : ranks) rank->make(Collective::barrier);
  }
  Rank& operator[](size_t i) { return *ranks[i]; }
  std::vector<FlightSnapshot> snapshots() const {
    std::vector<FlightSnapshot> all;
    for (const auto& rank : ranks) all.push_back(flight_snapshot(*rank->recorder.page()));
    return all;
  }
  FlightReport report() const { return flight_report(snapshots()); }
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST(FlightReport, nothing_is_found_where_no_call_waits) {
  const Job job(3);
  EXPECT_THAT(job.report().findings, IsEmpty());
  EXPECT_EQ(job.report().table.size(), 4u);
}

TEST(FlightReport, a_rank_that_has_not_come_is_named_with_what_it_does) {
  Job job(3);
  for (const size_t i : {0, 2}) job[i].begin(Collective::all_gather);
  job[1].recorder.set_phase("data");
  const FlightReport report = job.report();
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.findings[0],
              AllOf(HasSubstr("rank 1 (pid "), HasSubstr("on host) has not come to call 2 of world (all_gather of 4.00 "
                                                         "KiB f32 for block.3, step 12): in data, step 12, for ")));
  EXPECT_THAT(report.table[1], HasSubstr("s in call 2 of world (all_gather of 4.00 KiB f32 for block.3, step "
                                         "12); forward, step 12"));
  EXPECT_THAT(report.table[2], HasSubstr("in data, step 12, for "));
}

TEST(FlightReport, a_call_that_was_issued_but_not_begun_is_told_apart) {
  Job job(2);
  job[0].begin(Collective::all_gather);
  job[1].issue(Collective::all_gather);
  EXPECT_THAT(job.report().findings, ElementsAre(HasSubstr("has issued, but not begun call 2 of world")));
}

TEST(FlightReport, the_first_call_that_differs_is_named_with_both_sides) {
  Job job(3);
  for (const size_t i : {0, 1}) job[i].begin(Collective::all_gather);
  job[2].begin(Collective::reduce_scatter, 8192);
  const FlightReport report = job.report();
  ASSERT_EQ(report.findings.size(), 1u) << "the network is not to blame";
  EXPECT_EQ(report.findings[0],
            "call 2 of world differs: rank 0 issued all_gather of 4.00 KiB f32 for block.3 in step 12, rank 2 issued "
            "reduce_scatter of 8.00 KiB f32 for block.3 in step 12; ranks must issue the same calls");
}

TEST(FlightReport, a_stopped_and_a_dead_rank_are_named_first) {
  Job job(3);
  job[0].begin(Collective::all_reduce);
  std::vector<FlightSnapshot> ranks = job.snapshots();
  ranks[1].header.state = RankState::stopped;
  ranks[2].header.state = RankState::dead;
  const FlightReport report = flight_report(ranks);
  EXPECT_THAT(
      report.findings,
      ElementsAre(AllOf(HasSubstr("rank 1 (pid "), HasSubstr("is stopped by a signal, in forward, step 12; `kill "
                                                             "-CONT ")),
                  AllOf(HasSubstr("rank 2 (pid "), HasSubstr("is dead; its last work was forward, step 12"))));
  EXPECT_THAT(report.table[2], HasSubstr("stopped by a signal, in forward, step 12, for "));
}

TEST(FlightReport, the_network_is_suspected_when_all_have_come) {
  Job job(2);
  for (const size_t i : {0, 1}) job[i].begin(Collective::all_reduce);
  EXPECT_THAT(job.report().findings, ElementsAre(HasSubstr("every rank has come to call 2 of world (all_reduce of 4.00 "
                                                           "KiB f32 for block.3, step 12): the network does not")));
}

TEST(FlightReport, ranks_of_which_nothing_is_known_are_listed) {
  Job job(4);
  for (const size_t i : {0, 1, 2, 3}) job[i].begin(Collective::all_reduce);
  std::vector<FlightSnapshot> ranks = job.snapshots();
  ranks.erase(ranks.begin() + 1);
  ranks.pop_back();
  EXPECT_THAT(flight_report(ranks).findings, ElementsAre("nothing is known of 2 of 4 ranks: 1, 3"));
}

TEST(FlightReport, the_oldest_wait_is_shown_and_groups_have_their_names) {
  Job job(2);
  FlightMembership pair = job[0].recorder.join(7, "world/1.0", 0, 2);
  job[0].recorder.start(job[0].recorder.submit(pair, Collective::barrier, ReduceOp::sum, DType::u8, 0, -1));
  EXPECT_THAT(job.report().table[1], HasSubstr("in call 1 of world/1.0 (barrier for block.3, step 12)"));
}

}  // namespace
}  // namespace nought::flight_report_test
