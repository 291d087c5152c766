// DryRunRank: one rank of a run that is laid out somehow, on kernels that compute nothing and without the other
// ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nought/engine/engine.h"
#include "nought/models/decoder.h"
#include "nought/plan/dry_run.h"
#include "nought/plan/predict.h"
#include "nought/zero/local_steps.h"
#include "nought/zero/rotating_servers.h"

namespace nought {

/// The dry run has so many micro-batches of a step. Two more than are in flight at once: further ones repeat what the
/// last of them did, and are counted alone. Of a pipeline's micro-batches all are.
int64_t dry_run_micro_batches(const Layout& layout);
/// What its ranks run.
Schedules schedules_of(const Layout& layout, const Mesh& mesh);

/// The ranks that have parts of the same sequences: the first with as many tokens as any.
int with_most_tokens(const Layout& layout);

/// A micro-batch of so many sequences, or pairs of answers, as a run allocates it; its values are nobody's business.
Batch empty_batch_of(const Layout& layout, int64_t rows, Memory& memory);
/// What the model says of a micro-batch of answers. The decoder's objective is lost.
void ask_of_answers(Engine& engine, ShardedModel& model, Decoder& decoder, Layout layout);
/// The answers that all ranks write at once.
int64_t rollout_answers(const Layout& layout);
/// What ranks tell each other of the answers that they have written, of their scores, and of a step.
void exchange_answers(ShardedModel& model, const Layout& layout);

struct DryRunRank;

/// Sees what a rank does in a dry run (prove/dry_runs).
class DryRunWatch {
 public:
  virtual ~DryRunWatch() = default;
  /// The communicator that the rank takes for one that was made for it. ranks: of the group, by their numbers in the
  /// job.
  virtual std::unique_ptr<Communicator> watched(std::unique_ptr<Communicator> group, const std::vector<int>& ranks) = 0;
  /// What the rank begins with.
  virtual const StateSource& states() = 0;
  /// A part of the run begins: "load", "step", "validation", "saving", "sample", "end". What came before has ended.
  virtual void enters(std::string_view part, DryRunRank& rank) = 0;
};

/// Which rank it is, and what routers do.
struct DryRunPlace {
  int place = 0;                       // on the pipeline axis
  std::optional<int> sharer = {};      // among the ranks that share out states; not given: the first with most tokens
  OperationTimes* times = nullptr;     // says what operations take, if that is asked
  bool gets_all_experts_rows = false;  // see ChosenExperts: this rank is favoured
  std::optional<int> number = {};      // the rank's number in the job; not given: the two above say it
  DryRunWatch* watch = nullptr;        // sees it, and lets it load and make one more step behind everything else

  int rank(const Layout& layout) const;
};

struct DryRunRank {
  DryRunRank(const ModelConfig& config, const Layout& layout, const DryRunPlace& at);
  DryRunRank(const ModelConfig& config, const Layout& layout, int place)
      : DryRunRank(config, layout, DryRunPlace{.place = place}) {}
  DryRunRank(const DryRunRank&) = delete;
  DryRunRank& operator=(const DryRunRank&) = delete;

  CountedWork work = {};  // what the kernels were asked for so far
  Context context;
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<Workers> workers;  // null unless they make local steps
  Mesh mesh;                         // of the worker, or of all ranks
  Decoder decoder;
  ShardedModel model;
  std::optional<LocalSteps> local;
  std::unique_ptr<RotatingServers> servers;

  /// As if the model had been loaded.
  void begin();
  /// One step, without synchronizations.
  void step(Engine& engine, std::span<const Batch> batches);
  /// All fragments synchronize, with a step between where they travel overlapped with steps. Returns what all
  /// synchronizations send, without these steps.
  Traffic synchronize(const std::function<void()>& step_between);
  /// What was sent in each group so far.
  std::vector<Mesh::GroupTraffic> traffic_by_axes() const;

 private:
  Layout layout_;
};

/// A model beside that of a rank that is asked in each step (train/reference_model.h, train/reward_model.h,
/// train/teacher.h).
class DryRunReference {
 public:
  DryRunReference(const ModelConfig& config, const Layout& layout, const Freezing& freezing, DryRunRank& rank);
  /// What it says of a micro-batch.
  void pass(const Schedules& schedules);
  /// What a teacher adds to batches; and the loss of what learns from it.
  void teach(std::span<Batch> batches);
  std::shared_ptr<const Objective> objective();

 private:
  const Layout& layout_;
  const Context& context_;
  Decoder decoder_;
  ShardedModel model_;
};

/// A model beside that of a rank that is trained in each step (train/value_model.h).
class DryRunValueModel {
 public:
  DryRunValueModel(const ModelConfig& config, const Layout& layout, DryRunRank& rank, const Schedules& schedules);
  /// What it says of a micro-batch of answers.
  void ask();
  /// A step of so many micro-batches.
  void step(int64_t micro_batches);
  /// A micro-batch of a validation.
  void evaluate();
  /// A checkpoint or an export puts the parts of a Unit's parameters together.
  void gather();

 private:
  Batch batch(int64_t rows) const;

  const Layout& layout_;
  const Context& context_;
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
};

}  // namespace nought
