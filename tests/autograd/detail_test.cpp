// What operations on a tape share: tensors that may be overwritten, and chunks of rows.
#include "nought/autograd/detail.h"

#include "support/guarded_context.h"
#include <gtest/gtest.h>

namespace nought::detail_test {
namespace {

TEST(OperationDetails, a_tensor_that_somebody_else_holds_is_copied_before_it_is_overwritten) {
  const Context context = Context::reference();
  Tensor x = context.zeros({3}, DType::f32);
  const std::byte* const bytes = x.raw();
  const Tensor other = x;
  EXPECT_NE(detail::writable(context, x).raw(), bytes);
  Tensor alone = context.zeros({3}, DType::f32);
  const std::byte* const own = alone.raw();
  EXPECT_EQ(detail::writable(context, std::move(alone)).raw(), own);
}

TEST(OperationDetails, logits_come_in_the_fewest_nearly_equal_chunks_below_64_mib) {
  constexpr int64_t kBytes = int64_t{64} << 20, kRow = 1 << 10;
  EXPECT_EQ(detail::rows_of_chunks(0, kRow, kBytes), 1);
  EXPECT_EQ(detail::rows_of_chunks(1000, kRow, kBytes), 1000) << "all at once";
  EXPECT_EQ(detail::rows_of_chunks(kBytes / kRow + 2, kRow, kBytes), kBytes / kRow / 2 + 1) << "two halves";
  EXPECT_EQ(detail::rows_of_chunks(10, 2 * kBytes, kBytes), 1) << "a row that is too long comes alone";
  EXPECT_LE(detail::rows_of_chunks(100'000, 130'000, kBytes) * 130'000, kBytes);
}

TEST(OperationDetails, a_device_of_its_own_has_more_logits_at_once_than_the_host) {
  const int64_t host = detail::chunk_bytes(Context::reference()), device = detail::chunk_bytes(test::guarded_context());
  EXPECT_EQ(host, int64_t{64} << 20);
  EXPECT_GE(detail::rows_of_chunks(1 << 16, 2 * 128'256, device), 4000)
      << "the gradient of the head is added up rarely";
}

}  // namespace
}  // namespace nought::detail_test
