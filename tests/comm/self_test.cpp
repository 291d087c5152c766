#include "nought/comm/self.h"

#include "support/communicator_checks.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/flight_recorder.h"
#include "nought/comm/flight_report.h"

namespace nought::self_test {
namespace {

NOUGHT_SIZE(medium);
TEST(Self, a_group_of_one_does_what_any_group_does) {
  const auto self = make_self_communicator();
  EXPECT_EQ(self->rank(), 0);
  EXPECT_EQ(self->size(), 1);
  EXPECT_EQ(self->backend(), "self");
  test::check_communicator(*self, Context::reference());
}

TEST(Self, sends_nothing_and_is_done_at_once) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  const Tensor x = context.zeros({100}, DType::f32);
  EXPECT_TRUE(self->all_reduce(x).ready());
  EXPECT_TRUE(self->reduce_scatter(x, x).ready());
  EXPECT_EQ(self->traffic().total_bytes(), 0);
  EXPECT_EQ(self->traffic()[Collective::all_reduce].calls, 1);
}

TEST(Self, has_no_peers) {
  const auto self = make_self_communicator();
  EXPECT_THROW(self->send(Context::reference().zeros({1}, DType::f32), 0), CommError);
}

TEST(Self, a_recorded_group_of_one_tells_what_it_does_and_no_calls) {
  EXPECT_EQ(make_self_communicator()->recorder(), nullptr);
  const auto self = make_recorded_self_communicator();
  ASSERT_NE(self->recorder(), nullptr);
  self->recorder()->set_step(7);
  note_phase(*self, "backward");
  self->recorder()->set_unit("block.3");
  self->check_calls(true);
  self->all_reduce(Context::reference().zeros({1}, DType::f32)).wait();
  const FlightSnapshot snapshot = flight_snapshot(*self->recorder()->page());
  EXPECT_TRUE(snapshot.calls.empty());
  const FlightReport report = flight_report({snapshot});
  ASSERT_EQ(report.table.size(), 2u);
  EXPECT_NE(report.table[1].find("in backward of block.3, step 7, for "), std::string::npos) << report.table[1];
  EXPECT_TRUE(report.findings.empty());
}

}  // namespace
}  // namespace nought::self_test
