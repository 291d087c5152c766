// DeepSpeed's monitors: write the scalars of each step to TensorBoard's event files and to one CSV file per scalar.
//
// The scalars have DeepSpeed's names (Train/Samples/train_loss, Train/Samples/lr), and their x axis counts samples; or
// those of transformers' callback (train/loss, train/learning_rate), and it counts steps.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "nought/io/append_file.h"
#include "nought/observe/event_file.h"
#include "nought/train/observer.h"

namespace nought {

enum class ScalarNames : uint8_t { deepspeed, transformers };

/// Calls add(tag, samples, value) for each scalar of each step.
class ScalarMonitor : public TrainObserver {
 public:
  explicit ScalarMonitor(int64_t samples_per_step, ScalarNames names = ScalarNames::deepspeed)
      : samples_per_step_(samples_per_step), names_(names) {}
  void on_step(const StepReport& report) final;
  void on_validation(int64_t step, const Evaluation& evaluation) final;

 protected:
  virtual void add(const std::string& tag, int64_t samples, double value) = 0;

 private:
  std::string tag_of(const char* phase, const std::string& name) const;

  int64_t samples_per_step_;
  ScalarNames names_;
};

class TensorBoardMonitor final : public ScalarMonitor {
 public:
  /// Writes an event file to `folder`. Each start of a run begins a new one.
  TensorBoardMonitor(std::filesystem::path folder, int64_t samples_per_step, ScalarNames names = ScalarNames::deepspeed)
      : ScalarMonitor(samples_per_step, names), folder_(std::move(folder)) {}
  void on_start(const RunSummary& summary) override;

 private:
  void add(const std::string& tag, int64_t samples, double value) override;

  std::filesystem::path folder_;
  std::optional<EventFile> file_;
};

class CsvMonitor final : public ScalarMonitor {
 public:
  /// Writes FOLDER/Train_Samples_train_loss.csv and so on. A resumed run keeps the rows of the steps before it.
  CsvMonitor(std::filesystem::path folder, int64_t samples_per_step)
      : ScalarMonitor(samples_per_step), folder_(std::move(folder)), samples_per_step_(samples_per_step) {}
  void on_start(const RunSummary& summary) override { kept_samples_ = summary.first_step * samples_per_step_; }

 private:
  void add(const std::string& tag, int64_t samples, double value) override;
  AppendFile open(const std::string& tag) const;

  std::filesystem::path folder_;
  int64_t samples_per_step_, kept_samples_ = 0;
  std::map<std::string, AppendFile> files_;
};

}  // namespace nought
