#include "nought/nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nought {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Wavelengths that the original length holds often keep their frequency, those that it holds rarely are stretched,
/// and between the two it is blended.
double llama3_frequency(const RopeOptions& options, double frequency) {
  const double turns = static_cast<double>(options.original_max_positions) * frequency / kTurn;
  if (turns < options.low_freq_factor) return frequency / options.factor;
  if (turns > options.high_freq_factor || options.high_freq_factor == options.low_freq_factor) return frequency;
  const double smooth = (turns - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor);
  return (1 - smooth) * frequency / options.factor + smooth * frequency;
}

/// The dimension whose wavelength fits `turns` times into the original length.
double yarn_dimension(const RopeOptions& options, double turns) {
  return static_cast<double>(options.rotary_dim) *
         std::log(static_cast<double>(options.original_max_positions) / (turns * kTurn)) /
         (2 * std::log(options.theta));
}

/// How far pair i is stretched: 0 up to the dimension of beta_fast, 1 from that of beta_slow on.
double yarn_ramp(const RopeOptions& options, int64_t i) {
  double low = yarn_dimension(options, options.beta_fast), high = yarn_dimension(options, options.beta_slow);
  if (options.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(options.rotary_dim - 1));
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

}  // namespace

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

std::vector<double> RopeOptions::frequencies(int64_t length) const {
  std::vector<double> all(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < all.size(); ++i) {
    double& frequency = all[i];
    frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    switch (kind) {
      case RopeKind::plain:
      case RopeKind::dynamic:  // of at_length(): a theta of its own
        break;
      case RopeKind::linear:
        frequency /= factor;
        break;
      case RopeKind::llama3:
        frequency = llama3_frequency(*this, frequency);
        break;
      case RopeKind::yarn: {
        const double ramp = yarn_ramp(*this, static_cast<int64_t>(i));
        frequency = frequency / factor * ramp + frequency * (1 - ramp);
        break;
      }
      case RopeKind::longrope:
        frequency /= (length > original_max_positions ? long_factors : short_factors)[i];
        break;
    }
  }
  return all;
}

RopeOptions RopeOptions::at_length(int64_t length) const {
  if (kind != RopeKind::dynamic) return *this;
  RopeOptions plain{.theta = theta, .rotary_dim = rotary_dim, .interleaved = interleaved};
  if (length <= original_max_positions) return plain;
  const double stretch = static_cast<double>(length) / static_cast<double>(original_max_positions);
  const auto dim = static_cast<double>(rotary_dim);
  plain.theta *= std::pow(factor * stretch - (factor - 1), dim / (dim - 2));
  return plain;
}

double RopeOptions::table_scale() const {
  if (kind != RopeKind::yarn && kind != RopeKind::longrope) return 1;
  if (attention_factor) return *attention_factor;
  if (kind == RopeKind::longrope)
    return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_max_positions)));
  if (mscale.value_or(0) != 0 && mscale_all_dim.value_or(0) != 0)
    return yarn_mscale(factor, *mscale) / yarn_mscale(factor, *mscale_all_dim);
  return yarn_mscale(factor, 1);
}

RopeTables make_rope_tables(const Context& context, int64_t positions, const RopeOptions& options, DType dtype) {
  require<ShapeError>(options.rotary_dim > 0 && options.rotary_dim % 2 == 0,
                      "RoPE rotates pairs: rotary_dim must be even, got {}", options.rotary_dim);
  const DType table_dtype = statistics_dtype(dtype);
  const int64_t half = options.rotary_dim / 2, limit = options.switch_length(), rows = (limit > 0 ? 2 : 1) * positions;
  RopeTables tables{.cos = context.empty({rows, half}, table_dtype, Category::workspace),
                    .sin = context.empty({rows, half}, table_dtype, Category::workspace),
                    .rotary_dim = options.rotary_dim,
                    .interleaved = options.interleaved,
                    .long_begin = limit > 0 ? positions : 0};
  if (context.memory->is_virtual()) return tables;
  const double scale = options.table_scale();
  visit_float(table_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> cos(static_cast<size_t>(rows * half)), sin(cos.size());
    for (int64_t begin = 0; begin < rows; begin += positions) {
      const std::vector<double> frequencies = options.frequencies(begin == 0 ? limit : limit + 1);
      for (int64_t i = 0; i < half; ++i) {
        for (int64_t p = 0; p < positions; ++p) {
          const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
          const auto at = static_cast<size_t>((begin + p) * half + i);
          cos[at] = T(scale * std::cos(angle));
          sin[at] = T(scale * std::sin(angle));
        }
      }
    }
    context.upload<T>(cos, tables.cos);
    context.upload<T>(sin, tables.sin);
  });
  return tables;
}

RopeTables make_query_factors(const Context& context, int64_t positions, const QueryScale& scale, int64_t head_dim,
                              DType dtype) {
  require<ShapeError>(head_dim % 2 == 0, "queries that are scaled by their position have an even head_dim, got {}",
                      head_dim);
  const DType table_dtype = statistics_dtype(dtype);
  const int64_t half = head_dim / 2;
  RopeTables tables{.cos = context.empty({positions, half}, table_dtype, Category::workspace),
                    .sin = context.zeros({positions, half}, table_dtype, Category::workspace),
                    .rotary_dim = head_dim};
  if (context.memory->is_virtual()) return tables;
  visit_float(table_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> factors;
    for (int64_t p = 0; p < positions; ++p) {
      const auto times = static_cast<double>((p + scale.shift) / scale.length);
      factors.insert(factors.end(), static_cast<size_t>(half), T(1 + scale.beta * std::log1p(times)));
    }
    context.upload<T>(factors, tables.cos);
  });
  return tables;
}

}  // namespace nought
