#include "nought/models/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <regex>

#include "nought/models/decoder.h"

namespace nought {

namespace {

constexpr std::string_view kByType = "type:";

void require_enough(size_t units, int stages) {
  require<ConfigError>(stages >= 1 && units >= static_cast<size_t>(stages),
                       "{} pipeline stages: the model has {} Units (the embedding, its blocks and the head), and each "
                       "stage needs one; the most stages are {}",
                       stages, units, units);
}

std::regex type_pattern(const std::string& partition) {
  const std::string pattern = partition.substr(kByType.size());
  try {
    return std::regex(pattern, std::regex::icase);
  } catch (const std::regex_error&) {
    fail<ConfigError>("pipeline.partition = \"{}\": \"{}\" is not a regular expression", partition, pattern);
  }
}

}  // namespace

std::vector<size_t> cut_uniformly(size_t units, int stages) {
  require_enough(units, stages);
  const auto count = static_cast<size_t>(stages);
  std::vector<size_t> begins{0};
  for (size_t stage = 0; stage < count; ++stage)
    begins.push_back(begins.back() + units / count + (stage < units % count ? 1 : 0));
  return begins;
}

std::vector<size_t> cut_by_weight(std::span<const double> weights, int stages) {
  const size_t units = weights.size(), count = static_cast<size_t>(stages);
  require_enough(units, stages);
  std::vector<double> sums{0};
  for (const double weight : weights) sums.push_back(sums.back() + weight);
  // least[k][n]: the smallest largest sum of the first n Units in k + 1 stages; at[k][n]: where the last of these
  // begins
  std::vector<std::vector<double>> least{sums};
  std::vector<std::vector<size_t>> at{std::vector<size_t>(units + 1, 0)};
  for (size_t k = 1; k < count; ++k) {
    least.emplace_back(units + 1, std::numeric_limits<double>::infinity());
    at.emplace_back(units + 1, 0);
    for (size_t n = k + 1; n <= units; ++n)
      for (size_t begin = k; begin < n; ++begin) {
        const double largest = std::max(least[k - 1][begin], sums[n] - sums[begin]);
        if (largest < least[k][n]) least[k][n] = largest, at[k][n] = begin;
      }
  }
  std::vector<size_t> begins{units};
  for (size_t k = count; k-- > 0;) begins.push_back(at[k][begins.back()]);
  std::reverse(begins.begin(), begins.end());
  return begins;
}

void check_partition(const std::string& partition) {
  if (partition.starts_with(kByType)) {
    type_pattern(partition);
    return;
  }
  require<ConfigError>(partition == "parameters" || partition == "best" || partition == "uniform",
                       "pipeline.partition = \"{}\": it is \"parameters\", \"best\" (the same), \"uniform\" or "
                       "\"type:\" and a regular expression",
                       partition);
}

std::vector<size_t> stage_begins(const ModelConfig& config, const std::string& partition, int stages) {
  check_partition(partition);
  const auto units = static_cast<size_t>(config.num_layers) + 2;
  if (stages == 1) return {0, units};
  if (partition == "uniform") return cut_uniformly(units, stages);
  const Decoder whole(config);  // declares parameters, and allocates nothing
  const bool by_type = partition.starts_with(kByType);
  const std::regex pattern = by_type ? type_pattern(partition) : std::regex();
  std::vector<double> weights;
  for (const auto& unit : whole.units())
    weights.push_back(by_type ? std::regex_search(unit->name(), pattern) : static_cast<double>(unit->numel()));
  if (!by_type && config.tie_word_embeddings)
    weights.back() += static_cast<double>(config.vocab_size * config.hidden_size);
  return cut_by_weight(weights, stages);
}

}  // namespace nought
