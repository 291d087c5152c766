#include "nought/bench/bench.h"

namespace nought {

namespace {

constexpr int64_t kRows = 16384, kWidth = 1024, kElements = kRows * kWidth;  // 32 MiB of bf16: past any cache here

class ElementwiseBench {
 public:
  ElementwiseBench(const Context& context, const Limits& limits, DType dtype, int samples)
      : context_(context), limits_(limits), dtype_(dtype), samples_(samples) {}

  Tensor full(int64_t width = kWidth) const { return filled({kRows, width}, dtype_); }
  Tensor filled(const Shape& shape, DType dtype) const {
    Tensor tensor = context_.empty(shape, dtype);
    context_.run(Fill{.x = tensor, .value = 0.25});
    return tensor;
  }

  /// The bytes of all tensors, each once.
  template <class Op>
  void add(std::string name, const Op& op, std::initializer_list<Tensor> touched) {
    int64_t bytes = 0;
    for (const Tensor& tensor : touched) bytes += tensor.bytes();
    Figure figure{.name = std::move(name), .work = static_cast<double>(bytes), .unit = "B", .limit_name = "triad"};
    measure(figure, samples_, 0.05, limits_.memory, [&] { context_.run(op); });
    figures.push_back(std::move(figure));
  }

  std::vector<Figure> figures;

 private:
  Context context_;
  const Limits& limits_;
  DType dtype_;
  int samples_;
};

void add_updates(ElementwiseBench& bench, DType dtype) {
  const auto state = [&] { return bench.filled({kElements}, DType::f32); };
  const Tensor master = state(), m = state(), v = state(), gradient = bench.filled({kElements}, dtype);
  Adam adam{.parameter = master, .exp_avg = m, .exp_avg_sq = v, .gradient = gradient, .weight_decay = 0.1};
  if (dtype != DType::f32) {
    adam.parameter_copy = bench.filled({kElements}, dtype);
    bench.add("AdamW", adam, {master, master, m, m, v, v, gradient, adam.parameter_copy});
  } else {
    bench.add("AdamW", adam, {master, master, m, m, v, v, gradient});
  }
}

void add_norms(ElementwiseBench& bench, DType dtype) {
  const Tensor x = bench.full(), y = bench.full(), dy = bench.full(), dx = bench.full();
  const Tensor weight = bench.filled({kWidth}, dtype), d_weight = bench.filled({kWidth}, dtype),
               bias = bench.filled({kWidth}, dtype), d_bias = bench.filled({kWidth}, dtype);
  const Tensor rstd = bench.filled({kRows}, DType::f32), mean = bench.filled({kRows}, DType::f32);
  bench.add("RMSNorm", RmsNorm{.x = x, .weight = weight, .y = y, .rstd = rstd}, {x, y});
  bench.add("RMSNorm backward",
            RmsNormBackward{.x = x, .weight = weight, .rstd = rstd, .dy = dy, .dx = dx, .d_weight = d_weight},
            {x, dy, dx});
  bench.add("LayerNorm", LayerNorm{.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd}, {x, y});
  bench.add("LayerNorm backward",
            LayerNormBackward{.x = x,
                              .weight = weight,
                              .mean = mean,
                              .rstd = rstd,
                              .dy = dy,
                              .dx = dx,
                              .d_weight = d_weight,
                              .d_bias = d_bias},
            {x, dy, dx});
}

void add_activations(ElementwiseBench& bench) {
  const Tensor x = bench.full(), y = bench.full(), dx = bench.full(), wide = bench.full(2 * kWidth),
               d_wide = bench.full(2 * kWidth);
  bench.add("GELU", Activate{.x = x, .y = y}, {x, y});
  bench.add("GELU backward", ActivateBackward{.x = x, .dy = y, .dx = dx}, {x, y, dx});
  bench.add("SwiGLU", GatedActivate{.gate_up = wide, .y = y}, {wide, y});
  bench.add("SwiGLU backward", GatedActivateBackward{.gate_up = wide, .dy = y, .d_gate_up = d_wide}, {wide, y, d_wide});
}

/// The logits of 256 tokens over the vocabulary of GPT-2, which become their gradients: each is read and written.
void add_loss(ElementwiseBench& bench, const Context& context, DType dtype) {
  constexpr int64_t kTokens = 256, kVocabulary = 50304;
  const Tensor logits = bench.filled({kTokens, kVocabulary}, dtype), loss = bench.filled({kTokens}, DType::f32);
  const Tensor targets = context.zeros({kTokens}, DType::i32);
  bench.add("cross-entropy", CrossEntropy{.logits = logits, .targets = targets, .loss = loss, .gradient = true},
            {logits, logits});
}

}  // namespace

std::vector<Figure> bench_elementwise(const Context& context, const Limits& limits, DType dtype, int samples) {
  ElementwiseBench bench(context, limits, dtype, samples);
  add_updates(bench, dtype);
  add_norms(bench, dtype);
  add_activations(bench);
  const Tensor a = bench.full(), b = bench.full(), out = bench.full();
  bench.add("residual", Add{.a = a, .b = b, .out = out}, {a, b, out});
  const Tensor wide = bench.filled({kRows, kWidth}, DType::f32);
  bench.add("cast from f32", Cast{.x = wide, .y = out}, {wide, out});
  const Tensor sum = bench.filled({1}, DType::f64);
  bench.add("sum of squares", SumSquares{.x = a, .out = sum}, {a});
  const Tensor rows_sum = bench.filled({kWidth}, dtype);
  bench.add("sum of rows", SumRows{.x = a, .out = rows_sum}, {a});
  add_loss(bench, context, dtype);
  return std::move(bench.figures);
}

}  // namespace nought
