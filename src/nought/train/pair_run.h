// PairRun: what a run that learns from pairs of answers has beside others: the pairs, what the reference model says of
// them, the objective, and the numbers that tell how far the answers are apart.
//
// Design goals: the reference is the model that the run begins with, or alignment.ref_model, so its log-probabilities
// are numbers that never change: they are computed once, before the first step, on the memory of the model that is
// trained, and kept in a file. Non-goals: a reference model beside the trained one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/data/answer_sampler.h"
#include "nought/engine/evaluation.h"
#include "nought/models/decoder.h"
#include "nought/nn/sequence_objective.h"
#include "nought/train/run_data.h"

namespace nought {

class Engine;

/// In the output folder: see PairRun::find_reference().
inline constexpr const char* kReferenceFile = "reference_logps.safetensors";

/// How a rank packs the pairs of a plan, for the model of model_config_of() that plan.
AnswerSamplerOptions sampler_options(const RunPlan& plan, const ModelConfig& model, const BatchLayout& layout);

class PairRun {
 public:
  /// The data has pairs to train on, to validate with, or both. All must outlive this object.
  PairRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model, Decoder& decoder,
          Engine& engine);

  /// Error without pairs to train on.
  AnswerSampler& source();
  /// Takes the reference's log-probabilities of what the steps up to `steps` and the validations read from `file`, if
  /// it is of this data and of the reference that `key` names; computes those that are missing with the weights that
  /// `load` loads, and writes the file. Nothing is loaded if none is missing. Collective; nothing without a reference.
  /// Returns a line for the user, or "".
  std::string find_reference(const std::filesystem::path& file, const std::string& key, int64_t steps,
                             const std::function<void()>& load);
  /// Makes the steps that follow learn from pairs.
  void begin();

  /// Before step number `step`, counted from 0: forgets the sums of the one before, and finds how far model and
  /// reference are apart, where the loss asks for that. Collective.
  void begin_step(int64_t step);
  /// After step number `step`, counted from 0: TRL's metrics of its pairs, means over all ranks'. Collective.
  NamedNumbers metrics(int64_t step);
  /// Evaluates the pairs that are kept for validation. Collective.
  Evaluation validate();
  /// The log-probabilities of the answers that are kept for validation, or the scores of texts: see SequenceSums, two
  /// sequences a pair. loss: gets the mean loss. Collective.
  SequenceSums validation_sums(double& loss);

 private:
  std::shared_ptr<const Objective> objective(std::shared_ptr<SequenceSums> sums) const;
  /// The log-probabilities of the answers that lack them among those of `pairs`. Collective.
  void complete(const AnswerSampler& source, const std::vector<int64_t>& pairs, std::vector<double>& reference);
  /// The log-probabilities of answers of these pairs, two numbers for each. Collective.
  SequenceSums sums_of(const AnswerSampler& source, std::span<const int64_t> pairs, AnswerSides sides);
  /// Sets kl_ to the mean log-ratio of the partners of answers, at least 0, where the loss asks for it. Collective.
  void find_kl(const AnswerSampler& source, std::span<const int64_t> pairs);
  /// Numbers of a pair in SequenceSums.
  int64_t sums_per_pair() const;
  NamedNumbers label_metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                                const SequenceSums& sums) const;
  NamedNumbers score_metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                                const SequenceSums& scores) const;
  NamedNumbers metrics_of(const AnswerSampler& source, const std::vector<int64_t>& pairs,
                          const SequenceSums& sums) const;

  const RunPlan& plan_;
  ShardedModel& model_;
  Decoder& decoder_;
  Engine& engine_;
  std::unique_ptr<AnswerSampler> training_, validation_;  // null without such pairs
  std::shared_ptr<SequenceSums> sums_;                    // what the model says of the answers of a step
  std::shared_ptr<double> kl_ = std::make_shared<double>(0.0);
};

}  // namespace nought
