// RunFolder: what the output folder of a run tells of it, read from its files alone: metrics.jsonl, the steps that were
// made again (metrics.discarded.jsonl) and run_record.json.
//
// Design goals: a run that goes on, was killed or has no record yet is read as far as it got; a broken line is named
// and the rest is kept. Non-goals: checkpoints and weights, which `nought info` shows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/json.h"

namespace nought {

/// A member of a JSON object; "" and 0 if there is no text or number of this name.
std::string text_in(const Json& object, const std::string& name);
double number_in(const Json& object, const std::string& name);

/// Numbers by step: a row for each line of a file, a column for each name that any of the lines has.
class StepTable {
 public:
  /// Adds a row of the line's numbers. What a line lacks, or has as null, is NaN.
  void add(int64_t step, const Json& line);

  size_t rows() const { return steps_.size(); }
  bool empty() const { return steps_.empty(); }
  const std::vector<int64_t>& steps() const { return steps_; }
  /// The names of the columns, in the order in which they came.
  std::vector<std::string> names() const;
  /// The column of that name, one number per row; null if no line has it.
  const std::vector<double>* find(std::string_view name) const;
  /// The last number of a column that is not NaN; NaN if there is none.
  double last(std::string_view name) const;

 private:
  std::vector<int64_t> steps_;
  std::vector<std::pair<std::string, std::vector<double>>> columns_;
};

/// What a run said of one step in words.
struct RunEvent {
  int64_t step = 0;
  std::string kind;  // "skipped", "not finite", "spike", "straggler", "resumed", "error"
  std::string text;
};

struct RunSample {
  int64_t step = 0;
  std::string prompt, text;
};

/// What became of a run.
enum class RunState : uint8_t {
  running,      // a process holds the folder
  finished,     // it made all of its steps
  interrupted,  // a signal ended it behind a checkpoint
  failed,       // an error ended it: see error()
  stopped,      // it was killed, or has no record that says more
};
std::string_view name_of(RunState state);

struct RunFolder {
  std::filesystem::path path;
  std::string name;  // the folder's, to tell several runs from each other
  StepTable steps, validations;
  std::vector<StepTable> discarded;  // steps behind a checkpoint that the run went back to, a table for each time
  std::vector<RunSample> samples;
  std::vector<RunEvent> events;       // by step
  Json rank_seconds;                  // of the last step that has it: the ranks' times (training.log_straggler)
  Json record = Json::object();       // run_record.json; empty if there is none
  std::vector<std::string> problems;  // lines that could not be read
  RunState state = RunState::stopped;
  std::string owner;  // of a run that goes on: the process that holds the folder

  /// A member of the record by its path, "/run/max_steps"; null if it is not there.
  const Json& fact(std::string_view path) const;
  /// A number and a text of the record; `otherwise` and "" if they are not there.
  double number(std::string_view path, double otherwise = 0) const;
  std::string text(std::string_view path) const;
  /// The settings as RUN.json has them, by the paths of their keys ("training.seed"), values as JSON.
  std::vector<std::pair<std::string, std::string>> settings() const;
};

/// ConfigError if there is no run in the folder; IoError if a file cannot be read or is of a newer version. last_bytes:
/// so much of the end of metrics.jsonl is read; 0: all.
RunFolder read_run_folder(const std::filesystem::path& folder, int64_t last_bytes = 0);
/// The folders in this order, each with a name of its own: that of the folder, with as many folders above as it takes.
std::vector<RunFolder> read_run_folders(const std::vector<std::string>& folders);

}  // namespace nought
