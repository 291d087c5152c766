// RunRecorder: writes run_record.json, what a run is and what became of it: its settings, every resolved value with its
// reason, the command, the machine, and memory and traffic as they were predicted beside what was measured.
//
// metrics.jsonl has what changes with the steps. Both files together are all that `nought report`, `compare` and `top`
// read. The record is written when a run starts and when it ends, whole each time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/config/run_plan.h"
#include "nought/io/file_format.h"
#include "nought/observe/progress.h"
#include "nought/train/observer.h"

namespace nought {

inline constexpr FileFormat kRunRecordFormat{"nought-run-record", 1};
inline constexpr std::string_view kRunRecordFile = "run_record.json";

/// What is known of a run before it starts.
struct RunBeginning {
  std::vector<std::string> arguments;  // the command line, without the program's name
  Json settings;                       // RUN.json as it was written, with the overrides of the command line
  OrderedJson machine;                 // of rank 0
};

class RunRecorder final : public TrainObserver {
 public:
  /// Writes to plan.output_dir when the run starts. A resumed run keeps the list of earlier starts. IoError.
  RunRecorder(const RunPlan& plan, RunBeginning beginning, const RunPrediction& predicted);
  void on_start(const RunSummary& summary) override;
  void on_collectives(const std::vector<CollectiveTotal>& totals) override;
  void on_interrupt(int64_t step, const std::filesystem::path& checkpoint) override;
  void on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path& exported) override;
  /// The run ends with this error. Nothing is written if it had not started, and no error comes of it.
  void on_failure(const std::string& message) noexcept;

 private:
  void end(std::string_view status);

  std::filesystem::path path_;
  OrderedJson record_;
  bool started_ = false;
};

}  // namespace nought
