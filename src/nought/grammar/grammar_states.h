// GrammarStates: runs a grammar over bytes. A state is a number; equal ways to go on have equal numbers.
//
// A state is the set of places in the automata, each with the stack of calls that it returns to. Calls of a rule from
// places with the same stack are one, which returns to all that follows them: otherwise alternatives that begin alike
// would double the stacks with each level. States and their transitions are made when they are first asked for, and
// kept (a lazy subset construction).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/grammar/grammar.h"

namespace nought {

class GrammarStates {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;

  /// A grammar that is finished.
  explicit GrammarStates(Grammar grammar);

  State start() const { return start_; }
  /// The state after a byte; kDead if no word goes on with it. ConfigError if there are too many states.
  State next(State state, uint8_t byte) {
    if (state == kDead) return kDead;
    const auto& row = states_[static_cast<size_t>(state)].next;
    return row && (*row)[byte] != kUnknown ? (*row)[byte] : find_next(state, byte);
  }
  State next(State state, std::string_view bytes);
  /// Whether a word ends here, and whether none goes on.
  bool ends(State state) const { return states_[static_cast<size_t>(state)].ends; }
  bool only_ends(State state) const { return states_[static_cast<size_t>(state)].places.empty(); }
  int64_t size() const { return static_cast<int64_t>(states_.size()); }

 private:
  static constexpr State kUnknown = -2;  // of a transition
  State find_next(State state, uint8_t byte);
  struct Place {
    int32_t node, stack;
    auto operator<=>(const Place&) const = default;
  };
  struct Known {
    std::vector<Place> places;  // those that take bytes, in order
    bool ends = false;
    std::unique_ptr<std::array<State, 256>> next = {};
  };
  struct Stack {
    std::vector<int32_t> returns;  // the nodes to return to
    int32_t below, depth;
  };
  class Closure;
  /// The state of these places, and of those that are reached from them without a byte.
  State state_of(const std::vector<Place>& places);
  bool is_last(int32_t node) const;  // only the end of its rule follows
  int32_t push(std::vector<int32_t> returns, int32_t stack);

  Grammar grammar_;
  std::vector<Stack> stacks_;
  std::map<std::pair<std::vector<int32_t>, int32_t>, int32_t> stack_numbers_;
  std::vector<Known> states_;
  std::map<std::pair<std::vector<Place>, bool>, State> state_numbers_;
  State start_;
};

}  // namespace nought
