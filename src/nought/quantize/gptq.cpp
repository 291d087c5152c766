#include "nought/quantize/gptq.h"

#include <numeric>

#include "nought/quantize/workspace_copy.h"

namespace nought {

QuantizedMatrix::QuantizedMatrix(int64_t rows, int64_t columns, const MatrixRule& rule)
    : rows(rows), columns(columns), group_size(rule.group_of(columns)), rule(rule.grid) {
  codes.resize(static_cast<size_t>(rows * columns));
  scales.resize(static_cast<size_t>(rows * groups()));
  zeros.resize(scales.size());
  for (int64_t column = 0; column < columns; ++column) group_of.push_back(static_cast<int32_t>(column / group_size));
}

namespace {

/// Columns by falling moments, equal ones in their order.
std::vector<int64_t> by_moments(const Tensor& moments, std::vector<int64_t> order) {
  const auto moment = [&](int64_t column) { return moments.data<float>()[column * (moments.dim(0) + 1)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return moment(a) > moment(b); });
  return order;
}

std::vector<int64_t> order_of(const Tensor& moments, const MatrixRule& rule) {
  std::vector<int64_t> order(static_cast<size_t>(moments.dim(0)));
  std::iota(order.begin(), order.end(), 0);
  return rule.act_order ? by_moments(moments, std::move(order)) : order;
}

/// GPTQ over columns in an order of their own, a block of columns at a time.
class OrderedRounding {
 public:
  OrderedRounding(const Context& context, const Tensor& weights, const InverseFactor& factor, const MatrixRule& rule)
      : context_(context),
        weights_(weights),
        rule_(rule),
        rows_(weights.dim(0)),
        columns_(weights.dim(1)),
        factor_(factor),
        result_(rule.square ? round_to_nearest(workspace_copy(context, weights), rule)
                            : QuantizedMatrix(rows_, columns_, rule)),
        grids_(static_cast<size_t>(rows_)) {
    for (int64_t block = 0; block < factor_.blocks(); ++block) left_.push_back(columns_of(block));
  }

  QuantizedMatrix run() {
    if (rule_.act_order)
      for (int64_t i = 0; i < columns_; ++i)
        result_.group_of[static_cast<size_t>(column_at(i))] = static_cast<int32_t>(i / result_.group_size);
    const Tensor lost = context_.empty({rows_, kBlock}, DType::f32, Category::workspace);
    for (int64_t block = 0; block < factor_.blocks(); ++block) {
      const Tensor own = factor_.block(block, block);
#pragma omp parallel for schedule(static)
      for (int64_t row = 0; row < rows_; ++row)
        round_row(row, block, own.data<float>(), lost.data<float>() + row * kBlock);
      for (int64_t other = block + 1; other < factor_.blocks(); ++other)
        context_.run(MatMul{
            .a = lost, .b = factor_.block(block, other), .c = left_[static_cast<size_t>(other)], .accumulate = true});
    }
    return std::move(result_);
  }

 private:
  static constexpr int64_t kBlock = InverseFactor::kBlock;

  int64_t column_at(int64_t i) const { return factor_.order()[static_cast<size_t>(i)]; }

  /// What a block of columns is before any is rounded; behind the last column are zeros.
  Tensor columns_of(int64_t block) const {
    const Tensor left = context_.zeros({rows_, kBlock}, DType::f32, Category::workspace);
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t i = block * kBlock; i < std::min((block + 1) * kBlock, columns_); ++i)
        left.data<float>()[row * kBlock + i - block * kBlock] = weights_.data<float>()[row * columns_ + column_at(i)];
    return left;
  }

  /// Rounds a row's columns of a block; each is a problem of its own. lost: what each loses, negative, by how much of
  /// it the factor gives on.
  void round_row(int64_t row, int64_t block, const float* factor, float* lost) {
    const int64_t begin = block * kBlock, count = std::min(kBlock, columns_ - begin);
    float* const left = left_[static_cast<size_t>(block)].data<float>() + row * kBlock;
    std::fill(lost, lost + kBlock, 0.0f);
    RoundingGrid& grid = grids_[static_cast<size_t>(row)];
    for (int64_t i = 0; i < count; ++i) {
      if ((begin + i) % result_.group_size == 0) grid = next_grid(row, block, i, lost);
      const int64_t column = column_at(begin + i);
      const int code = grid.code_of(left[i]);
      const float value = grid.value_of(code), loss = (value - left[i]) / factor[i * kBlock + i];
      result_.codes[static_cast<size_t>(row * columns_ + column)] = static_cast<uint8_t>(code);
      weights_.data<float>()[row * columns_ + column] = value;
      lost[i] = loss;
      for (int64_t j = i + 1; j < count; ++j) left[j] += loss * factor[i * kBlock + j];
    }
  }

