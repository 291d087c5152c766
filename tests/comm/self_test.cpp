#include "support/communicator_checks.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

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

}  // namespace
}  // namespace nought
