#include "nought/bench/bench.h"

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
  return figures;
}

}  // namespace nought
