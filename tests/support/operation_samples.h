// A sample of every operation behind one interface, for tests that go over all operations: what depends on the type of
// an operation is compiled once.
#pragma once

#include <functional>
#include <memory>

#include "support/kernel_test.h"

#include "nought/kernels/work.h"

namespace nought::test {

class AnyOperation {
 public:
  virtual ~AnyOperation() = default;
  virtual std::unique_ptr<AnyOperation> clone() const = 0;
  virtual std::string_view name() const = 0;
  virtual void for_each_operand(const std::function<void(const Operand&)>& f) const = 0;
  virtual void run(Kernels& kernels, Stream& stream) const = 0;
  virtual void run(Backend& backend) const = 0;
  virtual void check() const = 0;
  virtual Work work() const = 0;
  /// The operation, but it adds to what its results hold, if it can.
  virtual std::unique_ptr<AnyOperation> adding() const = 0;

  void run(const Context& context) const { run(*context.kernels, *context.stream); }
  /// The operation on other tensors: f(own) for each operand that is defined.
  std::unique_ptr<AnyOperation> moved(const std::function<Tensor(const Operand&)>& f) const;
};

inline std::string_view operation_name(const AnyOperation& op) { return op.name(); }
template <class F>
void for_each_operand(const AnyOperation& op, F&& f) {
  op.for_each_operand(f);
}
inline void run(const AnyOperation& op) { op.run(backend()); }

/// Calls f(op) with a sample of each operation in turn, and with samples of those that take a weight of codes.
void for_each_sample(Memory& memory, const std::function<void(const AnyOperation&)>& f);

}  // namespace nought::test
