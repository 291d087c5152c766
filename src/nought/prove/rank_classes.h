// Which ranks of a job have a dry run for all.
//
// Design goals: small jobs have a dry run of each rank. In large ones, what ranks do depends on where they stand on
// each axis: every pipeline stage and every part of a sequence has its own schedule; along the other axes the first,
// the second and the last stand for all, as only sizes at the ends and roots differ there.
#pragma once

#include <vector>

#include "nought/config/layout.h"

namespace nought {

/// Jobs of so many ranks have a class for each.
inline constexpr int kRanksRunEach = 16;

struct RankClasses {
  std::vector<int> chosen;    // a rank of each class
  std::vector<int> class_of;  // by rank
};
RankClasses classes_of(const Layout& layout, int each_up_to = kRanksRunEach);

}  // namespace nought
