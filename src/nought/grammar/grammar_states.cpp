#include "nought/grammar/grammar_states.h"

#include <algorithm>
#include <set>

#include "nought/base/error.h"

namespace nought {

namespace {
constexpr size_t kMostStates = size_t{1} << 16, kMostPlaces = 8192;
constexpr int32_t kBottom = -1;  // the stack without calls
}  // namespace

GrammarStates::GrammarStates(Grammar grammar)
    : grammar_(std::move(grammar)), start_(state_of({{grammar_.start(), kBottom}})) {}

bool GrammarStates::is_last(int32_t node) const {
  for (;;) {
    const Grammar::Node& at = grammar_.nodes()[static_cast<size_t>(node)];
    if (at.edges.empty()) return at.ends;
    if (at.edges.size() > 1 || at.ends || at.edges[0].rule != Grammar::Edge::kNothing) return false;
    node = at.edges[0].to;
  }
}

int32_t GrammarStates::push(int32_t node, int32_t stack) {
  const auto [found, is_new] = stack_numbers_.try_emplace({node, stack}, static_cast<int32_t>(stacks_.size()));
  if (is_new) stacks_.emplace_back(node, stack);
  return found->second;
}

GrammarStates::State GrammarStates::state_of(std::vector<Place> work) {
  std::set<Place> seen(work.begin(), work.end());
  std::vector<Place> places;
  bool ends = false;
  const auto reach = [&](Place place) {
    if (seen.insert(place).second) work.push_back(place);
  };
  while (!work.empty()) {
    const Place at = work.back();
    work.pop_back();
    const Grammar::Node& node = grammar_.nodes()[static_cast<size_t>(at.node)];
    bool takes = false;
    for (const Grammar::Edge& edge : node.edges) {
      if (edge.rule == Grammar::Edge::kByte) {
        takes = true;
      } else if (edge.rule == Grammar::Edge::kNothing) {
        reach({edge.to, at.stack});
      } else {
        // A call with which the caller ends returns to whom that would return.
        reach({grammar_.start_of(edge.rule), is_last(edge.to) ? at.stack : push(edge.to, at.stack)});
      }
    }
    if (takes) places.push_back(at);
    if (!node.ends) continue;
    if (at.stack == kBottom) {
      ends = true;
    } else {
      const auto [back, below] = stacks_[static_cast<size_t>(at.stack)];
      reach({back, below});
    }
  }
  require<ConfigError>(places.size() <= kMostPlaces, "the constraint of the answer is in more than {} places at once",
                       kMostPlaces);
  std::sort(places.begin(), places.end());
  const auto [found, is_new] = state_numbers_.try_emplace({places, ends}, static_cast<State>(states_.size()));
  if (is_new) {
    require<ConfigError>(states_.size() < kMostStates, "the constraint of the answer has more than {} states",
                         kMostStates);
    states_.push_back({std::move(places), ends});
  }
  return found->second;
}

GrammarStates::State GrammarStates::find_next(State state, uint8_t byte) {
  auto& row = states_[static_cast<size_t>(state)].next;
  if (!row) {
    row = std::make_unique<std::array<State, 256>>();
    row->fill(kUnknown);
  }
  std::vector<Place> places;
  for (const Place& at : states_[static_cast<size_t>(state)].places)
    for (const Grammar::Edge& edge : grammar_.nodes()[static_cast<size_t>(at.node)].edges)
      if (edge.rule == Grammar::Edge::kByte && edge.least <= byte && byte <= edge.most)
        places.push_back({edge.to, at.stack});
  const State to = places.empty() ? kDead : state_of(std::move(places));
  (*states_[static_cast<size_t>(state)].next)[byte] = to;
  return to;
}

GrammarStates::State GrammarStates::next(State state, std::string_view bytes) {
  for (const char each : bytes) state = next(state, static_cast<uint8_t>(each));
  return state;
}

}  // namespace nought
