#include "nought/compress/weight_quantization.h"

#include <algorithm>

#include <fmt/core.h>

#include "nought/base/error.h"

namespace nought {

namespace {

std::string describe_scale(const WeightQuantization& quantization, int bits) {
  if (bits == 1) return "binary";
  if (bits == 2) return "ternary";
  return std::string(name_of(quantization.scale));
}

}  // namespace

std::optional<WeightRounding> WeightQuantization::rounding_at(const WeightGroup& group, int64_t updates) const {
  if (updates < schedule_offset) return {};
  const int64_t step = updates - schedule_offset + 1;  // counts from the first that rounds
  WeightRounding rounding;
  rounding.quantizer = {scale, in_forward ? group.bits.target_bits : group.bits.bits_at(step)};
  rounding.stochastic = stochastic;
  if (mixed_change) {
    // Where a bit goes, the weight is whole again.
    const int64_t fall = group.bits.last_fall(step);
    rounding.unquantized_share = fall == 0 ? nought::unquantized_share(*mixed_change, step)
                                           : nought::unquantized_share(*mixed_change, step - fall);
  }
  return rounding;
}

std::string WeightQuantization::describe(const WeightGroup& group) const {
  const int first = in_forward ? group.bits.target_bits : group.bits.start_bits;
  const int target = group.bits.target_bits;
  std::string text = first == target ? fmt::format("{} bits", target) : fmt::format("{} to {} bits", first, target);
  text += fmt::format(", {}", describe_scale(*this, target));
  if (stochastic) text += ", rounded stochastically";
  text += fmt::format(", from step {} on", schedule_offset + 1);
  int64_t falls = std::max<int64_t>(group.bits.period, 1);
  for (int bits = first - 1; bits >= target; --bits, falls *= 2)
    text += fmt::format(", {} bit{} from {}", bits, bits == 1 ? "" : "s", schedule_offset + falls);
  return text;
}

void round_weights(const WeightRounding& rounding, int64_t groups, std::span<const float> stored,
                   std::span<float> rounded, std::span<const float> dither) {
  if (rounding.unquantized_share >= 1) {
    if (rounded.data() != stored.data()) std::copy(stored.begin(), stored.end(), rounded.begin());
    return;
  }
  quantize_groups(rounding.quantizer, groups, stored, rounded, dither);
  if (rounding.unquantized_share <= 0) return;
  require(rounded.data() != stored.data(), "weights that are mixed with their rounded values take two places");
  const auto share = static_cast<float>(rounding.unquantized_share);
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = stored[i] * share + (1 - share) * rounded[i];
}

}  // namespace nought
