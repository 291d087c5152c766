// What of a receipt is made again: lines of steps, each from the checkpoint before it or from the run's start, and
// whether what a replay gives agrees with them.
//
// Non-goals: to make the replay. It has its own receipt, with a line for every step, which is read here.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "nought/checkpoint/receipt_check.h"

namespace nought {

/// Lines of steps that one replay makes again, and what it begins with.
struct ReplayedLines {
  const ReceiptLine* start = nullptr;  // that the steps follow
  const ReceiptLine* base = nullptr;   // of the weights that it begins with
  std::vector<const ReceiptLine*> lines = {};

  std::set<int64_t> steps() const;
  /// How many the run had.
  int64_t ranks() const { return start->json.value("ranks", int64_t{1}); }
};

/// `count` lines that replays can make again, at random by the seed, or all of them if they are fewer; by the step that
/// each replay begins after, 0 for the run's start. All that it refers to must outlive it.
std::map<int64_t, ReplayedLines> choose_lines(const Receipt& receipt, const ReceiptLinks& links, int64_t count,
                                              uint64_t seed);

/// How far losses and norms of a replay on so many ranks may be from those of the line's run, relative to what the
/// receipt says; 0: they have the same bits, and so have the weights. start: of the receipt or of a replay. ConfigError
/// if other ranks have another result.
double margin_on(const Json& start, int64_t run_ranks, int64_t ranks);
/// "on 2 ranks: the same bits"; or in what order the additions are, and how far apart that may be.
std::string describe_margin(double margin, int64_t run_ranks, int64_t ranks);

/// How the replay on so many ranks, of which this is the receipt, differs from the lines; or "". IoError if it has not
/// all of them.
std::string describe_replay(const ReplayedLines& lines, int64_t base, const Receipt& again, int64_t ranks);

}  // namespace nought
