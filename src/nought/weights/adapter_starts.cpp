#include "nought/weights/adapter_starts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "nought/io/convert.h"
#include "nought/tensor/random.h"
#include "nought/weights/adapted_matrix.h"

namespace nought {

namespace {

/// Matrices up to this size are decomposed exactly.
constexpr int64_t kExact = 256;

/// Columns of a matrix, f64.
using Columns = std::vector<std::vector<double>>;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Makes columns orthonormal, in their order (Gram-Schmidt, twice: the rest of the first pass is rounding).
void orthonormalize(Columns& columns) {
  for (size_t i = 0; i < columns.size(); ++i) {
    for (int pass = 0; pass < 2; ++pass)
      for (size_t j = 0; j < i; ++j) {
        const double along = dot(columns[i], columns[j]);
        for (size_t k = 0; k < columns[i].size(); ++k) columns[i][k] -= along * columns[j][k];
      }
    const double norm = std::sqrt(dot(columns[i], columns[i]));
    for (double& each : columns[i]) each = norm > 0 ? each / norm : 0;
  }
}

Columns columns_of(const Tensor& matrix, int64_t count) {
  const int64_t rows = matrix.dim(0), width = matrix.dim(1);
  Columns columns(static_cast<size_t>(count), std::vector<double>(static_cast<size_t>(rows)));
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = 0; i < rows; ++i)
      columns[static_cast<size_t>(j)][static_cast<size_t>(i)] = double{matrix.data<float>()[i * width + j]};
  return columns;
}

Tensor matrix_of(const Context& context, const Columns& columns) {
  const auto rows = static_cast<int64_t>(columns.front().size()), width = std::ssize(columns);
  Tensor matrix = context.empty({rows, width}, DType::f32, Category::workspace);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; ++j)
      matrix.data<float>()[i * width + j] = static_cast<float>(columns[static_cast<size_t>(j)][static_cast<size_t>(i)]);
  return matrix;
}

Tensor product(const Context& context, const Tensor& a, const Tensor& b, bool transpose_a = false) {
  Tensor c = context.empty({a.dim(transpose_a ? 1 : 0), b.dim(1)}, DType::f32, Category::workspace);
  context.run(MatMul{.a = a, .b = b, .c = c, .transpose_a = transpose_a});
  return c;
}

/// Diagonalizes a symmetric matrix [n, n] by Jacobi's rotations: its diagonal becomes the eigenvalues, and the columns
/// of the result are the eigenvectors.
Columns diagonalize(Columns& matrix) {
  const size_t n = matrix.size();
  Columns vectors(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) vectors[i][i] = 1;
  constexpr int kMostSweeps = 60;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double beside = 0, all = 0;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        all += matrix[i][j] * matrix[i][j], beside += i == j ? 0 : matrix[i][j] * matrix[i][j];
    if (beside <= 1e-30 * all) break;
    for (size_t p = 0; p + 1 < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (matrix[p][q] == 0) continue;
        const double theta = (matrix[q][q] - matrix[p][p]) / (2 * matrix[p][q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (size_t k = 0; k < n; ++k) {  // columns p and q
          const double x = matrix[p][k], y = matrix[q][k];
          matrix[p][k] = c * x - s * y, matrix[q][k] = s * x + c * y;
          const double v = vectors[p][k], w = vectors[q][k];
          vectors[p][k] = c * v - s * w, vectors[q][k] = s * v + c * w;
        }
        for (size_t k = 0; k < n; ++k) {  // rows p and q
          const double x = matrix[k][p], y = matrix[k][q];
          matrix[k][p] = c * x - s * y, matrix[k][q] = s * x + c * y;
        }
      }
  }
  return vectors;
}

/// Orthonormal columns, [out, count], that span what the weight maps its largest singular vectors to.
Tensor leading_columns(const Context& context, const Tensor& weight, int64_t count, int64_t iterations) {
  Columns random(static_cast<size_t>(count), std::vector<double>(static_cast<size_t>(weight.dim(1))));
  uint64_t index = 0;
  for (std::vector<double>& column : random)
    for (double& each : column) each = normal_at(stable_hash("singular vectors"), index++);
  constexpr int64_t kMost = 100;
  double before = 0;
  Tensor right = matrix_of(context, random), left;
  for (int64_t i = 0; i < (iterations > 0 ? iterations + 1 : kMost); ++i) {
    Columns columns = columns_of(product(context, weight, right), count);
    orthonormalize(columns);
    left = matrix_of(context, columns);
    Columns back = columns_of(product(context, weight, left, true), count);
    double sum = 0;
    for (const std::vector<double>& column : back) sum += dot(column, column);
    if (iterations == 0 && std::abs(sum - before) <= 1e-9 * sum) break;
    before = sum;
    orthonormalize(back);
    right = matrix_of(context, back);
  }
  return left;
}

}  // namespace

