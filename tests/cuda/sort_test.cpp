// Keys are sorted on the device: of any number, within one tile and over many, on any grid.
#include "nought/cuda/backend/sort.h"

#include <algorithm>

#include "cuda_emulation/control.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"
#include "nought/tensor/random.h"

namespace nought::cuda::sort_test {
namespace {

TEST(CudaSort, keys_are_in_order_whatever_their_number_and_the_grid) {
  const Context context = make_context();
  const auto& stream = dynamic_cast<const CudaStream&>(*context.stream);
  for (const int64_t n : {1, 2, 3, 100, 2048, 2049, 8192}) {
    const int64_t room = room_of_keys(n);
    ASSERT_GE(room, std::max<int64_t>(n, 2));
    std::vector<int64_t> keys(static_cast<size_t>(room), static_cast<int64_t>(kNoKey));
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(i);
      keys[at] = static_cast<int64_t>(uint64_t{philox(5, at)[0] % 50} << 32 | at);
    }
    std::vector<int64_t> sorted(keys.begin(), keys.begin() + n);
    std::sort(sorted.begin(), sorted.end());
    for (const int64_t max_blocks : {1, 3}) {
      SCOPED_TRACE(std::to_string(n) + " keys on " + std::to_string(max_blocks) + " blocks");
      emulation::set_order(static_cast<emulation::Order>(max_blocks));
      const Tensor there = context.upload<int64_t>({room}, keys);
      sort_keys({stream.handle(), max_blocks}, reinterpret_cast<uint64_t*>(there.in_flight().raw()), room);
      std::vector<int64_t> result = context.to_host<int64_t>(there);
      result.resize(static_cast<size_t>(n));
      EXPECT_EQ(result, sorted);
    }
  }
  emulation::set_order(0);
}

}  // namespace
}  // namespace nought::cuda::sort_test
