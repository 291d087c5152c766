// What `nought simulate` says of a run: its step, its memory, and what training takes and costs.
#pragma once

#include "nought/base/json.h"
#include "nought/simulate/layouts.h"

namespace nought {

/// What is asked of all of training. 0: not asked.
struct TrainingGoal {
  double tokens = 0;
  double price = 0;  // of an hour of a GPU
};

/// A number of tokens: "15T", "300B", "2e12". ConfigError for another text and for what is not above 0.
double parse_tokens(const std::string& text);

std::string to_text(const RankedLayout& layout, const Cluster& cluster, const TrainingGoal& goal);
OrderedJson to_json(const RankedLayout& layout, const Cluster& cluster, const TrainingGoal& goal);
/// A line for each layout, and the reasons of what is left out; JSON has all of these.
std::string to_text(const LayoutRanking& ranking, const Cluster& cluster, const TrainingGoal& goal);
OrderedJson to_json(const LayoutRanking& ranking, const Cluster& cluster, const TrainingGoal& goal);

}  // namespace nought