  /// The grid of the group that begins at column i of a block, by what its columns are now. Those of later blocks have
  /// not been told yet what the ones before it have lost. Where rows share a scale, each goes by what the weights were.
  RoundingGrid next_grid(int64_t row, int64_t block, int64_t i, const float* lost) {
    const int64_t begin = block * kBlock + i, end = std::min(begin + result_.group_size, columns_);
    if (rule_.square) return result_.grid(row, begin / result_.group_size);
    std::vector<float> group;
    group.reserve(static_cast<size_t>(end - begin));
    for (int64_t j = begin; j < end; ++j) {
      float value = left_[static_cast<size_t>(j / kBlock)].data<float>()[row * kBlock + j % kBlock];
      for (int64_t k = 0; k < i && j / kBlock > block; ++k) value += lost[k] * factor_.at(block * kBlock + k, j);
      group.push_back(value);
    }
    const RoundingGrid grid = grid_of(group, rule_.grid);
    result_.set_grid(row, begin / result_.group_size, grid);
    return grid;
  }

  const Context& context_;
  Tensor weights_;
  const MatrixRule& rule_;
  int64_t rows_, columns_;
  const InverseFactor& factor_;
  QuantizedMatrix result_;
  std::vector<RoundingGrid> grids_;  // each row's, of the group that is rounded
  std::vector<Tensor> left_;         // for each block of columns what is left to be rounded, [rows, kBlock]
};

/// Rounds what has one scale: a group of columns of some rows.
void round_group(const Tensor& weights, Interval rows, int64_t group, QuantizedMatrix& result) {
  const int64_t begin = group * result.group_size, end = std::min(begin + result.group_size, result.columns);
  const auto of_row = [&](int64_t row) {
    return std::span<float>(weights.data<float>() + row * result.columns + begin, static_cast<size_t>(end - begin));
  };
  std::vector<float> all;
  for (int64_t row = rows.begin; row < rows.end; ++row) all.insert(all.end(), of_row(row).begin(), of_row(row).end());
  const RoundingGrid grid = grid_of(all, result.rule);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    result.set_grid(row, group, grid);
    uint8_t* code = result.codes.data() + row * result.columns + begin;
    for (float& value : of_row(row)) {
      *code = static_cast<uint8_t>(grid.code_of(value));
      value = grid.value_of(*code++);
    }
  }
}

}  // namespace

QuantizedMatrix round_to_nearest(const Tensor& weights, const MatrixRule& rule) {
  const int64_t rows = weights.dim(0), at_once = rule.rows_of_scale();
  QuantizedMatrix result(rows, weights.dim(1), rule);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row += at_once)
    for (int64_t group = 0; group < result.groups(); ++group)
      round_group(weights, {row, std::min(row + at_once, rows)}, group, result);
  return result;
}

InverseFactor gptq_factor(const Context& context, const Tensor& moments, const MatrixRule& rule) {
  return InverseFactor(context, moments, order_of(moments, rule), rule.damping);
}

QuantizedMatrix quantize_gptq(const Context& context, const Tensor& weights, const InverseFactor& factor,
                              const MatrixRule& rule) {
  return OrderedRounding(context, weights, factor, rule).run();
}

namespace {

/// tr(X M X^T).
double weighed_square(const Context& context, const Tensor& x, const Tensor& moments) {
  Tensor product = x;
  if (moments) {
    product = context.empty(x.shape(), DType::f32, Category::workspace);
    context.run(MatMul{.a = x, .b = moments, .c = product});
  }
  const std::span<const float> a = x.span<float>(), b = product.span<float>();
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

double output_loss(const Context& context, const Tensor& exact, const Tensor& rounded, const Tensor& moments) {
  const Tensor lost = workspace_copy(context, exact);
  context.run(Scale{.x = lost, .factor = -1});
  context.run(Add{.a = rounded, .b = lost, .out = lost});
  return weighed_square(context, lost, moments);
}

double relative_error(const Context& context, const Tensor& exact, const Tensor& rounded, const Tensor& moments) {
  const double outputs = weighed_square(context, exact, moments);
  return outputs > 0 ? output_loss(context, exact, rounded, moments) / outputs : 0;
}

}  // namespace nought
