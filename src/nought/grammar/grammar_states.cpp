#include "nought/grammar/grammar_states.h"

#include <algorithm>
#include <set>
#include <utility>

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

int32_t GrammarStates::push(std::vector<int32_t> returns, int32_t stack) {
  std::sort(returns.begin(), returns.end());
  returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
  const auto [found, is_new] = stack_numbers_.try_emplace({std::move(returns), stack}, std::ssize(stacks_));
  if (is_new)
    stacks_.push_back(
        {found->first.first, stack, stack == kBottom ? 1 : stacks_[static_cast<size_t>(stack)].depth + 1});
  return found->second;
}

/// Follows what takes no byte: all nodes with one stack together, so that their calls of a rule become one, and the
/// deepest stack first, so that what returns to the others comes before them.
class GrammarStates::Closure {
 public:
  explicit Closure(GrammarStates& states) : states_(states) {}

  void reach(Place place) {
    if (!seen_.insert(place).second) return;
    const int32_t depth = place.stack == kBottom ? 0 : states_.stacks_[static_cast<size_t>(place.stack)].depth;
    pending_[{depth, place.stack}].push_back(place.node);
  }
  void follow() {
    while (!pending_.empty()) {
      const auto deepest = std::prev(pending_.end());
      stack_ = deepest->first.second;
      work_ = std::move(deepest->second);
      pending_.erase(deepest);
      while (!work_.empty()) {
        while (!work_.empty()) visit();
        // A call with which the caller ends returns to whom that would return.
        std::erase_if(calls_, [&](const auto& call) {
          const auto is_last = [&](int32_t node) { return states_.is_last(node); };
          const bool ends_with_it = std::all_of(call.second.begin(), call.second.end(), is_last);
          if (ends_with_it) beside(states_.grammar_.start_of(call.first));
          return ends_with_it;
        });
      }
      for (auto& [rule, returns] : std::exchange(calls_, {}))
        reach({states_.grammar_.start_of(rule), states_.push(std::move(returns), stack_)});
    }
  }

  std::vector<Place> places;  // those that take bytes
  bool ends = false;

 private:
  void beside(int32_t node) {
    if (seen_.insert({node, stack_}).second) work_.push_back(node);
  }
  void visit() {
    const int32_t at = work_.back();
    work_.pop_back();
    const Grammar::Node& node = states_.grammar_.nodes()[static_cast<size_t>(at)];
    bool takes = false;
    for (const Grammar::Edge& edge : node.edges) {
      if (edge.rule == Grammar::Edge::kByte) {
        takes = true;
      } else if (edge.rule == Grammar::Edge::kNothing) {
        beside(edge.to);
      } else {
        calls_[edge.rule].push_back(edge.to);
      }
    }
    if (takes) places.push_back({at, stack_});
    if (!node.ends) return;
    if (stack_ == kBottom) {
      ends = true;
      return;
    }
    const Stack& stack = states_.stacks_[static_cast<size_t>(stack_)];
    for (const int32_t back : stack.returns) reach({back, stack.below});
  }

  GrammarStates& states_;
  std::set<Place> seen_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> pending_;  // nodes, by depth and stack
  int32_t stack_ = kBottom;                                              // that of the nodes at work
  std::vector<int32_t> work_;
  std::map<int32_t, std::vector<int32_t>> calls_;  // by rule, the nodes behind its calls
};

GrammarStates::State GrammarStates::state_of(const std::vector<Place>& begin) {
  Closure closure(*this);
  for (const Place& place : begin) closure.reach(place);
  closure.follow();
  std::vector<Place>& places = closure.places;
  const bool ends = closure.ends;
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
  const State to = places.empty() ? kDead : state_of(places);
  (*states_[static_cast<size_t>(state)].next)[byte] = to;
  return to;
}

GrammarStates::State GrammarStates::next(State state, std::string_view bytes) {
  for (const char each : bytes) state = next(state, static_cast<uint8_t>(each));
  return state;
}

}  // namespace nought
