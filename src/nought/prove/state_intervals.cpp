#include "nought/prove/state_intervals.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "nought/checkpoint/owned_pieces.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

std::string key_of(std::string_view state, const std::string& parameter) {
  return fmt::format("{}/{}", state, parameter);
}

/// What `wanted` has and `there` has not; the first of it. Both are closed.
std::optional<Interval> first_gap(const std::vector<Interval>& wanted, const std::vector<Interval>& there) {
  auto have = there.begin();
  for (const Interval& want : wanted) {
    int64_t reached = want.begin;
    while (reached < want.end) {
      while (have != there.end() && have->end <= reached) ++have;
      if (have == there.end() || have->begin >= want.end) return Interval{reached, want.end};
      if (have->begin > reached) return Interval{reached, have->begin};
      reached = have->end;
    }
  }
  return std::nullopt;
}

Counterexample missing(int rank, const std::string& key, Interval gap) {
  return {rank, fmt::format("elements {} to {} of {} are read by rank {} when it resumes, and no rank writes them",
                            gap.begin, gap.end, key, rank)};
}

}  // namespace

void StateIntervals::close() {
  for (auto& [key, intervals] : intervals_) {
    std::sort(intervals.begin(), intervals.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
    std::vector<Interval> joined;
    for (const Interval& each : intervals) {
      if (each.empty()) continue;
      if (!joined.empty() && each.begin <= joined.back().end)
        joined.back().end = std::max(joined.back().end, each.end);
      else
        joined.push_back(each);
    }
    intervals = std::move(joined);
  }
}

void AskedStates::fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
                       const Tensor& destination) const {
  if (destination.bytes() > 0 && !destination.buffer()->is_virtual())  // somebody computes with what lies there
    std::memset(destination.raw(), 0, static_cast<size_t>(destination.bytes()));
  if (!parameter.trainable && !with_frozen_) return;
  const std::string key = key_of(name_of(kind), parameter.name);
  for (const Interval& each : elements) asked_.add(key, each);
}

StateIntervals AskedStates::take() {
  asked_.close();
  return std::move(asked_);
}

std::string state_of_any_worker(std::string state) {
  if (state.starts_with("worker")) state.erase(0, state.find(':') + 1);
  return state;
}

StateIntervals saved_intervals(ShardedModel& model, LocalSteps* local, bool with_frozen) {
  StateIntervals saved;
  for (const OwnedPiece& piece : owned_pieces(model, local, with_frozen)) {
    saved.bytes += piece.bytes();
    ++saved.pieces;
    const std::string key = key_of(state_of_any_worker(piece.state), piece.parameter->name);
    if (piece.parameter->placement.is_whole()) {
      saved.add(key, piece.in_parameter);
      continue;
    }
    for (const PartRun& run : part_held(*piece.parameter, model.mesh()).runs(piece.in_parameter))
      saved.add(key, run.global);
  }
  saved.close();
  return saved;
}

std::optional<Counterexample> find_missing(const std::vector<StateIntervals>& saved,
                                           const std::vector<StateIntervals>& asked, const std::vector<int>& ranks) {
  StateIntervals all;
  for (const StateIntervals& each : saved)
    for (const auto& [key, intervals] : each.all())
      for (const Interval& interval : intervals) all.add(key, interval);
  all.close();
  for (size_t i = 0; i < asked.size(); ++i)
    for (const auto& [key, wanted] : asked[i].all()) {
      const auto found = all.all().find(key);
      const auto gap = first_gap(wanted, found == all.all().end() ? std::vector<Interval>() : found->second);
      if (gap) return missing(ranks[i], key, *gap);
    }
  return std::nullopt;
}

std::optional<Counterexample> find_missing_by_rank(const std::vector<StateIntervals>& saved,
                                                   const std::vector<StateIntervals>& asked,
                                                   const std::vector<int>& ranks) {
  std::set<std::string> written;
  for (const StateIntervals& each : saved)
    for (const auto& [key, intervals] : each.all()) written.insert(key);
  for (size_t i = 0; i < asked.size(); ++i)
    for (const auto& [key, wanted] : asked[i].all()) {
      const auto found = saved[i].all().find(key);
      if (found == saved[i].all().end() && written.contains(key)) continue;  // another rank of its group writes it
      const auto gap = first_gap(wanted, found == saved[i].all().end() ? std::vector<Interval>() : found->second);
      if (gap) return missing(ranks[i], key, *gap);
    }
  return std::nullopt;
}

}  // namespace nought
