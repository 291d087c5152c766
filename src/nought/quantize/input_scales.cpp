#include "nought/quantize/input_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nought/quantize/gptq.h"
#include "nought/quantize/workspace_copy.h"

namespace nought {

namespace {

/// The mean magnitude of the inputs of the columns of each source.
std::vector<double> mean_magnitudes(const InputMoments& inputs, std::span<const int64_t> source) {
  const int64_t sources = source.empty() ? 0 : *std::max_element(source.begin(), source.end()) + 1;
  std::vector<double> sums(static_cast<size_t>(sources)), columns(sums.size());
  for (size_t column = 0; column < source.size(); ++column) {
    const auto at = static_cast<size_t>(source[column]);
    sums[at] += inputs.magnitudes[column], columns[at] += static_cast<double>(inputs.rows);
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = columns[i] > 0 ? sums[i] / columns[i] : 0;
  return sums;
}

/// x^power, not below 1e-4, so that the least times the greatest is 1.
std::vector<float> scales_of(const std::vector<double>& magnitudes, double power) {
  std::vector<float> scales;
  for (const double x : magnitudes) scales.push_back(static_cast<float>(std::max(std::pow(x, power), 1e-4)));
  const auto [least, greatest] = std::minmax_element(scales.begin(), scales.end());
  const float middle = std::sqrt(*least * *greatest);
  for (float& scale : scales) scale /= middle;
  return scales;
}

/// The weight rounded with its columns multiplied by scales, and divided again.
Tensor rounded(const Context& context, const Tensor& weight, std::span<const float> scales, const MatrixRule& rule) {
  const Tensor result = workspace_copy(context, weight);
  scale_columns(result, scales);
  round_to_nearest(result, rule);
  std::vector<float> inverse;
  for (const float scale : scales) inverse.push_back(1 / scale);
  scale_columns(result, inverse);
  return result;
}

/// Clamps a group to +-most and rounds it.
void round_clamped(std::span<float> group, float most, const GridRule& rule) {
  for (float& value : group) value = std::clamp(value, -most, most);
  const RoundingGrid grid = grid_of(group, rule);
  for (float& value : group) value = grid.rounded(value);
}

float magnitude_of(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Finds the share of each row's largest magnitude for one group of columns.
class GroupClipping {
 public:
  GroupClipping(const Context& context, const Tensor& weights, const Tensor& moments, Interval columns,
                const GridRule& rule)
      : context_(context),
        weights_(weights),
        columns_(columns),
        rule_(rule),
        rows_(weights.dim(0)),
        moments_(context.empty({columns.size(), columns.size()}, DType::f32, Category::workspace)),
        lost_(context.empty({rows_, columns.size()}, DType::f32, Category::workspace)),
        product_(context.empty(lost_.shape(), DType::f32, Category::workspace)),
        most_(static_cast<size_t>(rows_)),
        least_loss_(most_.size(), std::numeric_limits<double>::infinity()) {
    for (int64_t i = 0; i < columns.size(); ++i)
      std::copy_n(moments.data<float>() + (columns.begin + i) * moments.dim(1) + columns.begin, columns.size(),
                  moments_.data<float>() + i * columns.size());
  }

  void run() {
    constexpr int kSteps = 10;
    for (int step = 0; step < kSteps; ++step) try_share(1 - static_cast<float>(step) / 20);
    for (int64_t row = 0; row < rows_; ++row)
      for (float& value : group(row)) {
        const float most = most_[static_cast<size_t>(row)];
        value = std::clamp(value, -most, most);
      }
  }

 private:
  std::span<float> group(int64_t row) const {
    return {weights_.data<float>() + row * weights_.dim(1) + columns_.begin, static_cast<size_t>(columns_.size())};
  }
  std::span<float> row_of(const Tensor& tensor, int64_t row) const {
    return {tensor.data<float>() + row * columns_.size(), static_cast<size_t>(columns_.size())};
  }

  void try_share(float share) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows_; ++row) {
      const std::span<const float> exact = group(row);
      const std::span<float> lost = row_of(lost_, row);
      std::copy(exact.begin(), exact.end(), lost.begin());
      round_clamped(lost, share * magnitude_of(exact), rule_);
      for (size_t i = 0; i < lost.size(); ++i) lost[i] -= exact[i];
    }
    context_.run(MatMul{.a = lost_, .b = moments_, .c = product_});
    for (int64_t row = 0; row < rows_; ++row) {
      const std::span<const float> lost = row_of(lost_, row), product = row_of(product_, row);
      double loss = 0;
      for (size_t i = 0; i < lost.size(); ++i) loss += static_cast<double>(lost[i]) * product[i];
      const auto at = static_cast<size_t>(row);
      if (loss < least_loss_[at]) least_loss_[at] = loss, most_[at] = share * magnitude_of(group(row));
    }
  }

  const Context& context_;
  Tensor weights_;
  Interval columns_;
  GridRule rule_;
  int64_t rows_;
  Tensor moments_, lost_, product_;
  std::vector<float> most_;
  std::vector<double> least_loss_;
};

}  // namespace

void scale_columns(const Tensor& weights, std::span<const float> scales) {
  const int64_t columns = std::ssize(scales);
  for (int64_t row = 0; row < weights.dim(0); ++row)
    for (int64_t column = 0; column < columns; ++column)
      weights.data<float>()[row * columns + column] *= scales[static_cast<size_t>(column)];
}

void divide_inputs(InputMoments& inputs, std::span<const float> scales) {
  float* sum = inputs.sums.data<float>();
  for (size_t i = 0; i < scales.size(); ++i) {
    inputs.magnitudes[i] /= scales[i];
    inputs.largest[i] /= scales[i];
    for (const float scale : scales) *sum++ /= scales[i] * scale;
  }
}

std::vector<float> activation_aware_scales(const Context& context, std::span<const Tensor> weights,
                                           const InputMoments& inputs, std::span<const int64_t> source,
                                           const MatrixRule& rule) {
  constexpr int kSteps = 20;
  const std::vector<double> magnitudes = mean_magnitudes(inputs, source);
  std::vector<float> best;
  double least = std::numeric_limits<double>::infinity();
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> scales = scales_of(magnitudes, static_cast<double>(step) / kSteps);
    std::vector<float> of_columns;
    for (const int64_t at : source) of_columns.push_back(scales[static_cast<size_t>(at)]);
    double loss = 0;
    for (const Tensor& weight : weights)
      loss += output_loss(context, weight, rounded(context, weight, of_columns, rule), inputs.sums);
    if (loss < least) least = loss, best = scales;
  }
  require<Error>(!best.empty(), "the inputs of a matrix are not finite for the calibration text");
  return best;
}

