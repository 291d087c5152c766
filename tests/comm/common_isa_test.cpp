#include "nought/comm/common_isa.h"

#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/kernels/isa.h"

namespace nought::common_isa_test {
namespace {

// Ranks with different instruction sets need processes: tests/cli/isa_test.cpp has them.
TEST(CommonIsa, is_what_the_process_uses_where_all_ranks_have_the_same) {
  const Isa before = isa();
  run_ranks(3, [](Communicator& ranks, const Context& context) { EXPECT_EQ(use_common_isa(ranks, context), ""); });
  EXPECT_EQ(isa(), before);
  EXPECT_EQ(use_common_isa(*make_self_communicator(), Context::cpu()), "");
}

}  // namespace
}  // namespace nought::common_isa_test
