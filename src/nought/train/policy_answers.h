// PolicyAnswers: answers that a model wrote to prompts, what they are worth, and what is learned from them.
//
// Design goals: an answer is a function of the weights and of (seed, occasion, prompt, member), on any layout; all
// ranks know all answers, and each makes the batches of its part of them. Non-goals: which prompts there are, and when
// answers are written (train/policy_run.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/data/answer_data.h"
#include "nought/data/answer_packing.h"
#include "nought/engine/evaluation.h"
#include "nought/engine/sequence_pass.h"
#include "nought/io/safetensors.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/train/answer_judges.h"
#include "nought/train/policy_answer.h"
#include "nought/train/reference_model.h"
#include "nought/train/valued_answers.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// What writes answers, judges them, and is asked about them. All outlive what they are given to.
struct PolicySetup {
  const RunPlan& plan;
  ShardedModel& model;
  Decoder& decoder;
  Engine& engine;
  ReferenceModel* reference;  // null unless the loss or rewards ask it
  ValueModel* values;         // null unless one learns beside the policy
  const AnswerJudges& judges;
  const Tokenizer& tokenizer;
  const std::vector<int32_t>& stop_ids;  // they end answers
};

class PolicyAnswers {
 public:
  struct Options {
    BatchLayout layout = {};      // how a share is cut into batches
    int64_t share = 0;            // its answers, as many as the layout has room for, or less
    int64_t generations = 1;      // answers to a prompt, neighbours
    int64_t at_once = 64;         // how many a rank writes together
    bool whole_shares = false;    // a share has all micro-batches of the layout
    int64_t room = 0;             // the most tokens of a part of a share
    bool asks_policy = false;     // what it says of them is asked before anything is learned,
    bool is_learned_once = true;  // and nobody needs it later
  };
  PolicyAnswers(const PolicySetup& setup, std::shared_ptr<const AnswerData> prompts, const Options& options);

  /// Writes and judges answers to these prompts, which are whole shares. occasion: another one draws other answers. The
  /// decoder's objective is lost. Collective.
  void write(const std::vector<int64_t>& prompts, const std::string& occasion);
  /// Adds a line of JSON for each answer. On rank 0.
  void append_to(const std::filesystem::path& file, int64_t step) const;

  /// The answers and what is known of them, for restore().
  std::vector<std::pair<std::string, Tensor>> state() const;
  /// False, and nothing is known any more, if the file has not `count` answers that as many functions have judged.
  /// Collective.
  bool restore(const SafetensorsFile& file, int64_t count);

  /// Other answers belong to each share from now on, for this reason.
  void shuffle(const std::string& occasion);
  /// This rank's part of a share.
  std::vector<Batch> batches(int64_t share) const;
  /// Likewise for the value model, one after the other; and what its loss of the whole share is divided by.
  void each_value_batch(int64_t share, const std::function<void(const Batch&)>& take) const;
  double values(int64_t share) const;
  /// Null unless a value model learns beside the policy.
  const ValuedAnswers* valued() const { return valued_ ? &*valued_ : nullptr; }
  /// Likewise one after the other.
  void each_batch(int64_t share, const std::function<void(const Batch&)>& take) const;
  /// What the objective divides by, of the parts of `ranks` ranks from `first` on.
  double weight(int64_t share, int first, int ranks) const;
  int64_t tokens(int64_t share) const;
  /// The entropy that the share of top_entropy of the tokens of answers has, or more, as the policy is now. The
  /// decoder's objective is lost. Collective.
  double least_entropy(int64_t share) const;
  /// The tokens of answers alone.
  int64_t written_tokens(int64_t share) const;
  /// TRL's metrics.
  NamedNumbers metrics(int64_t share) const;
  /// The mean over tokens of what the policy that wrote them says less what the reference says; rewards are less by it.
  double divergence(int64_t share) const;

 private:
  using Answer = PolicyAnswer;
  struct Share {
    int64_t number = 0;
    AnswerPacking::Parts parts = {};
    int64_t row_tokens = 0;  // what each part is filled up to
  };
  const AlignmentPlan& alignment() const { return setup_.plan.alignment; }
  size_t per_share() const { return static_cast<size_t>(options_.share); }
  size_t functions() const { return setup_.judges.size(); }
  std::span<const Answer> of_share(int64_t share) const {
    return std::span(answers_).subspan(static_cast<size_t>(share) * per_share(), per_share());
  }
  /// The number of the answer that has this place in a share.
  int64_t number_of(int64_t share, int64_t place) const {
    return order_[static_cast<size_t>(share * options_.share + place)];
  }
  /// The numbers of a rank's micro-batch.
  std::vector<int64_t> numbers_of(const Share& share, int64_t micro) const;
  /// The tokens of every answer, on all ranks. Collective.
  std::vector<std::vector<int32_t>> draw(const std::vector<int64_t>& prompts, const std::string& occasion) const;
  /// [answers, functions]. Collective.
  std::vector<double> judge();
  /// Spreads the answers over ranks. order: which belong to the first share, and so on; empty: the first ones.
  void pack(std::vector<int64_t> order = {});
  /// What the policy that wrote the answers, and the reference, say of them. Collective.
  void ask_policy();
  void ask_reference();
  void ask_values();
  /// Computes advantages, where all is known that they are made of.
  void take_scores();
  /// Likewise of tokens, where a value model is asked.
  void take_worth(const std::vector<double>& totals);
  std::vector<int64_t> lengths() const;
  /// One batch after the other, of all answers, for passes that ask what a model says of them.
  void make_batches(std::span<const Share> shares, const AnswerBatchOptions& options,
                    const std::function<void(const Batch&)>& take) const;
  MakeBatches batches_of_places() const;
  /// The answers of a part of a share. known: what is known of their tokens is in the batch.
  Batch make_batch(const Share& share, int64_t micro, AnswerBatchOptions options, bool known) const;
  std::string text_of(const Answer& answer) const;
  bool ended(const Answer& answer) const;
  /// Whether anything is learned from it.
  bool counts(const Answer& answer) const { return !alignment().masks_truncated || ended(answer); }

  PolicySetup setup_;
  std::shared_ptr<const AnswerData> prompts_;
  Options options_;
  AnswerPacking packing_;
  std::vector<Answer> answers_;
  std::vector<int64_t> order_;  // their numbers by share
  std::vector<double> scores_;  // [answers, functions], NaN: not scored
  std::vector<Share> shares_;
  std::optional<ValuedAnswers> valued_;
};

}  // namespace nought
