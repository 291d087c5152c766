#include "nought/bench/bench.h"
#include "nought/kernels/work.h"

namespace nought {

namespace {

struct Product {
  const char* name;
  int64_t m, n, k;
};

/// GPT-2 124M on 4 x 1024 tokens; the head in chunks as the loss takes it; and products with a short inner side.
constexpr Product kProducts[] = {
    {"query, key, value", 4096, 2304, 768},
    {"attention's output", 4096, 768, 768},
    {"up", 4096, 3072, 768},
    {"down", 4096, 768, 3072},
    {"head", 512, 50304, 768},
    {"square", 1024, 1024, 1024},
    {"short inner side", 1024, 1024, 64},
};

/// One token times a weight that no cache holds, dense and of 8-bit codes: what generating text waits for. The limit is
/// a triad, in bytes of the operands.
void add_next_token(const Context& context, const Limits& limits, DType dtype, int samples,
                    std::vector<Figure>& figures) {
  constexpr int64_t kOut = 16384, kIn = 4096;
  const auto filled = [&](const Shape& shape) {
    Tensor tensor = context.empty(shape, dtype);
    context.run(Fill{.x = tensor, .value = 0.01});
    return tensor;
  };
  const Tensor x = filled({1, kIn}), y = filled({1, kOut}), dense = filled({kOut, kIn});
  const Weight codes{context.empty(dense.shape(), DType::i8), context.empty(scales_shape(dense.shape()), DType::f16)};
  context.run(QuantizeBlocks{.x = dense, .codes = codes.values, .scales = codes.scales});
  for (const Weight& weight : {Weight(dense), codes}) {
    const MatMul product{.a = x, .b = weight, .c = y, .transpose_b = true};
    Figure figure{.name = fmt::format("one token, {} 1 x {} x {}",
                                      weight.is_quantized() ? "8-bit codes" : fmt::format("{} weight", name_of(dtype)),
                                      kOut, kIn),
                  .work = work_of(product).bytes,
                  .unit = "B",
                  .limit_name = "triad"};
    measure(figure, samples, 0.05, limits.memory, [&] { context.run(product); });
    figures.push_back(std::move(figure));
  }
}

}  // namespace

std::vector<Figure> bench_products(const Context& context, const Limits& limits, DType dtype, int samples) {
  std::vector<Figure> figures;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    Tensor tensor = context.empty({rows, columns}, dtype);
    context.run(Fill{.x = tensor, .value = 0.01});
    return tensor;
  };
  const auto add = [&](const Product& p, const char* what, const MatMul& product) {
    Figure figure{.name = fmt::format("{} {} {} x {} x {}", p.name, what, p.m, p.n, p.k),
                  .work = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k),
                  .unit = "FLOP",
                  .limit_name = kMatrixPeak};
    measure(
        figure, samples, 0.05, [&] { return limits.matrix(dtype); }, [&] { context.run(product); });
    figures.push_back(std::move(figure));
  };
  for (const Product& p : kProducts) {
    const Tensor x = matrix(p.m, p.k), weight = matrix(p.n, p.k), y = matrix(p.m, p.n);
    add(p, "forward", {.a = x, .b = weight, .c = y, .transpose_b = true});
    add(p, "input's gradient", {.a = y, .b = weight, .c = x});
    add(p, "weight's gradient", {.a = y, .b = x, .c = weight, .transpose_a = true});
  }
  figures.push_back(bench_head(context, dtype, samples));
  add_next_token(context, limits, dtype, samples, figures);
  return figures;
}

}  // namespace nought
