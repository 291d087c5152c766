// save_interval(): how often a run should save that fails now and then.
//
// The formula is Young's: J. W. Young, "A First Order Approximation to the Optimum Checkpoint Interval", Communications
// of the ACM 17(9), 1974, pages 530 and 531. It holds where a save takes much less time than lies between failures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "nought/base/json.h"

namespace nought {

/// What a save costs, and how it is known.
struct SaveCost {
  int64_t bytes = 0;   // of a checkpoint, all ranks together
  double rate = 0;     // bytes a second that all ranks write together; 0: `seconds` was measured as a whole
  double seconds = 0;  // for which the training waits
  std::string source;  // "of 12 saves in out/metrics.jsonl"
};

struct SaveInterval {
  double seconds = 0;  // from save to save: sqrt(2 x save x between failures)
  int64_t steps = 1;   // the same, rounded
  double saving = 0;   // part of the time that saves take: save / interval
  double lost = 0;     // and that failures cost, half an interval each: interval / (2 x between failures)
};

/// All in seconds, above 0.
SaveInterval save_interval(double save, double between_failures, double step);

/// The median of save_stall_seconds in a run's metrics.jsonl; nothing where no save stands in it. IoError.
std::optional<SaveCost> measured_save(const std::filesystem::path& metrics, int64_t bytes);
/// Where this machine's disk, on which the folder is or will be, takes that many bytes a second: a file of at most
/// 256 MiB is written there, with fsync, and removed. IoError.
SaveCost save_by_disk(const std::filesystem::path& output_dir, int64_t bytes);

/// A few lines for people.
std::string describe(const SaveCost& cost, const SaveInterval& interval, double between_failures, double step);
OrderedJson to_json(const SaveCost& cost, const SaveInterval& interval, double between_failures, double step);

}  // namespace nought
