// Rotary positions (arXiv 2104.09864): the frequencies of the scalings that models use, and tables of cos and sin.
#pragma once

#include <optional>
#include <vector>

#include "nought/autograd/attention.h"

namespace nought {

/// How the frequencies are scaled to sequences longer than those of the first training.
enum class RopeKind : uint8_t {
  plain,    // not at all
  linear,   // all frequencies are divided by the factor (arXiv 2306.15595)
  llama3,   // only the low frequencies are divided
  yarn,     // a ramp between the two, and a temperature (arXiv 2309.00071)
  dynamic,  // theta grows with the length of the rows beyond original_max_positions (NTK)
  longrope  // a factor for each frequency; long and short sequences have different ones (arXiv 2402.13753)
};

struct RopeOptions {
  RopeKind kind = RopeKind::plain;
  double theta = 10000;
  int64_t rotary_dim = 0;    // 0: no rotation
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)

  double factor = 1;  // linear, llama3, yarn, dynamic; longrope: max_positions / original_max_positions
  int64_t original_max_positions = 0;  // llama3, yarn, longrope, dynamic: the length before it was extended
  double low_freq_factor = 1, high_freq_factor = 4;           // llama3
  double beta_fast = 32, beta_slow = 1;                       // yarn
  std::optional<double> mscale = {}, mscale_all_dim = {};     // yarn
  bool truncate = true;                                       // yarn: the ramp's ends are whole dimensions
  std::optional<double> attention_factor = {};                // yarn, longrope: instead of what follows from the factor
  std::vector<double> short_factors = {}, long_factors = {};  // longrope, [rotary_dim / 2]

  bool operator==(const RopeOptions&) const = default;

  /// The frequency of each pair in radians per position, for sequences of `length` tokens: [rotary_dim / 2].
  std::vector<double> frequencies(int64_t length) const;
  /// With dynamic: the plain options by which rows of so many tokens rotate; else these.
  RopeOptions at_length(int64_t length) const;
  /// The factor on the tables of cos and sin.
  double table_scale() const;
  /// Sequences of at most this many tokens have one set of frequencies, longer ones another. 0: there is one set.
  int64_t switch_length() const { return kind == RopeKind::longrope ? original_max_positions : 0; }
};

/// Queries are multiplied by 1 + beta * ln(1 + floor((position + shift) / length)), so that attention stays sharp in
/// long sequences (arXiv 2501.19399).
struct QueryScale {
  double beta = 0;
  int64_t length = 1, shift = 0;
  bool unrotated_only = false;  // those of layers that do not rotate

  bool operator==(const QueryScale&) const = default;
};

/// YaRN's attention temperature: 0.1 mscale ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

/// Tables of `positions` rows, computed in f64 and rounded once. With a switch_length, as many rows again follow for
/// the sequences beyond it.
RopeTables make_rope_tables(const Context& context, int64_t positions, const RopeOptions& options, DType dtype);
/// The factors of queries of so many positions, as tables that rotate by nothing: for scale_queries().
RopeTables make_query_factors(const Context& context, int64_t positions, const QueryScale& scale, int64_t head_dim,
                              DType dtype);

}  // namespace nought
