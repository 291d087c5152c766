// A Context on any device: what it makes, copies and brings to the host, in the order of its stream.
#include "nought/kernels/kernels.h"

#include <array>
#include <map>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/operation_samples.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::kernels_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class OnDevices : public ::testing::TestWithParam<bool> {
 protected:
  Context context_ = test::contexts_of(1, GetParam()).front();
};

TEST_P(OnDevices, tensors_are_made_copied_and_read) {
  const std::array<float, 3> values{1, 2, 3};
  const Tensor x = context_.upload<float>({3}, values), y = context_.zeros({3}, DType::f32);
  context_.run(AddTo{.x = x, .into = y});
  context_.run(AddTo{.x = x, .into = y});
  context_.copy(y, x);
  context_.zero(y);
  EXPECT_EQ(context_.to_host<int>(x), (std::vector<int>{2, 4, 6}));
  EXPECT_THAT(context_.to_host<float>(y), Each(0));
}

TEST_P(OnDevices, what_the_host_reads_and_what_kernels_read_is_copied_where_it_must_be) {
  const std::array<float, 2> values{1, 2};
  const Tensor made = Tensor::of<float>(*context_.memory, {2}, values), placed = context_.on_device(made);
  EXPECT_EQ(placed.raw() == made.raw(), !GetParam());
  context_.run(Scale{.x = placed, .factor = 3});
  const Tensor host = context_.on_host(placed);
  EXPECT_EQ(host.to_vector<float>(), (std::vector<float>{3, 6}));
  EXPECT_EQ(host.raw() == placed.raw(), !GetParam());
  EXPECT_FALSE(context_.on_device(Tensor()).defined());
}

/// Every operation runs on copies of its operands' addresses: none has a tensor that visit() does not list.
TEST_P(OnDevices, every_operation_has_the_same_results) {
  const Context plain = Context::cpu();
  test::for_each_sample(*plain.memory, [&](const test::AnyOperation& sample) {
    SCOPED_TRACE(operation_name(sample));
    std::vector<Tensor> written, expected;
    std::map<const std::byte*, Tensor> placed;  // q, k and v may be parts of one tensor
    const auto op = sample.moved([&](const Operand& operand) {
      const Tensor& own = operand.tensor;
      Tensor& there = placed[own.raw()];
      if (!there) {
        there = context_.empty(own.shape(), own.dtype());
        upload_bytes({own.raw(), static_cast<size_t>(own.bytes())}, there, *context_.stream);
      }
      if (operand.use.writes()) written.push_back(there), expected.push_back(own);
      return there;
    });
    op->run(context_);
    sample.run(plain);
    for (size_t i = 0; i < written.size(); ++i) test::expect_same_bits(context_.on_host(written[i]), expected[i]);
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, OnDevices, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "guarded" : "cpu"; });

TEST(GuardedKernels, refuse_what_lies_elsewhere) {
  const Context context = test::guarded_context(), other = test::guarded_context();
  const Tensor x = context.zeros({2}, DType::f32);
  EXPECT_EQ(test::message_of<DeviceError>([&] { context.run(AddTo{.x = other.zeros({2}, DType::f32), .into = x}); }),
            "AddTo: x lies in the memory of another rank");
  const Tensor host = Tensor::zeros(*context.memory, {2}, DType::f32, Category::activations, Pool::host);
  EXPECT_EQ(test::message_of<DeviceError>([&] { context.run(AddTo{.x = host, .into = x}); }),
            "AddTo: x lies in the memory of the host");
  Stream stream;
  EXPECT_THAT(test::message_of<DeviceError>([&] { context.kernels->run(Scale{.x = x, .factor = 2}, stream); }),
              HasSubstr("the stream is one of the host"));
}

}  // namespace
}  // namespace nought::kernels_test