std::vector<float> smoothing_scales(std::span<const Tensor> weights, const InputMoments& inputs,
                                    std::span<const int64_t> source, double strength) {
  constexpr float kLeast = 1e-5f;  // what never comes, or multiplies nothing
  const auto sources = static_cast<size_t>(*std::max_element(source.begin(), source.end()) + 1);
  std::vector<float> of_inputs(sources, kLeast), of_weights(sources, kLeast), scales;
  for (size_t column = 0; column < source.size(); ++column) {
    const auto at = static_cast<size_t>(source[column]);
    of_inputs[at] = std::max(of_inputs[at], inputs.largest[column]);
    for (const Tensor& weight : weights)
      for (int64_t row = 0; row < weight.dim(0); ++row)
        of_weights[at] = std::max(of_weights[at],
                                  std::abs(weight.data<float>()[row * weight.dim(1) + static_cast<int64_t>(column)]));
  }
  for (size_t i = 0; i < sources; ++i)
    scales.push_back(static_cast<float>(std::pow(of_inputs[i], strength) / std::pow(of_weights[i], 1 - strength)));
  return scales;
}

void clip_groups(const Context& context, const Tensor& weights, const InputMoments& inputs, const MatrixRule& rule) {
  const int64_t columns = weights.dim(1), size = rule.group_of(columns);
  for (int64_t begin = 0; begin < columns; begin += size)
    GroupClipping(context, weights, inputs.sums, {begin, std::min(begin + size, columns)}, rule.grid).run();
}

}  // namespace nought
