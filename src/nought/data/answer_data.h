// AnswerData: the tokens of prompts and of the answers to them, two a pair: the first was chosen, and the second
// rejected; or the first was judged, and the second is an answer to another prompt. Texts with labels are pairs whose
// second has no tokens, and so are prompts that wait for answers.
//
// Design goals: the rules of TRL for where an answer begins, for its end and for what is too long; and what is left out
// is counted and said. Non-goals: the order in which a run reads them (answer_sampler.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nought/data/answer_batch.h"
#include "nought/data/dataset.h"
#include "nought/nn/score_loss.h"

namespace nought {

/// What the texts of the data are to each other.
enum class AnswerForm : uint8_t {
  pairs,     // two answers to a prompt: the first was chosen, and the second rejected
  labelled,  // an answer that was judged, and its prompt with the answer of the one before it
  rewards,   // pairs whose texts are scored whole
  scored,    // a text, and what a classifier should say of it; the second is empty
  prompts,   // a prompt, which has no answer yet; the second is empty
  completed  // a prompt with its answer; the second is empty
};

struct AnswerDataOptions {
  AnswerForm form = AnswerForm::pairs;
  /// Tokens of a prompt with an answer: what is longer is cut at its end. prompts: of a prompt, and longer ones are
  /// left out.
  int64_t max_length = 1024;
  /// completed: tokens of a prompt; longer ones are left out.
  int64_t max_prompt = INT64_MAX;
  /// labelled: partners are those of blocks of so many neighbours; the first has the answer of the last.
  int64_t block = 1;
  /// scored: what may be asked of the classifier; no labels: texts need not say it, and nobody reads it.
  ProblemType problem = ProblemType::single_label_classification;
  int64_t labels = 0;
  CorpusOptions corpus = {};  // how files are read
};

/// What was left out, or cut.
struct AnswerCounts {
  int64_t cut = 0;           // answers that were longer
  int64_t no_room = 0;       // pairs whose prompt alone is as long as max_length, or longer than max_prompt
  int64_t too_long = 0;      // rewards: pairs of which a text is longer than max_length
  int64_t same = 0;          // pairs whose answers have the same tokens
  int64_t torn_prompts = 0;  // pairs whose prompt's last tokens are others once an answer follows
};

/// Which answers of a pair are meant.
struct AnswerSides {
  bool first = true, second = true;
};

class AnswerData {
 public:
  /// Reads and encodes files, of each at least the first `most_bytes`. IoError, and ConfigError, which names file and
  /// line; ConfigError also for token files and if no pair is left.
  static AnswerData read(std::span<const DataSource> sources, const Tokenizer& tokenizer,
                         const AnswerDataOptions& options, int64_t most_bytes = INT64_MAX);

  int64_t num_pairs() const { return num_answers() / 2; }
  int64_t num_answers() const { return static_cast<int64_t>(begins_.size()); }
  /// The tokens of all answers with their prompts, and those of answers alone.
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }
  int64_t num_targets() const;
  /// Answers 2i and 2i + 1 are those of pair i. Without number and reference.
  JudgedAnswer answer(int64_t index) const;
  /// The tokens of the answers of a pair, with their prompts.
  int64_t tokens_of_pair(int64_t pair, AnswerSides sides = {}) const;
  /// Whether answers are judged one by one.
  bool has_labels() const { return form_ == AnswerForm::labelled; }
  AnswerForm form() const { return form_; }
  /// prompts: the record of a pair, as JSON.
  const std::string& columns(int64_t pair) const { return columns_.at(static_cast<size_t>(pair)); }
  /// The answers that a loss is of: those with labels have partners that it is not of.
  AnswerSides trained() const { return {.second = form_ == AnswerForm::pairs || form_ == AnswerForm::rewards}; }
  const AnswerCounts& counts() const { return counts_; }
  std::vector<SourceShare> shares() const;
  /// Splits off the last `fraction`, in [0, 1), of every source, in whole pairs.
  std::pair<AnswerData, AnswerData> split_tail(double fraction) const;
  uint64_t fingerprint() const;
  /// Lines for the user: what was left out or cut.
  std::vector<std::string> notes() const;

 private:
  class Encoder;
  struct Source {
    int64_t pairs = 0;
    double weight = 0;
  };
  void append(std::span<const int32_t> ids, int64_t begin);
  /// Adds the pairs of another one behind those of the last source.
  void append(const AnswerData& from, Interval pairs);
  void add(const std::filesystem::path& file, const Tokenizer& tokenizer, const AnswerDataOptions& options,
           int64_t most_bytes);

  std::vector<int32_t> ids_;
  std::vector<int64_t> ends_;    // where the tokens of each answer end
  std::vector<int64_t> begins_;  // where each answer begins within its tokens
  std::vector<Source> sources_;
  int64_t max_length_ = 0;
  AnswerCounts counts_;
  AnswerForm form_ = AnswerForm::pairs;
  std::vector<uint8_t> desirable_;           // the label of each pair's first answer; empty without labels
  std::vector<std::string> columns_;         // the records of prompts, one for each pair; else empty
  std::vector<std::vector<double>> wanted_;  // BatchSequence::wanted of each pair's first text; empty if no form has it
};

}  // namespace nought
