// RunReceipt: what a run writes to its receipt (checkpoint/receipt.h), and when: where it begins, after every
// training.receipt steps, and before each checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "nought/base/json.h"
#include "nought/checkpoint/receipt.h"
#include "nought/config/run_plan.h"
#include "nought/data/sampler.h"
#include "nought/train/observer.h"
#include "nought/train/run_data.h"
#include "nought/zero/sharded_model.h"

namespace nought {

class RunReceipt {
 public:
  /// All must outlive this object. with_frozen: see hash_weights().
  RunReceipt(const RunPlan& plan, const RunData& data, ShardedModel& model, bool with_frozen);

  /// The line where the run begins, or goes on from this checkpoint after so many steps. run, files: what the saver
  /// knows of it on rank 0. Collective, as are the next two.
  void begin(int64_t step, const Json& run, const Json& files, const std::filesystem::path& checkpoint);
  /// Adds a line if one is due; whether it did.
  bool after_step(const StepReport& report);
  /// The hash of the line of the step that was made last, which is added if it was not due. "" on ranks but the first.
  std::string line_of(int64_t step);

 private:
  void add(OrderedJson line);
  void add_step();
  /// The hash of the samples of a step, in their order; "" where they are no tokens of a text.
  std::string hash_samples(int64_t step) const;

  const RunPlan& plan_;
  ShardedModel& model_;
  bool with_frozen_, first_;
  std::optional<TrainSampler> samples_;  // of all ranks together, on rank 0
  std::optional<ReceiptWriter> writer_;  // on rank 0
  int64_t made_ = 0;                     // the step that was made last, and what it gave
  double loss_ = 0, grad_norm_ = 0;
  int64_t written_ = -1;  // the step of the last line
};

}  // namespace nought