StartFactors pissa_start(const Context& context, const Tensor& weight, int64_t rank, double scale, int64_t iterations) {
  const int64_t most = std::min(weight.dim(0), weight.dim(1));
  const int64_t count = iterations > 0   ? rank
                        : most <= kExact ? most
                                         : std::min(most, rank + std::max<int64_t>(rank, 8));
  const Tensor basis = leading_columns(context, weight, count, iterations > 0 ? iterations : most == count ? 1 : 0);
  const Tensor part = product(context, basis, weight, true);  // [count, in]
  const auto rows = static_cast<size_t>(count);
  Columns lines(rows, std::vector<double>(static_cast<size_t>(weight.dim(1)))), gram(rows, std::vector<double>(rows));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < weight.dim(1); ++j)
      lines[static_cast<size_t>(i)][static_cast<size_t>(j)] = double{part.data<float>()[i * weight.dim(1) + j]};
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < rows; ++j) gram[i][j] = dot(lines[i], lines[j]);
  const Columns vectors = diagonalize(gram);
  std::vector<size_t> order(rows);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return gram[a][a] > gram[b][b]; });
  // part = U S V^T with U of these vectors: A = sqrt(S / scale) V^T, B = basis U sqrt(S / scale).
  Columns of_a, of_b;
  for (int64_t k = 0; k < rank; ++k) {
    const size_t which = order[static_cast<size_t>(k)];
    const double value = std::sqrt(std::max(gram[which][which], 0.0)), root = std::sqrt(value / scale);
    std::vector<double> right(lines[0].size()), left(vectors[which]);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < right.size(); ++j) right[j] += vectors[which][i] * lines[i][j];
    for (double& each : right) each = value > 0 ? each * root / value : 0;
    for (double& each : left) each *= root;
    of_a.push_back(std::move(right)), of_b.push_back(std::move(left));
  }
  return {transposed(matrix_of(context, of_a), *context.memory), product(context, basis, matrix_of(context, of_b))};
}

StartFactors olora_start(const Context& context, const Tensor& weight, int64_t rank) {
  Columns columns = columns_of(weight, rank);
  orthonormalize(columns);
  const Tensor q = matrix_of(context, columns);
  return {product(context, q, weight, true), q};
}

StartFactors orthogonal_start(const Context& context, int64_t in, int64_t out, int64_t rank, uint64_t key) {
  uint64_t index = 0;
  const auto random = [&](int64_t rows, int64_t width) {
    Tensor x = context.empty({rows, width}, DType::f32, Category::workspace);
    for (float& each : x.span<float>()) each = static_cast<float>(normal_at(key, index++));
    return x;
  };
  Columns columns = columns_of(random(rank, rank), rank);
  orthonormalize(columns);
  const auto every_other = [&](size_t first) {
    Columns some;
    for (size_t i = first; i < columns.size(); i += 2) some.push_back(columns[i]);
    return matrix_of(context, some);  // [rank, rank / 2]
  };
  Tensor a = product(context, every_other(0), random(rank / 2, in));
  Tensor b = transposed(product(context, every_other(1), random(rank / 2, out)), *context.memory);
  for (const Tensor& each : {a, b}) context.run(Scale{.x = each, .factor = 0.1});
  return {std::move(a), std::move(b)};
}

StartedBase::StartedBase(const ModelConfig& config, ModelAdapter adapter, const StateSource& base)
    : layout_(config.weight_layout), adapter_(std::move(adapter)), base_(base), context_(Context::cpu()) {}

bool StartedBase::is_needed(const ModelAdapter& adapter) {
  return std::ranges::any_of(adapter.layers, [](const auto& each) { return takes_of_the_base(each.second.start); });
}

const LowRank* StartedBase::taking(const Parameter& weight) const {
  const LowRank* of = adapter_.find(layer_of(weight.name, kWeightOfLayer));
  return of != nullptr && takes_of_the_base(of->start) ? of : nullptr;
}

Tensor StartedBase::whole(const Parameter& weight) const {
  Tensor values = context_.empty(weight.placement.global, DType::f32, Category::workspace);
  base_.fill(StateKind::master, weight, Interval{0, values.numel()}, values);
  return values;
}

const StartFactors& StartedBase::factors_of(const Parameter& weight) const {
  const auto found = factors_.find(weight.name);
  if (found != factors_.end()) return found->second;
  const LowRank& of = *taking(weight);
  const Tensor stored = whole(weight);
  const Tensor matrix = layout_ == WeightLayout::out_in ? stored : transposed(stored, *context_.memory);
  StartFactors factors = of.start == AdapterStart::olora
                             ? olora_start(context_, matrix, of.rank)
                             : pissa_start(context_, matrix, of.rank, of.scale, of.start_iterations);
  return factors_.emplace(weight.name, std::move(factors)).first->second;
}

void StartedBase::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                       const Tensor& destination) const {
  const LowRank* of = kind == StateKind::master ? taking(parameter) : nullptr;
  if (of == nullptr) return base_.fill(kind, parameter, elements, destination);
  if (last_ != parameter.name) {
    const StartFactors& start = factors_of(parameter);
    left_ = whole(parameter);
    add_product(context_, weight_factors(start.a, start.b, layout_, -of->scale, *context_.memory), 0, left_);
    last_ = parameter.name;
  }
  for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
    convert_elements(DType::f32, left_.flat(interval.begin, interval.end).raw(), values.dtype(), values.raw(),
                     interval.size());
  });
}

}  // namespace nought
