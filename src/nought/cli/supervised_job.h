// run_supervised(): starts this program as a child, and attends to it until neither it nor anything that it started is
// there any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "nought/cli/child_process.h"

namespace nought {

/// How a job ended, and what it did last.
struct JobEnd {
  int code = 0;       // its exit code, or 128 + the signal that ended it
  int wish = 0;       // the signal by which the user wished the end; 0: none
  bool hung = false;  // nothing moved for too long
  std::string cause;  // one line
  std::string host;   // where the lost rank was; "" if that is not known
  int rank = -1;      // which rank was lost; -1 if that is not known
  int64_t step = 0;   // that was made, 1 for the first; 0: none had begun
};

struct SupervisedJob {
  std::vector<std::string> arguments;  // without the program
  int ranks = 1;
  std::chrono::milliseconds patience{0};  // so long no rank may get on
  bool all_here = true;                   // no rank is on another host, where it is not seen
};

/// Its stderr flows through this process. Signals are passed on.
JobEnd run_supervised(const SupervisedJob& job, const EndingSignals& signals);

/// What a line of stderr tells of a lost rank: "process rank 1 on node vm exited on signal 9 (Killed)" and the like.
struct LostRank {
  int rank = -1;
  std::string host;
};
LostRank lost_rank_of(const std::string& message);

}  // namespace nought
