#include "nought/compress/quantizers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr size_t kFewValues = size_t{1} << 15;  // quantized before other threads could begin

/// The sums of torch's reductions in fp32, on CPUs with vectors of 16, whose order decides the last bit of a ternary
/// level (ATen's SumKernel): four partial sums of vectors, in cascades so that many terms lose nothing.
class TorchSum {
 public:
  explicit TorchSum(std::span<const float> terms) : terms_(terms), vectors_(std::ssize(terms) / kLanes) {}

  float value() const {
    const Vector sums = vector_sum();
    float sum = 0;
    for (int64_t i = vectors_ * kLanes; i < std::ssize(terms_); ++i) sum += terms_[static_cast<size_t>(i)];
    for (const float lane : sums) sum += lane;
    return sum;
  }

 private:
  static constexpr int64_t kLanes = 16, kRows = 4;
  static constexpr size_t kLevels = 4;
  using Vector = std::array<float, kLanes>;

  static void add(Vector& sum, const Vector& terms) {
    for (size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += terms[lane];
  }
  Vector load(int64_t vector) const {
    Vector loaded;
    std::copy_n(terms_.begin() + vector * kLanes, kLanes, loaded.begin());
    return loaded;
  }

  Vector vector_sum() const {
    const int64_t rounds = vectors_ / kRows;
    const int64_t log = rounds < 2 ? 0 : std::bit_width(static_cast<uint64_t>(rounds - 1));
    const int64_t power = std::max<int64_t>(4, log / static_cast<int64_t>(kLevels)), step = int64_t{1} << power;
    std::array<std::array<Vector, kRows>, kLevels> levels{};
    const auto add_round = [&](int64_t round) {
      for (int64_t row = 0; row < kRows; ++row) add(levels[0][static_cast<size_t>(row)], load(round * kRows + row));
    };
    int64_t round = 0;
    while (round + step <= rounds) {
      for (int64_t end = round + step; round < end; ++round) add_round(round);
      for (size_t level = 1; level < kLevels; ++level) {
        for (size_t row = 0; row < kRows; ++row) {
          add(levels[level][row], levels[level - 1][row]);
          levels[level - 1][row] = {};
        }
        if ((round & ((step - 1) << (static_cast<int64_t>(level) * power))) != 0) break;
      }
    }
    for (; round < rounds; ++round) add_round(round);
    for (size_t level = 1; level < kLevels; ++level)
      for (size_t row = 0; row < kRows; ++row) add(levels[0][row], levels[level][row]);
    for (int64_t vector = rounds * kRows; vector < vectors_; ++vector) add(levels[0][0], load(vector));
    for (size_t row = 1; row < kRows; ++row) add(levels[0][0], levels[0][row]);
    return levels[0][0];
  }

  std::span<const float> terms_;
  int64_t vectors_;
};

/// torch.norm(p=1) of so few values that it is one thread's; longer ones are added in such parts, so that nothing is
/// lost.
float sum_of_magnitudes(std::span<const float> values) {
  constexpr size_t kPart = 32768;
  double whole = 0;
  for (size_t begin = 0; begin < values.size(); begin += kPart) {
    float part = 0;
    for (const float each : values.subspan(begin, std::min(kPart, values.size() - begin))) part += std::abs(each);
    whole += double{part};
  }
  return static_cast<float>(whole);
}

float mean_above(std::span<const float> values, float threshold) {
  constexpr size_t kPart = size_t{1} << 20;  // so much is copied at once
  double whole = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin < values.size(); begin += kPart) {
    const std::span<const float> part = values.subspan(begin, std::min(kPart, values.size() - begin));
    std::vector<float> kept(part.size());
    std::transform(part.begin(), part.end(), kept.begin(), [&](float value) {
      const float magnitude = std::abs(value);
      return magnitude > threshold ? (++count, magnitude) : 0.0f;
    });
    whole += double{TorchSum(kept).value()};
  }
  return count == 0 ? 0.0f : static_cast<float>(whole) / static_cast<float>(count);
}

