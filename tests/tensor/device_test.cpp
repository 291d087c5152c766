// Host code touches no byte of a device: what crosses goes through functions that take a stream, and the memory that
// work in flight uses is nobody else's.
#include "nought/tensor/device.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "support/guarded_device.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/tensor/tensor.h"

namespace nought::device_test {
namespace {

using test::GuardedMemory;
using test::message_of;
using ::testing::Each;
using ::testing::HasSubstr;

Tensor empty(const GuardedMemory& rank, int64_t count) {
  return Tensor::empty(*rank.memory, {count}, DType::f32, Category::activations);
}

TEST(Device, ram_has_one_address_and_work_on_it_is_done_at_once) {
  const auto memory = Memory::create();
  Stream stream;
  const Tensor x = Tensor::empty(*memory, {3}, DType::f32, Category::activations);
  const std::array<float, 3> values{1, 2, 3};
  upload<float>(values, x, stream);
  EXPECT_EQ(x.data<float>()[2], 3);
  EXPECT_EQ(x.in_flight().raw(), x.raw());
  EXPECT_EQ(memory->device().compute(), nullptr);
  EXPECT_EQ(memory->host_pool(), Pool::device);
  EXPECT_EQ(memory->device().name(), "cpu");
}

TEST(Device, what_crosses_is_ordered_by_the_stream) {
  const GuardedMemory rank;
  const Tensor x = empty(rank, 4), y = empty(rank, 4);
  std::array<float, 4> values{1, 2, 3, 4};
  upload<float>(values, x, *rank.stream);
  values.fill(9);  // the upload has its own copy
  copy(x, y, *rank.stream);
  zero(x.flat(1, 3), *rank.stream);
  EXPECT_EQ(download<float>(x, *rank.stream), (std::vector<float>{1, 0, 0, 4}));
  EXPECT_EQ(download<double>(y, *rank.stream), (std::vector<double>{1, 2, 3, 4}));
  const Tensor host = Tensor::of<float>(*rank.memory, {4}, values);
  EXPECT_EQ(host.buffer()->pool(), Pool::host);
  copy(x, host, *rank.stream);
  EXPECT_EQ(host.to_vector<float>()[0], 9) << "the stream runs late";
  rank.stream->synchronize();
  EXPECT_EQ(host.to_vector<float>()[0], 1);
}

TEST(Device, host_code_gets_no_bytes_of_it) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const GuardedMemory rank;
  const Tensor x = empty(rank, 1);
  zero(x, *rank.stream);
  rank.stream->synchronize();
  EXPECT_THAT(message_of<DeviceError>([&] { x.item(); }),
              HasSubstr("item() of f32[1], which lies on the device guarded"));
  EXPECT_THAT(message_of<DeviceError>([&] { x.to_vector<int>(); }), HasSubstr("Context::to_host()"));
  EXPECT_DEATH(std::printf("%f", static_cast<double>(*x.data<float>())), "");
  EXPECT_DEATH(*x.data<float>() = 1, "");
  EXPECT_THAT(message_of<DeviceError>([&] { Tensor::zeros(*rank.memory, {1}, DType::f32, Category::activations); }),
              HasSubstr("the host cannot clear memory of the device guarded"));
}

TEST(Device, a_stream_of_the_host_cannot_copy_there) {
  const GuardedMemory rank, other;
  Stream host;
  const Tensor x = empty(rank, 2), y = empty(rank, 2);
  const std::array<float, 2> values{1, 2};
  EXPECT_THAT(message_of<DeviceError>([&] { copy(x, y, host); }),
              HasSubstr("copy of f32[2] on a stream of the host, expected one of the device guarded"));
  EXPECT_THROW(zero(x, host), DeviceError);
  EXPECT_THROW(upload<float>(values, x, host), DeviceError);
  EXPECT_THAT(message_of<DeviceError>([&] { copy(empty(other, 2), x, *rank.stream); }),
              HasSubstr("lies in the memory of another rank"));
}

TEST(Device, work_in_flight_keeps_its_memory_and_counts_for_nothing_else) {
  const GuardedMemory rank;
  Tensor x = empty(rank, 1000);
  const std::vector<float> ones(1000, 1);
  upload<float>(ones, x, *rank.stream);
  EXPECT_TRUE(x.unique()) << "what is submitted later may overwrite it";
  const Tensor y = empty(rank, 1000);
  copy(x, y, *rank.stream);
  const std::byte* const address = x.raw();
  const int64_t bytes = x.buffer()->bytes();
  x = {};
  EXPECT_EQ(rank.memory->ledger().current_total(), 2 * bytes) << "the copy has not run";
  const Tensor z = empty(rank, 1000);
  EXPECT_NE(z.raw(), address);
  EXPECT_THAT(download<float>(y, *rank.stream), Each(1));
  EXPECT_EQ(rank.memory->ledger().current_total(), 2 * bytes) << "y and z";
  const Tensor again = empty(rank, 1000);
  EXPECT_EQ(again.raw(), address);
  EXPECT_THAT(download<float>(again, *rank.stream), Each(testing::Truly([](float value) { return std::isnan(value); })))
      << "nothing is left of what went back";
}

}  // namespace
}  // namespace nought::device_test
