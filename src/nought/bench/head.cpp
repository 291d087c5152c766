#include "nought/autograd/functions.h"
#include "nought/bench/bench.h"

namespace nought {

namespace {

/// Holds the one parameter of a head and its gradient, which every pass writes anew.
class HeadStore final : public UnitStore {
 public:
  HeadStore(const Context& context, Unit& unit, DType dtype)
      : values_(context.empty({unit.segments()[0].size}, dtype, Category::parameters)),
        gradients_(context.empty({unit.segments()[0].size}, dtype, Category::gradients)) {
    unit.attach(this, 0);
    context.run(Fill{.x = values_, .value = 0.01});
    context.run(Fill{.x = gradients_, .value = 0});
  }

  void before_forward(Unit& /*unit*/) override { written_ = false; }
  void after_forward(Unit& /*unit*/) override {}
  void before_backward(Unit& /*unit*/) override {}
  void after_backward(Unit& /*unit*/) override {}
  Tensor values(const Unit& /*unit*/, size_t /*segment*/) override { return values_; }
  DType dtype() const override { return values_.dtype(); }
  GradSink gradient(const Unit& /*unit*/, size_t /*first*/, size_t /*last*/) override {
    return {gradients_, std::exchange(written_, true)};
  }

 private:
  Tensor values_, gradients_;
  bool written_ = false;
};

}  // namespace

Figure bench_head(const Context& context, DType dtype, int samples, const HeadShape& shape) {
  const int64_t tokens = shape.tokens, vocabulary = shape.vocabulary, hidden = shape.hidden;
  Unit unit("head");
  const ParameterView weight = unit.add("weight", {vocabulary, hidden}, Init::zeros(), ParameterRole::head);
  HeadStore store(context, unit, dtype);
  const auto filled = [&](const Shape& of) {
    Tensor tensor = context.empty(of, dtype);
    context.run(Fill{.x = tensor, .value = 0.01});
    return tensor;
  };
  const Tensor x = filled({tokens, hidden});
  const Tensor targets = context.zeros({tokens}, DType::i32);

  Figure figure{.name = fmt::format("head and loss {} x {} x {}", tokens, vocabulary, hidden),
                .work = 6.0 * static_cast<double>(tokens) * static_cast<double>(vocabulary * hidden),
                .unit = "FLOP",
                .limit_name = "bare products"};
  const auto bare = [&] {
    const Tensor table = weight.value();
    const Tensor d_table = filled({vocabulary, hidden}), dx = filled({tokens, hidden});
    const Tensor logits = filled({tokens, vocabulary});
    const double seconds = seconds_of([&] {
      context.run(MatMul{.a = x, .b = table, .c = logits, .transpose_b = true});
      context.run(MatMul{.a = logits, .b = x, .c = d_table, .transpose_a = true});
      context.run(MatMul{.a = logits, .b = table, .c = dx});
    });
    return figure.work / seconds;
  };
  const auto fused = [&] {
    Tape tape(context);
    const Var in = tape.input(x);
    const Var loss = tape.run_unit(unit, in, [&](Tape& inner, const Var& rows) {
      return cross_entropy_head(inner, rows, weight, targets, 1.0 / static_cast<double>(tokens));
    });
    tape.backward(loss);
  };
  MemoryLedger& ledger = context.memory->ledger();
  ledger.reset_peaks();
  fused();
  figure.facts = {{"workspace", static_cast<double>(ledger.peak(Category::workspace)), "B"}};
  measure(figure, samples, /*least_seconds=*/0, bare, fused);
  return figure;
}

}  // namespace nought