/// y = the nearest values to x, which may be the same memory.
void round_to_grid(QuantizedGrid grid, std::span<const float> x, std::span<float> y, std::span<const float> dither) {
  if (grid.scale == 0) {
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
    return;
  }
  const auto nearest = [grid](float code) {
    constexpr float kWhole = 12582912.0f;  // added and taken away, whole numbers are left; codes have 16 bits at most
    code = code < grid.first ? grid.first : code;
    code = code > grid.last ? grid.last : code;
    return (code + kWhole - kWhole) * grid.scale + grid.zero;
  };
  if (dither.empty()) {
#pragma omp simd
    for (size_t i = 0; i < x.size(); ++i) y[i] = nearest((x[i] - grid.zero) / grid.scale);
  } else {
#pragma omp simd
    for (size_t i = 0; i < x.size(); ++i) y[i] = nearest((x[i] - grid.zero) / grid.scale + dither[i]);
  }
}

}  // namespace

ValueRange range_of(std::span<const float> values) {
  if (values.empty()) return {};
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> least, greatest;
  least.fill(values.front()), greatest.fill(values.front());
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t begin = 0; begin < whole; begin += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[begin + lane];
      least[lane] = value < least[lane] ? value : least[lane];
      greatest[lane] = value > greatest[lane] ? value : greatest[lane];
    }
  for (const float value : values.subspan(whole))
    least[0] = std::min(least[0], value), greatest[0] = std::max(greatest[0], value);
  return {*std::min_element(least.begin(), least.end()), *std::max_element(greatest.begin(), greatest.end())};
}

QuantizedGrid::QuantizedGrid(const Quantizer& quantizer, const ValueRange& range) {
  const float count = std::ldexp(1.0f, quantizer.bits);
  if (quantizer.scale == QuantizerScale::symmetric) {
    scale = 2 * std::max(std::abs(range.least), std::abs(range.greatest)) / count;
    first = -count / 2, last = count / 2 - 1;
  } else {
    scale = (range.greatest - range.least) / count;
    if (scale != 0) zero = std::nearbyint(range.least / scale) * scale;
    first = 0, last = count - 1;
  }
}

float QuantizedGrid::rounded(float value, float dither) const {
  float y = 0;
  round_to_grid(*this, {&value, 1}, {&y, 1}, {&dither, 1});
  return y;
}

FewLevels::FewLevels(const Quantizer& quantizer, std::span<const float> values) {
  const float mean = sum_of_magnitudes(values) / static_cast<float>(values.size());
  level = mean;
  if (!quantizer.is_ternary()) return;
  threshold = 0.7f * mean;
  level = mean_above(values, threshold);
}

float FewLevels::rounded(float value) const { return value > threshold ? level : value < -threshold ? -level : 0.0f; }

void quantize_groups(const Quantizer& quantizer, int64_t groups, std::span<const float> x, std::span<float> y,
                     std::span<const float> dither) {
  require(groups > 0 && std::ssize(x) % groups == 0 && y.size() == x.size(), "{} values have no {} groups of one size",
          x.size(), groups);
  require(quantizer.bits >= 1 && quantizer.bits <= 16, "a quantizer has 1 to 16 bits, not {}", quantizer.bits);
  const size_t size = x.size() / static_cast<size_t>(groups);
#pragma omp parallel for if (x.size() >= kFewValues)
  for (int64_t group = 0; group < groups; ++group) {
    const size_t begin = static_cast<size_t>(group) * size;
    const std::span<const float> from = x.subspan(begin, size);
    const std::span<float> into = y.subspan(begin, size);
    if (quantizer.bits > 2) {
      const QuantizedGrid grid(quantizer, range_of(from));
      round_to_grid(grid, from, into, dither.empty() ? dither : dither.subspan(begin, size));
    } else {
      const FewLevels levels(quantizer, from);
      for (size_t i = 0; i < size; ++i) into[i] = levels.rounded(from[i]);
    }
  }
}

ValueRange moved_range(const ValueRange& range, const ValueRange& batch) {
  const ValueRange from = range.least == range.greatest ? batch : range;
  constexpr double kStays = 0.95;
  const auto moved = [](float before, float now) {
    return before * static_cast<float>(kStays) + now * static_cast<float>(1 - kStays);
  };
  return {moved(from.least, batch.least), moved(from.greatest, batch.greatest)};
}

}  // namespace nought
