// OperationTimes: what each operation of a step takes on this machine.
//
// Design goals: an operation is measured with its own shapes, and once for all times that it runs, as small ones are
// far from the rates of large ones. Other bytes have passed through a core's caches before, as in a step: those of an
// update, which comes once in it, are as far as memory. Operations that take long, or more memory than a measurement
// should, are what their work takes at the machine's rates.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/kernels/work.h"
#include "nought/measure/machine_rates.h"

namespace nought {

/// Whether an operation updates parameters.
template <class Op>
constexpr bool is_update() {
  if constexpr (requires(Op & op) { op.parameter; }) return true;
  return requires(Op & op) { op.momentum_buffer; };
}

class OperationTimes {
 public:
  /// Nothing is measured yet: all that is known are these rates.
  explicit OperationTimes(const MachineRates& rates) : rates_(rates) {}

  /// Seconds of the operation; its first run of these shapes is remembered for measure().
  template <class Op>
  double seconds(const Op& op) {
    const Work work = work_of(op);
    const auto [found, fresh] = all_.try_emplace(key_of(op, work));
    Timed& timed = found->second;
    if (fresh)
      timed.estimate = by_rates(work), timed.bytes = work.bytes, timed.updates = is_update<Op>(),
      timed.run = runner(op);
    ++timed.runs;
    return timed.typical > 0 ? timed.typical : timed.estimate;
  }
  /// Measures on all ranks at once, for about so many seconds. Every rank has seen the same operations. Collective.
  void measure(Communicator& ranks, const Context& context, double seconds);

  /// How many of them would not run with values that mean nothing.
  int64_t refused() const { return refused_; }

  const MachineRates& rates() const { return rates_; }
  /// These rates, to add what is measured later.
  MachineRates& rates() { return rates_; }

 private:
  struct Timed {
    double estimate = 0, bytes = 0;
    int64_t runs = 0;
    bool updates = false;
    /// Returns the seconds that it took, behind `others`.
    std::function<double(const Context&, bool one_thread, const Tensor& others)> run = {};
    std::vector<double> samples = {};
    double typical = 0;
  };

  double by_rates(const Work& work) const {
    return work.flops > 0 ? work.flops / rates_.flops : work.bytes / rates_.memory;
  }
  /// Operations with one key take the same time.
  template <class Op>
  static std::string key_of(const Op& op, const Work& work) {
    std::string key = fmt::format("{} {:.0f} {:.0f}", operation_name(op), work.flops, work.bytes);
    if constexpr (requires { op.label(); }) key += ' ' + op.label();
    for_each_operand(op, [&](const Operand& operand) {
      if (operand.tensor.defined()) key += fmt::format(" {}", operand.tensor.str());
      if (operand.rows) key += fmt::format(" x {}", operand.rows->count);
    });
    return key;
  }
  /// The operation on tensors of its own, whose values are nobody's business. `others` is written in between.
  template <class Op>
  static std::function<double(const Context&, bool, const Tensor&)> runner(const Op& op) {
    return [op](const Context& context, bool one_thread, const Tensor& others) {
      Op there = op;
      std::map<std::pair<const void*, std::string>, Tensor> made;
      for_each_operand(there, [&](const Operand& operand) {
        if (!operand.tensor.defined()) return;
        Tensor& tensor = made[{operand.tensor.raw(), operand.tensor.str()}];
        if (!tensor.defined()) tensor = filled(context, operand.tensor.shape(), operand.tensor.dtype());
        const_cast<Tensor&>(operand.tensor) = tensor;  // `there` is not const
      });
      context.run(Fill{.x = others, .value = 0});
      return seconds_of_rank([&] { context.run(there); }, one_thread);
    };
  }
  static Tensor filled(const Context& context, const Shape& shape, DType dtype);
  static double seconds_of_rank(const std::function<void()>& f, bool one_thread);
  /// Runs each once, an update behind `of_step` and others behind `of_caches`. Returns what a step takes by that.
  double run_all(const Context& context, const Tensor& of_step, const Tensor& of_caches);
  void take_typical(Communicator& ranks, const Context& context);

  MachineRates rates_;
  std::map<std::string, Timed> all_;
  int64_t refused_ = 0;
};

}  // namespace nought
