// Every operation refuses a tensor that is not there, or not where kernels compute, by what its visit() lists. What
// shapes demand is tested with each operation.
#include "nought/kernels/check.h"

#include <cstdlib>

#include "support/message_of.h"
#include "support/operation_samples.h"
#include <gmock/gmock.h>

namespace nought::check_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Check : public KernelTest {
 protected:
  /// Another tensor like `x`, in a pool.
  Tensor moved(const Tensor& x, Pool pool) {
    const auto block = std::shared_ptr<void>(std::malloc(static_cast<size_t>(x.bytes()) + 1), std::free);
    return {memory_->adopt(block, x.bytes(), Category::workspace, pool), 0, x.shape(), x.dtype()};
  }
};

/// Calls f(name, use, tensor) for each tensor of a copy of the operation; f may change the tensor.
template <class F>
void for_each_changeable(const AnyOperation& op, const F& f) {
  std::vector<std::pair<std::string, Use>> operands;
  for_each_operand(op, [&](const Operand& operand) { operands.emplace_back(operand.name, operand.use); });
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::unique_ptr<AnyOperation> copied = op.clone();
    size_t at = 0;
    Tensor* tensor = nullptr;
    for_each_operand(*copied, [&](const Operand& operand) {
      if (at++ == i) tensor = const_cast<Tensor*>(&operand.tensor);  // `copied` is not const
    });
    f(operands[i].first, operands[i].second, *copied, *tensor);
  }
}

TEST_F(Check, a_tensor_that_is_missing_is_named_unless_it_is_optional) {
  int missing = 0, optional = 0;
  for_each_sample(*memory_, [&](const AnyOperation& sample) {
    for_each_changeable(sample, [&](const std::string& name, const Use& use, const AnyOperation& op, Tensor& tensor) {
      tensor = {};
      if (use.is_optional) {
        ++optional;
        const bool is_needed = name == "sinks" && operation_name(op) == "AttentionBackward";  // by their gradient
        if (!is_needed) {
          EXPECT_NO_THROW(op.check()) << name;
        }
        return;
      }
      ++missing;
      EXPECT_EQ(message_of<ShapeError>([&] { op.check(); }),
                fmt::format("{}: {} is undefined", operation_name(op), name));
    });
  });
  EXPECT_GT(missing, 100);
  EXPECT_GT(optional, 10);
}

TEST_F(Check, tensors_in_different_memories_are_refused_before_they_are_touched) {
  for_each_sample(*memory_, [&](const AnyOperation& sample) {
    size_t operands = 0;
    for_each_operand(sample, [&](const Operand&) { ++operands; });
    for_each_changeable(sample, [&](const std::string& name, const Use&, const AnyOperation& op, Tensor& tensor) {
      const Tensor original = tensor;
      tensor = moved(original, Pool::file);
      EXPECT_THAT(message_of<DeviceError>([&] { op.check(); }), StartsWith(std::string(operation_name(op)))) << name;
      if (operands == 1) return;
      tensor = moved(original, Pool::host);
      EXPECT_THAT(message_of<DeviceError>([&] { op.check(); }),
                  AllOf(StartsWith(std::string(operation_name(op))), HasSubstr("host memory")));
    });
  });
}

TEST_F(Check, an_operation_on_the_host_is_fine_if_all_of_it_is_there) {
  const auto host = [&] { return moved(empty({4}, DType::f32), Pool::host); };
  EXPECT_NO_THROW(check(Add{.a = host(), .b = host(), .out = host()}));
}

}  // namespace
}  // namespace nought::check_test
