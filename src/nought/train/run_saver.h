// RunSaver: what a run writes to its output folder: checkpoints, of which it keeps the last ones and the best, and the
// weights in the end. Checkpoints are written beside the training where the plan says so. One that cannot be written is
// told and not missed, but for the last one of a run and the third in a row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "nought/base/json.h"
#include "nought/checkpoint/best_model.h"
#include "nought/checkpoint/checkpoint.h"
#include "nought/checkpoint/export_record.h"
#include "nought/config/run_plan.h"
#include "nought/data/step_source.h"
#include "nought/engine/engine.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer_export.h"
#include "nought/train/adapter_run.h"
#include "nought/train/policy_run.h"
#include "nought/train/run_data.h"
#include "nought/train/run_receipt.h"
#include "nought/train/run_steps.h"
#include "nought/train/value_model.h"

namespace nought {

class RunSaver {
 public:
  /// All must outlive this object. adapter: null unless the run trains one. policy: null unless it learns from rewards;
  /// values: unless a value model learns beside.
  RunSaver(const RunPlan& plan, Communicator& world, const RunData& data, const Tokenizer& tokenizer,
           const StepSource& source, Decoder& decoder, ShardedModel& model, Engine& engine, RunSteps& steps,
           const AdapterRun* adapter, const PolicyRun* policy, ValueModel* values);

  /// Hashes what the run reads, on rank 0 (checkpoint/run_files.h).
  void hash_files();
  /// What must be the same for a resumed run to continue as if it had never stopped.
  Json fingerprint() const;
  /// Lines for the user: what of it, and of the files that the run reads, is other than it was in a checkpoint.
  std::vector<std::string> describe_changes(const CheckpointInfo& then) const;
  /// The run continues `checkpoint`, of this run or of another one.
  void resume(const std::filesystem::path& checkpoint, const CheckpointInfo& info);

  /// Is told how each save ends, on all ranks.
  using Told = std::function<void(const SaveOutcome&)>;
  void tell(Told told) { told_ = std::move(told); }
  /// Begins the run's receipt, or goes on with it from this checkpoint, if the plan asks for one. Collective.
  void begin_receipt(const std::filesystem::path& checkpoint);
  /// Saves a checkpoint, and removes those beyond save_total_limit; where that happens beside the training, begins to,
  /// once the save before it has ended. validated: it will not be validated again. last: no step follows; then this
  /// waits, and a failure is an IoError. Collective, as are the next two.
  void save(bool validated, bool last);
  /// After a step: adds a line to the receipt if one is due, which it returns, and looks whether a save under way has
  /// come further.
  bool go_on(const StepReport& report);
  /// Waits for a save under way.
  void finish();
  void remove_old();
  /// After so many steps last; -1: not yet.
  int64_t saved() const { return saved_; }
  const std::filesystem::path& last_saved() const { return last_saved_; }

  /// The checkpoint of this step has been validated: it may be the best so far.
  void compare(int64_t step, const Evaluation& evaluation);
  /// The best checkpoint so far, if the plan compares them.
  const std::optional<BestModel>& best() const { return best_; }
  /// Loads the weights of the best checkpoint, unless they are the present ones. Returns what to say of those that are
  /// there now. IoError if it is gone. Collective.
  ExportRecord load_best();
  /// Writes the weights. writes: false on ranks of workers that leave it to the first one. Collective.
  void export_weights(const ExportRecord& record, bool writes);

 private:
  /// What exports and checkpoints say of the model and its tokenizer.
  ModelConfig exported_config() const;
  TokenizerExport exported_tokenizer() const;
  Json about() const;
  /// What a checkpoint has beside its states.
  void write_beside(const std::filesystem::path& folder, int64_t step) const;
  CheckpointInfo info(bool validated);
  /// Saves the value model aside, for write_beside() to put in its place. What it failed with, or "".
  std::string save_values();
  /// A save has ended. IoError if it is missed.
  void end(const SaveOutcome& outcome, bool last);

  const RunPlan& plan_;
  Communicator& world_;
  const RunData& data_;
  const Tokenizer& tokenizer_;
  const StepSource& source_;
  Decoder& decoder_;
  ShardedModel& model_;
  Engine& engine_;
  RunSteps& steps_;
  const AdapterRun* adapter_;
  const PolicyRun* policy_;
  ValueModel* values_;
  CheckpointWriter writer_;
  Told told_;
  Json files_;
  std::optional<RunReceipt> receipt_;
  std::string link_;  // the hash of the line of the checkpoint that was saved last; "": there is none
  std::optional<BestModel> best_, best_before_;  // best_before_: but for the checkpoint that was compared last
  int failures_ = 0;                             // in a row
  int64_t saved_ = -1;
  std::filesystem::path last_saved_;
};

}  // namespace nought
