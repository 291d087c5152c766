#include "nought/models/stages.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <regex>

#include "nought/models/decoder.h"
#include "nought/models/flops.h"

namespace nought {

namespace {

void require_enough(size_t units, int stages) {
  require<ConfigError>(stages >= 1 && units >= static_cast<size_t>(stages),
                       "{} pipeline stages: the model has {} Units (the embedding, its blocks and the head), and each "
                       "stage needs one; the most stages are {}",
                       stages, units, units);
}

/// Whether stages of at least one layer each have room for what the embedding and the head count.
bool has_room(int64_t layers, int stages, int64_t first_less, int64_t last_less) {
  const int64_t each = (layers + first_less + last_less) / stages;
  return each >= 1 && first_less <= each && last_less <= each;
}

[[noreturn]] void refuse_less(int64_t layers, int stages, int64_t first_less, int64_t last_less) {
  int64_t first = 1, last = 1;  // they work wherever every stage has a Unit
  const auto distance = [&](int64_t a, int64_t b) { return std::abs(a - first_less) + std::abs(b - last_less); };
  for (int64_t a = 0; a <= layers; ++a)
    for (int64_t b = 0; b <= layers; ++b)
      if (has_room(layers, stages, a, b) && distance(a, b) < distance(first, last)) first = a, last = b;
  fail<ConfigError>(
      "pipeline_parallel_first_stage_less_layers = {} and pipeline_parallel_last_stage_less_layers = {}: {} stages of "
      "{} layers and these have {} each; a stage needs 1, and neither may be more than it has; the nearest that work "
      "are {} and {}",
      first_less, last_less, stages, layers, (layers + first_less + last_less) / stages, first, last);
}

/// 1 for each Unit in whose name the expression of "type:REGEX" is found.
std::vector<double> matches_of(const Decoder& whole, const std::string& method, int stages) {
  const std::regex pattern(type_pattern(method), std::regex::icase);
  std::vector<double> found;
  int64_t count = 0;
  for (const auto& unit : whole.units()) {
    const bool matches = std::regex_search(unit->name(), pattern);
    found.push_back(matches ? 1 : 0);
    count += matches ? 1 : 0;
  }
  const int64_t blocks = whole.config().num_layers;
  require<ConfigError>(
      count >= stages,
      "pipeline partition \"{}\": the expression is found in {} of the Units' names (embedding, block.0 to block.{}, "
      "head), and each of {} stages needs one; {}",
      method, count == 0 ? "none" : fmt::format("{}", count), blocks - 1, stages,
      blocks >= stages ? fmt::format("\"type:block\" is found in {}", blocks) : "\"uniform\" counts all Units");
  return found;
}

std::vector<double> weights_of(const ModelConfig& config, const StagePartition& partition, int stages) {
  if (partition.method == "parameters") return unit_parameters(config);
  if (!partition.balances_costs()) return matches_of(Decoder(config), partition.method, stages);
  require(std::ssize(partition.costs) == most_stages(config),
          "a cut by time needs what each of {} Units costs, and {} are given: with_costs() has FLOPs",
          most_stages(config), partition.costs.size());
  return partition.costs;
}

}  // namespace

int64_t most_stages(const ModelConfig& config) { return config.num_layers + 2; }

std::vector<size_t> cut_by_layers(int64_t layers, int stages, int64_t first_less, int64_t last_less) {
  require_enough(static_cast<size_t>(layers) + 2, stages);
  if (stages == 1) return {0, static_cast<size_t>(layers) + 2};
  if (!has_room(layers, stages, first_less, last_less)) refuse_less(layers, stages, first_less, last_less);
  const int64_t all = layers + first_less + last_less;
  std::vector<size_t> begins{0};
  int64_t counted = -first_less;  // layers of the stages so far
  for (int stage = 0; stage + 1 < stages; ++stage) {
    counted += all / stages + (stage < all % stages ? 1 : 0);
    begins.push_back(static_cast<size_t>(counted + 1));  // behind the embedding
  }
  begins.push_back(static_cast<size_t>(layers) + 2);
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

std::vector<double> unit_parameters(const ModelConfig& config) {
  const Decoder whole(config);  // declares parameters, and allocates nothing
  std::vector<double> elements;
  for (const auto& unit : whole.units()) elements.push_back(static_cast<double>(unit->numel()));
  if (config.tie_word_embeddings) elements.back() += static_cast<double>(config.vocab_size * config.token_width());
  return elements;
}

StagePartition with_costs(StagePartition partition, const ModelConfig& config, int64_t seq_length) {
  if (!partition.balances_costs() || !partition.costs.empty()) return partition;
  partition.costs = unit_flops_per_token(Decoder(config), seq_length > 0 ? seq_length : config.max_positions);
  return partition;
}

std::vector<size_t> stage_begins(const ModelConfig& config, const StagePartition& partition, int stages) {
  if (partition.method == "uniform")
    return cut_by_layers(config.num_layers, stages, partition.first_less, partition.last_less);
  const auto units = static_cast<size_t>(most_stages(config));
  require_enough(units, stages);
  if (stages == 1) return {0, units};
  return cut_by_weight(weights_of(config, partition, stages), stages);
}

}  // namespace nought
