// Streams of CUDA behind Stream: the host goes on, waits between streams happen on the device, tasks hold what they
// need, and failures are named.
#include "nought/cuda/backend/stream.h"

#include <array>
#include <thread>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/device.h"
#include "nought/cuda/backend/kernel.h"
#include "nought/tensor/tensor.h"

namespace nought::cuda::stream_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

class CudaStreams : public ::testing::Test {
 protected:
  Tensor empty(int64_t count, Pool pool = Pool::device) {
    return Tensor::empty(*memory_, {count}, DType::f32, Category::activations, pool);
  }
  Tensor filled(std::vector<float> values) {
    Tensor x = empty(static_cast<int64_t>(values.size()));
    upload<float>(values, x, *compute_);
    return x;
  }

  std::shared_ptr<CudaDevice> device_ = std::make_shared<CudaDevice>(0, /*poison=*/true);
  std::shared_ptr<CudaStream> compute_ = device_->make_compute();
  std::shared_ptr<Memory> memory_ = Memory::create(device_);
};

TEST_F(CudaStreams, what_crosses_is_ordered_by_the_stream) {
  std::array<float, 4> values{1, 2, 3, 4};
  const Tensor x = empty(4), y = empty(4);
  upload<float>(values, x, *compute_);
  values.fill(9);  // the upload has its own copy
  copy(x, y, *compute_);
  zero(x.flat(1, 3), *compute_);
  EXPECT_EQ(download<float>(x, *compute_), (std::vector<float>{1, 0, 0, 4}));
  EXPECT_EQ(download<double>(y, *compute_), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(CudaStreams, copies_to_pinned_memory_are_late_and_waited_for_by_events) {
  const Tensor x = filled({1, 2}), host = empty(2, Pool::host);
  host.data<float>()[0] = 9;
  copy(x, host, *compute_);
  const Event copied = compute_->record();
  EXPECT_FALSE(copied.ready());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "nobody is blamed for it";
  EXPECT_EQ(host.data<float>()[0], 9) << "nobody has waited";
  copied.wait();
  EXPECT_TRUE(copied.ready());
  EXPECT_EQ(host.data<float>()[0], 1);
}

TEST_F(CudaStreams, one_stream_waits_for_another_without_the_host) {
  const auto other = device_->make_stream("copies");
  const Tensor x = filled({1, 2}), y = empty(2), z = empty(2);
  other->wait(compute_->record());
  copy(x, y, *other);
  compute_->wait(other->record());
  copy(y, z, *compute_);
  EXPECT_EQ(compute_->waits_of(std::this_thread::get_id()), 0);
  EXPECT_EQ(other->waits_of(std::this_thread::get_id()), 0);
  EXPECT_EQ(download<float>(z, *compute_), (std::vector<float>{1, 2}));
  EXPECT_EQ(compute_->waits_of(std::this_thread::get_id()), 1) << "a download is one wait";
}

TEST_F(CudaStreams, a_missing_wait_is_a_wrong_result) {
  const auto other = device_->make_stream("copies");
  const Tensor x = filled({1, 2}), y = empty(2);
  const std::vector<float> read = (copy(x, y, *other), download<float>(y, *other));
  EXPECT_NE(read, (std::vector<float>{1, 2}));
}

TEST_F(CudaStreams, waiting_for_a_task_of_the_host_is_done_on_the_host) {
  Stream worker(Stream::Kind::worker, "worker");
  const Tensor host = empty(1, Pool::host), x = empty(1);
  compute_->wait(worker.submit([&] { host.data<float>()[0] = 5; }));
  copy(host, x, *compute_);
  Event arrived = compute_->record();
  EXPECT_EQ(download<float>(x, *compute_)[0], 5);
  worker.wait(arrived);
  worker.record().wait();
}

TEST_F(CudaStreams, tasks_of_other_streams_hold_their_memory_until_they_were_waited_for) {
  const auto other = device_->make_stream("copies");
  Tensor x = filled({1, 2});
  const Tensor y = empty(2);
  const int64_t bytes = x.buffer()->bytes();
  other->wait(compute_->record());
  copy(x, y, *other);
  x = {};
  EXPECT_EQ(memory_->ledger().current_total(), 2 * bytes) << "the copy may not have run";
  compute_->wait(other->record());
  EXPECT_EQ(memory_->ledger().current_total(), bytes) << "who gets the block uses it after the copy";
  const Tensor z = filled({3, 4});
  EXPECT_EQ(download<float>(y, *compute_), (std::vector<float>{1, 2}));
}

TEST_F(CudaStreams, copies_of_host_memory_hold_it_on_every_stream) {
  const Tensor x = empty(2);
  Tensor host = empty(2, Pool::host);
  host.data<float>()[0] = 1;
  copy(host, x, *compute_);
  host = {};
  const Tensor other = empty(2, Pool::host);  // not the block that the copy will read
  other.data<float>()[0] = 9;
  EXPECT_EQ(download<float>(x, *compute_)[0], 1);
  EXPECT_EQ(memory_->ledger().current_total(Pool::host), other.buffer()->bytes()) << "somebody has waited";
}

TEST_F(CudaStreams, memory_of_the_host_is_held_although_the_compute_stream_waits) {
  const auto other = device_->make_stream("copies");
  const Tensor x = filled({1, 2});
  Tensor host = empty(2, Pool::host);
  const int64_t bytes = host.buffer()->bytes();
  other->wait(compute_->record());
  copy(x, host, *other);
  host = {};
  compute_->wait(other->record());
  EXPECT_EQ(memory_->ledger().current_total(Pool::host), bytes) << "the copy will write to it";
  other->record().wait();
  EXPECT_EQ(memory_->ledger().current_total(Pool::host), 0);
}

TEST_F(CudaStreams, the_compute_stream_holds_no_memory_of_the_device) {
  Tensor x = filled({1, 2});
  const Tensor y = empty(2);
  copy(x, y, *compute_);
  x = {};
  EXPECT_EQ(memory_->ledger().current_total(), y.buffer()->bytes());
  const Tensor z = filled({3, 4});  // the same block, in the order of the stream
  EXPECT_EQ(download<float>(y, *compute_), (std::vector<float>{1, 2}));
}

__global__ void broken_kernel() {
  if (threadIdx.x == 0) __syncthreads();
}

TEST_F(CudaStreams, a_failure_is_thrown_where_somebody_waits_and_names_how_to_find_it) {
  compute_->enqueue("Broken", [&] { launch({compute_->handle()}, 1, dim3(32), broken_kernel); });
  const std::string said = message_of<DeviceError>([&] { compute_->record().wait(); });
  EXPECT_THAT(said, HasSubstr("an earlier operation failed: cudaErrorLaunchFailure (block 0 of 32 threads hangs"));
  EXPECT_THAT(said, HasSubstr("NOUGHT_CUDA_SYNCHRONOUS=1 names it"));
}

TEST_F(CudaStreams, a_synchronous_stream_names_the_operation) {
  compute_->set_synchronous(true);
  EXPECT_THAT(message_of<DeviceError>([&] {
                compute_->enqueue("Broken", [&] { launch({compute_->handle()}, 1, dim3(32), broken_kernel); });
              }),
              HasSubstr("CUDA: Broken: cudaErrorLaunchFailure (block 0 of 32 threads hangs"));
}

TEST_F(CudaStreams, a_launch_that_cuda_refuses_is_named_at_once) {
  EXPECT_THAT(message_of<DeviceError>([&] {
                compute_->enqueue("Broken", [&] { launch({compute_->handle()}, 1, dim3(2048), broken_kernel); });
              }),
              HasSubstr("CUDA: Broken: cudaErrorInvalidConfiguration"));
}

}  // namespace
}  // namespace nought::cuda::stream_test
