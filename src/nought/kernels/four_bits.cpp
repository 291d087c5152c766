#include "nought/kernels/four_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "nought/base/math.h"
#include "nought/io/weight_formats.h"

namespace nought {

namespace {

constexpr size_t kCodes = 16;

/// The values of a kind in rising order: their codes, and the middles between neighbours.
struct Ladder {
  std::array<uint8_t, kCodes> codes{};
  std::array<float, kCodes - 1> middles{};

  explicit Ladder(const std::array<float, kCodes>& values) {
    std::iota(codes.begin(), codes.end(), uint8_t{0});
    std::stable_sort(codes.begin(), codes.end(), [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
    for (size_t i = 0; i + 1 < kCodes; ++i) middles[i] = (values[codes[i]] + values[codes[i + 1]]) / 2;
  }
};

const Ladder& ladder_of(CodeKind kind) {
  static const Ladder nf4(four_bit_values(CodeKind::nf4)), fp4(four_bit_values(CodeKind::fp4));
  return kind == CodeKind::nf4 ? nf4 : fp4;
}

std::array<float, kCodes> values_of(CodeTable table) {
  std::array<float, kCodes> values{};
  const auto all = code_values(table, 4);
  std::copy_n(all.begin(), kCodes, values.begin());
  return values;
}

/// As torch.linspace(0.1, 1, parts + 1) has them: from both ends, each with one rounding.
float boundary(int i, int parts) {
  const float first = 0.1F, last = 1, step = (last - first) / static_cast<float>(parts);
  return i < (parts + 1) / 2 ? std::fma(step, static_cast<float>(i), first)
                             : std::fma(-step, static_cast<float>(parts - i), last);
}

std::array<float, 256> make_nested_values() {
  std::array<float, 256> values{};
  size_t count = 0;
  const auto add = [&](float value) { values[count++] = value; };
  add(0), add(1);
  for (int decade = 0; decade < 7; ++decade) {
    const auto factor = static_cast<float>(std::pow(10.0, decade - 6));
    const int parts = 1 << decade;
    for (int i = 0; i < parts; ++i) {
      const float middle = factor * ((boundary(i, parts) + boundary(i + 1, parts)) / 2);
      add(middle), add(-middle);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

/// The sum of floats in the order of torch's vectors of 8, of which it adds four in turn, in levels.
class TorchSum {
 public:
  explicit TorchSum(std::span<const float> x) : x_(x) {}

  float sum() const {
    const size_t vectors = x_.size() / kLanes, rows = vectors / kInTurn;
    auto sums = rows_of(rows);
    for (size_t i = rows * kInTurn; i < vectors; ++i) add(sums[0], x_.data() + i * kLanes);
    for (size_t k = 1; k < kInTurn; ++k) add(sums[0], sums[k].data());
    float total = 0;
    for (size_t i = vectors * kLanes; i < x_.size(); ++i) total += x_[i];
    for (const float lane : sums[0]) total += lane;
    return total;
  }

 private:
  static constexpr size_t kLanes = 8, kInTurn = 4, kLevels = 4;
  using Vector = std::array<float, kLanes>;
  using Row = std::array<Vector, kInTurn>;

  static void add(Vector& to, const float* from) {
    for (size_t lane = 0; lane < kLanes; ++lane) to[lane] += from[lane];
  }
  static void add(Row& to, const Row& from) {
    for (size_t k = 0; k < kInTurn; ++k) add(to[k], from[k].data());
  }

  Row rows_of(size_t count) const {
    const auto ceil_log2 = count < 2 ? 0 : std::bit_width(count - 1);
    const auto power = static_cast<size_t>(std::max(4, static_cast<int>(ceil_log2) / static_cast<int>(kLevels)));
    const size_t step = size_t{1} << power, mask = step - 1;
    std::array<Row, kLevels> levels{};
    const auto add_row = [&](size_t i) {
      for (size_t k = 0; k < kInTurn; ++k) add(levels[0][k], x_.data() + (i * kInTurn + k) * kLanes);
    };
    size_t i = 0;
    while (i + step <= count) {
      for (size_t j = 0; j < step; ++j) add_row(i++);
      for (size_t level = 1; level < kLevels; ++level) {
        add(levels[level], levels[level - 1]);
        levels[level - 1] = {};
        if ((i & (mask << (level * power))) != 0) break;
      }
    }
    while (i < count) add_row(i++);
    for (size_t level = 1; level < kLevels; ++level) add(levels[0], levels[level]);
    return levels[0];
  }

  std::span<const float> x_;
};

/// The codes of scales in [-1, 1]. bitsandbytes rounds them to one of 2^16 places first, and each place has a code.
class NearestCodes {
 public:
  NearestCodes() {
    const auto& values = nested_values();
    for (size_t place = 0; place < codes_.size(); ++place) {
      const float x = static_cast<float>(place) / kLast * 2 - 1;
      const auto above = std::upper_bound(values.begin(), values.end(), x);
      const auto below = static_cast<size_t>(std::max<std::ptrdiff_t>(above - values.begin() - 1, 0));
      const bool next_is_nearer =
          below + 1 < values.size() && std::abs(x - values[below + 1]) < std::abs(x - values[below]);
      codes_[place] = static_cast<uint8_t>(next_is_nearer ? below + 1 : below);
    }
  }
  uint8_t of(float x) const {
    return codes_[static_cast<size_t>(std::clamp((x + 1) * 0.5F * kLast + 0.5F, 0.0F, kLast))];
  }

 private:
  static constexpr float kLast = 65535;
  std::vector<uint8_t> codes_ = std::vector<uint8_t>(size_t{1} << 16);
};

float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    const float magnitude = std::abs(value);
    if (!(magnitude <= largest)) largest = std::isnan(largest) ? largest : magnitude;
  }
  return largest;
}

}  // namespace

const std::array<float, 16>& four_bit_values(CodeKind kind) {
  static const auto nf4 = values_of(CodeTable::nf4), fp4 = values_of(CodeTable::fp4);
  return kind == CodeKind::nf4 ? nf4 : fp4;
}

float quantize_four_bits(CodeKind kind, std::span<const float> values, uint8_t* codes) {
  const Ladder& ladder = ladder_of(kind);
  const float scale = largest_magnitude(values), inverse = scale > 0 ? 1 / scale : 0;
  const auto scaled = [=](float value) { return std::isinf(inverse) ? value / scale : value * inverse; };
  std::array<int, kFourBitBlock> above{};  // middles below the value
  for (const float middle : ladder.middles)
    for (size_t i = 0; i < values.size(); ++i) above[i] += scaled(values[i]) > middle ? 1 : 0;
  const auto code = [&](size_t i) {
    return i < values.size() ? ladder.codes[static_cast<size_t>(above[i])]
                             : ladder.codes[static_cast<size_t>(std::count_if(
                                   ladder.middles.begin(), ladder.middles.end(), [](float m) { return 0 > m; }))];
  };
  for (size_t i = 0; i < values.size(); i += 2) codes[i / 2] = static_cast<uint8_t>(code(i) << 4 | code(i + 1));
  return scale;
}

const std::array<float, 256>& nested_values() {
  static const auto values = make_nested_values();
  return values;
}

NestedScales nest_scales(std::span<const float> scales) {
  static const NearestCodes nearest;
  NestedScales nested;
  if (scales.empty()) return nested;
  nested.offset = TorchSum(scales).sum() / static_cast<float>(scales.size());
  std::vector<float> differences(scales.size());
  for (size_t i = 0; i < scales.size(); ++i) differences[i] = scales[i] - nested.offset;
  for (size_t begin = 0; begin < scales.size(); begin += kNestedBlock) {
    const auto block =
        std::span<const float>(differences).subspan(begin, std::min<size_t>(kNestedBlock, scales.size() - begin));
    const float scale = largest_magnitude(block), inverse = 1 / scale;
    nested.scales.push_back(scale);
    for (const float difference : block)
      nested.codes.push_back(scale > 0 ? nearest.of(difference * inverse) : uint8_t{0});
  }
  return nested;
}

}  // namespace nought
