// Whether the calls of ranks meet: every collective the same call of its group, in the same order, with the same sizes
// and dtypes, and every send its receive.
#pragma once

#include <optional>
#include <vector>

#include "nought/prove/transcript.h"

namespace nought {

/// Groups whose ranks are in classes that lie together in some group: what holds for their calls holds for all groups
/// made at the same time.
class GroupUnions {
 public:
  explicit GroupUnions(const RecordedRanks& ranks);
  /// The union of the group of a class's rank: a number.
  int of(int rank_class, int group) const {
    return unions_[static_cast<size_t>(rank_class)][static_cast<size_t>(group)];
  }
  int count() const { return static_cast<int>(classes_.size()); }
  /// The classes whose ranks are in it.
  const std::vector<int>& classes(int number) const { return classes_[static_cast<size_t>(number)]; }
  /// Which of the groups that each rank makes it is.
  int group(int number) const { return groups_[static_cast<size_t>(number)]; }

 private:
  std::vector<std::vector<int>> unions_;   // by class and group
  std::vector<std::vector<int>> classes_;  // by union
  std::vector<int> groups_;
};

/// The first call that does not meet, or nothing.
std::optional<Counterexample> find_mismatch(const RecordedRanks& ranks);

}  // namespace nought
