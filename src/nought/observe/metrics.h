// MetricsWriter: writes metrics.jsonl, one JSON object per step, validation, sample and checkpoint. Floats read back to
// the same bits. A file that is removed or moved in mid-run is written again, whole. A resumed run makes the steps
// behind its checkpoint again; the lines that the file had of them go to metrics.discarded.jsonl, so that a report can
// show them. Lines that a full disk does not take are kept in memory and written with the next one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "nought/io/append_file.h"
#include "nought/train/observer.h"

namespace nought {

inline constexpr std::string_view kMetricsFile = "metrics.jsonl", kDiscardedMetricsFile = "metrics.discarded.jsonl";

class MetricsWriter final : public TrainObserver {
 public:
  /// Opens FOLDER/metrics.jsonl when the run starts. A resumed run keeps the lines of the steps before it. IoError.
  explicit MetricsWriter(std::filesystem::path folder) : path_(std::move(folder) / kMetricsFile) {}
  /// Is told once that lines cannot be written, and again after they could.
  void set_note(std::function<void(const std::string&)> note) { note_ = std::move(note); }
  void on_start(const RunSummary& summary) override;
  void on_step(const StepReport& report) override;
  void on_checkpoint(const SaveOutcome& saved) override;
  void on_validation(int64_t step, const Evaluation& evaluation) override;
  void on_sample(int64_t step, const std::string& prompt, const std::string& text) override;
  void on_interrupt(int64_t step, const std::filesystem::path& checkpoint) override;
  void on_finish(const std::vector<RankMemory>& peaks, const std::filesystem::path& exported) override;

 private:
  /// Appends a line. IoError if that fails for the third line in a row.
  void write(const std::string& line);
  /// Writes what is kept in memory. IoError.
  void write_kept();

  std::filesystem::path path_;
  AppendFile file_;
  std::function<void(const std::string&)> note_;
  std::string kept_;  // lines that could not be written
  int failures_ = 0;  // in a row
};

}  // namespace nought
