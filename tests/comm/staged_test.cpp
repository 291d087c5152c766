// Which memories a transport needs copies for. tests/cuda sends through them.
#include "nought/comm/staged.h"

#include "support/guarded_context.h"
#include <gtest/gtest.h>

namespace nought::staged_test {
namespace {

TEST(Staged, is_nothing_that_a_transport_has_addresses_of) {
  const Context host = Context::reference(), guarded = test::guarded_context();
  EXPECT_FALSE(is_far(host.zeros({2}, DType::f32)));
  EXPECT_TRUE(is_far(guarded.zeros({2}, DType::f32)));
  for (const Context& context : {host, guarded}) {  // the guarded device gives its addresses to transports
    EXPECT_FALSE(needs_staging(context));
    EXPECT_EQ(beneath_staging(context).memory, context.memory);
    EXPECT_EQ(staged(nullptr, context), nullptr) << "nothing is put around it";
  }
}

}  // namespace
}  // namespace nought::staged_test
