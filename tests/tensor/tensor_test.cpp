#include "nought/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "nought/tensor/random.h"
#include "nought/tensor/stream.h"

namespace nought {
namespace {

TEST(DType, every_f16_code_survives_a_round_trip) {
  for (uint32_t code = 0; code < 65536; ++code) {
    f16_t h;
    h.bits = static_cast<uint16_t>(code);
    const float value = h;
    if (std::isnan(value)) continue;
    EXPECT_EQ(f16_t(value).bits, h.bits) << code;
  }
}

TEST(DType, f16_rounds_to_nearest_even_at_every_midpoint) {
  for (uint32_t code = 0; code + 1 <= 0x7BFF; ++code) {  // all finite neighbours
    f16_t low, high;
    low.bits = static_cast<uint16_t>(code), high.bits = static_cast<uint16_t>(code + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    EXPECT_EQ(f16_t(middle).bits, code % 2 == 0 ? low.bits : high.bits) << code;
    EXPECT_EQ(f16_t(std::nextafter(middle, 0.0f)).bits, low.bits) << code;
    EXPECT_EQ(f16_t(std::nextafter(middle, 1e9f)).bits, high.bits) << code;
  }
  EXPECT_EQ(f16_t(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(f16_t(65520.0f).bits, 0x7C00);
}

TEST(DType, bf16_rounds_to_nearest_even_and_keeps_nan) {
  EXPECT_EQ(bf16_t(1.00390625f).bits, 0x3F80);  // the midpoint of 1 and 1 + 2^-7 goes to the even one
  EXPECT_EQ(bf16_t(1.01171875f).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16_t(std::nanf("")))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16_t(3.4e38f))));
}

TEST(Ledger, counts_what_is_alive_by_category_and_remembers_the_peak) {
  auto memory = Memory::create();
  {
    Tensor a = Tensor::empty(*memory, {1024}, DType::f32, Category::parameters);
    {
      Tensor b = Tensor::empty(*memory, {100}, DType::bf16, Category::activations);
      EXPECT_EQ(memory->ledger().current(Category::activations), 256);  // 200 bytes, rounded up to 64
    }
    EXPECT_EQ(memory->ledger().current_total(), 4096);
  }
  EXPECT_EQ(memory->ledger().current_total(), 0);
  EXPECT_EQ(memory->ledger().peak_total(), 4096 + 256);
  EXPECT_EQ(memory->ledger().at_peak(Category::parameters), 4096);
}

TEST(Memory, counts_what_it_adopted_and_gives_it_back_to_its_owner) {
  const auto memory = Memory::create();
  const std::shared_ptr<void> block(std::malloc(4096), [](void* data) { std::free(data); });
  {
    const Tensor tensor(memory->adopt(block, 4096, Category::communication), 0, {1024}, DType::f32);
    EXPECT_EQ(tensor.raw(), block.get());
    EXPECT_EQ(block.use_count(), 2);
    EXPECT_EQ(memory->ledger().current(Category::communication), 4096);
  }
  EXPECT_EQ(block.use_count(), 1);
  EXPECT_EQ(memory->ledger().current_total(), 0);
  memory->set_limit(4095);
  EXPECT_THROW(memory->adopt(block, 4096, Category::communication), MemoryLimitError);
}

TEST(Memory, reuses_freed_blocks) {
  auto memory = Memory::create();
  for (int i = 0; i < 10; ++i) Tensor::empty(*memory, {1000 + i}, DType::f32, Category::workspace);
  EXPECT_EQ(memory->system_allocations(), 1);
}

TEST(Memory, zeros_are_zero_and_touch_no_page_that_comes_fresh_from_the_system) {
  const auto memory = Memory::create();
  constexpr int64_t kBytes = 8 << 20, kPage = 4096;
  const auto zeros = [&] { return Tensor::zeros(*memory, {kBytes}, DType::u8, Category::workspace); };
  Tensor fresh = zeros();
  std::vector<unsigned char> resident(kBytes / kPage);
  ASSERT_EQ(mincore(fresh.raw(), kBytes, resident.data()), 0);
  EXPECT_EQ(std::count(resident.begin(), resident.end(), 0), kBytes / kPage);
  const std::vector<uint8_t> none(kBytes, 0);
  EXPECT_EQ(std::memcmp(fresh.raw(), none.data(), kBytes), 0);
  std::memset(fresh.raw(), 7, kBytes);
  const std::byte* const before = fresh.raw();
  fresh = {};
  const Tensor reused = zeros();
  EXPECT_EQ(reused.raw(), before);
  EXPECT_EQ(std::memcmp(reused.raw(), none.data(), kBytes), 0);
}

TEST(Tensor, views_share_bytes_and_stay_inside) {
  auto memory = Memory::create();
  const std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  Tensor t = Tensor::of<float>(*memory, {3, 2}, values);
  EXPECT_EQ(t.slice(1, 3).to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
  t.flat(2, 4).data<float>()[0] = 9;
  EXPECT_EQ(t.data<float>()[2], 9);
  EXPECT_THROW(t.flat(3, 7), ShapeError);
  EXPECT_THROW(t.data<double>(), ShapeError);
  EXPECT_THROW(t.reshape({4}), ShapeError);
  EXPECT_FALSE(t.slice(0, 1).unique());
}

TEST(Memory, virtual_memory_is_counted_and_costs_nothing) {
  auto memory = Memory::create_virtual();
  constexpr int64_t kElements = int64_t{1} << 38;  // a terabyte of fp32
  const Tensor huge = Tensor::zeros(*memory, {kElements}, DType::f32, Category::parameters);
  EXPECT_EQ(memory->ledger().current(Category::parameters), 4 * kElements);
  copy(huge.flat(0, kElements / 2), huge.flat(kElements / 2, kElements));
  huge.data<float>()[kElements - 1] = 3;  // a few values may be kept
  EXPECT_EQ(huge.flat(kElements - 1, kElements).item(), 3);
}

TEST(Memory, a_budget_refuses_what_exceeds_it_and_nothing_else) {
  auto memory = Memory::create();
  memory->set_limit(1024);
  const auto held = memory->allocate(1000, Category::gradients);  // counted as 1024
  EXPECT_THROW(memory->allocate(1, Category::activations), MemoryLimitError);
  EXPECT_NO_THROW(memory->allocate(1 << 20, Category::optimizer, Pool::host)) << "the budget is of the device";
  memory->set_limit(0);
  EXPECT_NO_THROW(memory->allocate(1, Category::activations));
}

TEST(Stream, worker_runs_in_order_and_events_carry_failures) {
  Stream stream(Stream::Kind::worker, "test");
  std::vector<int> order;
  Event first = stream.submit([&] { order.push_back(1); });
  Event bad = stream.submit([&] { fail<CommError>("broken"); });
  Event last = stream.submit([&] { order.push_back(2); });
  last.wait();
  first.wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_THROW(bad.wait(), CommError);
}

TEST(Random, philox_matches_the_published_vectors) {  // Random123, kat_vectors, philox4x32-10
  EXPECT_EQ(philox(0, 0), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, normal_values_have_mean_zero_and_variance_one) {
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal_at(42, i);
    sum += x, squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
}

}  // namespace
}  // namespace nought
