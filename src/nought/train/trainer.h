// Trainer: carries out a run's plan: builds the model, loads weights or a checkpoint, opens the data, makes the steps,
// saves checkpoints and exports the weights. It has 50 members because it owns all that a run consists of, 26 objects;
// what they do is theirs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nought/checkpoint/checkpoint.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/engine/engine.h"
#include "nought/measure/peak.h"
#include "nought/models/decoder.h"
#include "nought/train/distil_run.h"
#include "nought/train/observer.h"
#include "nought/train/pair_run.h"
#include "nought/train/policy_run.h"
#include "nought/train/run_calendar.h"
#include "nought/train/run_data.h"
#include "nought/train/run_saver.h"
#include "nought/train/run_steps.h"
#include "nought/train/step_recorder.h"
#include "nought/train/value_model.h"

namespace nought {

enum class StartMode : uint8_t {
  fresh,             // begins a run; the output folder must hold no checkpoints
  overwrite,         // begins a run; checkpoints and metrics of an earlier one are removed
  resume,            // continues from resume_point()
  resume_overwrite,  // the same; the output folder's checkpoints that are none of this run's are removed
  rewind             // the same; they are set aside
};
inline bool resumes(StartMode mode) { return mode != StartMode::fresh && mode != StartMode::overwrite; }

/// The config of the plan's model: the inline one, or that of the model's folder.
ModelConfig model_config_of(const RunPlan& plan);
/// The plan of a run that begins or continues on this machine. With training.bf16 = "auto", a run that continues keeps
/// the dtype of its checkpoint; for any other run the CPU decides.
RunPlan resolve_run(const RunConfig& config, int world_size, StartMode mode);

class Trainer {
 public:
  /// Builds and loads everything. Collective. Observers are called on rank 0 only.
  Trainer(const RunPlan& plan, StartMode mode, Communicator& world, const Context& context,
          std::vector<TrainObserver*> observers);
  /// `signal` says which signal asks this rank to stop, or 0. Once it has named one, it does not go back. Every rank
  /// gives one, or none does. It is asked in each step, and all ranks stop after the same step, if any of them is
  /// asked.
  void stop_on(std::function<int()> signal);
  /// make_steps(), and finish() unless a signal ended it. Returns that signal, or 0. Collective.
  int run();
  /// Makes the steps up to max_steps and saves the last. Returns 0, or the signal that ended it: then the last step
  /// made is saved, whatever the plan says, and a validation that was due waits for the run that resumes. A validation,
  /// sample or save that has begun is finished before. Collective.
  int make_steps();
  /// The last validation, and the export of the weights. All is saved before, so nothing is lost if this is cut: the
  /// run that resumes does it again. Collective.
  void finish();

  /// Steps made so far, those whose update was skipped included.
  int64_t steps_made() const { return steps_.made(); }

 private:
  void load();
  /// Finds what the reference model says of the pairs. load: brings the reference into the model, if it is asked.
  void find_reference(const std::function<void()>& load);
  /// Loads the reference's weights.
  void load_reference(ShardedModel& model);
  /// Loads what a run begins with. Returns a line that says where it is from.
  std::string load_weights(ShardedModel& model) const;
  /// Loads it into the model that is trained, and tells the user about it.
  void load_start();
  /// The model beside the one that is trained, if the run asks one.
  std::unique_ptr<ReferenceModel> make_reference();
  /// The ranks of all workers, or of the mesh.
  Communicator& deciders() { return workers_ ? world_ : mesh_.group(Group::decisions); }
  /// Loads what a run of another program left.
  void take_up_foreign();
  /// What a run that resumes knows beside its weights; checkpoints that are not its own go, if the mode says so.
  void take_up(const CheckpointInfo& info);
  /// Measures the peak that MFU refers to. Collective.
  void measure_machine();
  RunSummary summary(int64_t first_step) const;
  /// Makes a step. If the plan asks for it, records trace events and adds what they tell to the report.
  StepReport step(double flops_per_token);
  /// Compares the replicas, unless that was done after this step.
  void check_replicas();
  /// Saves, or begins to. last: no step follows.
  void save(bool last);
  RunCalendar calendar() const { return {plan_, source_.num_samples()}; }
  void validate();
  void sample();
  /// Validates, samples and saves, as it is due after a step. True if a rank was asked to stop meanwhile.
  bool do_what_is_due(int64_t step);
  void export_weights();
  /// The signal that a rank was asked by, the same on all ranks; 0: none. Collective, if there is a stop_on().
  int agreed_signal();
  /// Saves and tells. Returns the signal.
  int interrupt();
  template <class F>
  void tell(F&& f) {
    if (world_.rank() == 0)
      for (TrainObserver* observer : observers_) f(*observer);
  }

  RunPlan plan_;
  StartMode mode_;
  std::unique_ptr<Workers> workers_;  // null unless they make local steps
  Mesh mesh_;                         // of this worker, or of all ranks
  Communicator& world_;
  Context context_;
  std::vector<TrainObserver*> observers_;
  std::unique_ptr<Tokenizer> tokenizer_;
  RunData data_;
  std::unique_ptr<StepSource> tokens_;  // null where pairs of answers are read
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
  std::unique_ptr<AdapterRun> adapter_;        // null unless the run trains one
  std::unique_ptr<PairRun> pairs_;             // null unless the run learns from pairs
  std::unique_ptr<ReferenceModel> reference_;  // null unless a model beside is asked in each step
  std::unique_ptr<AnswerJudges> judges_;       // null unless it learns from rewards of its own answers
  std::unique_ptr<ValueModel> values_;         // null unless it learns beside the model (ppo)
  std::unique_ptr<PolicyRun> policy_;          // null unless it learns from rewards of its own answers
  std::unique_ptr<DistilRun> distil_;          // null unless it learns from a teacher
  const StepSource& source_;
  RunSteps steps_;
  StepRecorder recorder_;
  RunSaver saver_;
  std::optional<MatrixPeak> peak_;  // set by measure_machine()
  std::string start_;
  std::function<int()> stop_signal_;
  int64_t validated_ = -1;           // after so many steps last; -1: not yet
  int64_t compared_ = -1;            // replicas were, the same
  bool validation_put_off_ = false;  // a signal ended the run before its last validation
  std::vector<std::string> notes_;
};

}  // namespace nought
