// StateIntervals: which elements of which states a rank writes to a checkpoint, or reads when it resumes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nought/prove/transcript.h"
#include "nought/zero/local_steps.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// By "STATE/PARAMETER": rising intervals of the flattened global tensor that do not touch.
class StateIntervals {
 public:
  void add(const std::string& key, Interval elements) { intervals_[key].push_back(elements); }
  /// Sorts and joins what was added.
  void close();
  const std::map<std::string, std::vector<Interval>>& all() const { return intervals_; }
  std::map<std::string, std::vector<Interval>>& all() { return intervals_; }

  int64_t bytes = 0;  // that it writes
  int64_t pieces = 0;

 private:
  std::map<std::string, std::vector<Interval>> intervals_;
};

/// Values that nobody reads: it notes what it is asked for. with_frozen: a checkpoint holds frozen parameters, too;
/// else they come from the base of an adapter.
class AskedStates final : public StateSource {
 public:
  explicit AskedStates(bool with_frozen) : with_frozen_(with_frozen) {}
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  StateIntervals take();

 private:
  bool with_frozen_;
  mutable StateIntervals asked_;
};

/// The name of a state in a checkpoint, without the prefix that says which worker's it is: each reads its own.
std::string state_of_any_worker(std::string state);

/// What the rank would write of the model as it is.
StateIntervals saved_intervals(ShardedModel& model, LocalSteps* local, bool with_frozen);

/// What a rank reads when it resumes and no rank has written; nothing if all is there.
std::optional<Counterexample> find_missing(const std::vector<StateIntervals>& saved,
                                           const std::vector<StateIntervals>& asked, const std::vector<int>& ranks);

/// As find_missing(), where some ranks stand for all: each that writes a state writes what it reads of it.
std::optional<Counterexample> find_missing_by_rank(const std::vector<StateIntervals>& saved,
                                                   const std::vector<StateIntervals>& asked,
                                                   const std::vector<int>& ranks);

}  // namespace nought
