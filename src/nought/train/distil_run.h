// DistilRun: what a run that learns from a teacher (GKD, arXiv 2306.13649) has beside others: answers of the data, or
// of the model itself, and what the teacher says of them.
//
// Design goals: whether a step's answers are the model's own is a function of (seed, step), and they are one of the
// weights and of (seed, step, prompt), on any layout, so that a resumed run needs to know its step only. Non-goals:
// answers that the teacher writes (sequence-level distillation is training on its texts).
#pragma once

#include <memory>
#include <vector>

#include "nought/data/answer_packing.h"
#include "nought/data/step_source.h"
#include "nought/engine/evaluation.h"
#include "nought/train/policy_run.h"
#include "nought/train/run_data.h"
#include "nought/train/teacher.h"

namespace nought {

/// The most tokens of a prompt with an answer, of the data or of the model, of those that are held out, too.
int64_t longest_imitated(const RunData& data, const AlignmentPlan& plan);

class DistilRun final : public StepSource {
 public:
  /// Loads the teacher, and makes the steps of the decoder learn from it. stop_ids: the tokens that end an answer. All
  /// must outlive this object. ConfigError if the data has fewer answers than a step takes. Collective.
  DistilRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model, Decoder& decoder,
            Engine& engine, std::vector<int32_t> stop_ids);

  /// Before step number `step`, counted from 0: writes its answers, if it learns from its own, and asks the teacher.
  /// Collective.
  void begin_step(int64_t step);
  /// After the step that began last: forgets what the teacher said, and returns the numbers of its answers.
  NamedNumbers end_step();
  /// The loss of the answers that are held out. Collective.
  Evaluation validate();

  /// The next are of the step that began last.
  std::vector<Batch> batches(int64_t step, Memory& memory) const override;
  double weight_of_step(int64_t step) const override;
  double weight_of_step(int64_t step, int first, int ranks) const override;
  /// The most that a step may have, if it is another one.
  int64_t tokens_of_step(int64_t step) const override;
  int64_t steps_for(double epochs) const override { return order_.steps_for(epochs); }
  int64_t num_samples() const override { return data_->num_pairs(); }
  int64_t num_tokens() const override { return data_->num_tokens(); }
  uint64_t fingerprint() const override { return data_->fingerprint(); }

 private:
  struct Answer {
    std::vector<int32_t> ids;  // with its prompt
    int64_t begin = 0;         // where it begins

    int64_t written() const { return std::ssize(ids) - begin; }
  };
  /// Answers that are spread over ranks.
  struct Spread {
    AnswerPacking packing;
    std::vector<Answer> answers = {};
    AnswerPacking::Parts parts = {};
    int64_t row_tokens = 0;  // what each part is filled up to

    double targets(int first, int ranks) const;
  };
  /// Whether the model writes the answers of a step itself.
  bool writes_itself(int64_t step) const;
  static Answer answer_of(const AnswerData& data, int64_t pair);
  std::vector<Answer> own_answers(const std::vector<int64_t>& pairs, int64_t step);
  /// room: the most tokens of a part.
  static Spread spread(const BatchLayout& layout, bool whole, std::vector<Answer> answers, int64_t room);
  Batch make_batch(const Spread& spread, int64_t micro) const;
  void require_step(int64_t step) const { require(step == step_, "the answers are of another step"); }

  const RunPlan& plan_;
  std::shared_ptr<const AnswerData> data_, held_out_;  // held_out_: null, nobody validates
  BatchLayout layout_;
  ShardedModel& model_;
  Decoder& decoder_;
  Engine& engine_;
  Teacher teacher_;
  const std::vector<int32_t> stop_ids_;
  PromptOrder order_;
  int64_t longest_;
  int64_t step_ = -1;
  bool own_ = false;  // its answers are
  Spread step_answers_;
  std::vector<Batch> batches_;
};

}  // namespace nought
