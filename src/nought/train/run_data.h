// RunData: the datasets of a plan: the one that a run trains on, and the one that it validates with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/data/answer_data.h"
#include "nought/data/dataset.h"
#include "nought/models/config.h"

namespace nought {

struct RunData {
  TokenDataset training;
  std::optional<TokenDataset> validation = {};
  /// What a run that learns from judged answers trains on and validates with; the other datasets are empty then.
  std::shared_ptr<const AnswerData> pairs = {}, validation_pairs = {};
  int64_t targets = 0;                  // of the samples to train on; all tokens where the data masks none
  std::vector<std::string> notes = {};  // of files that are not plain text, and of much that is not trained
  std::vector<int32_t> stop_ids = {};   // that end an answer, the template's own before the one that ends a document
  std::string chat_template = {};       // see TokenizerExport
  std::vector<std::pair<std::string, std::string>> specials = {};  // the same
};

/// The tokenizer of a plan, with the tokens that it adds.
std::unique_ptr<Tokenizer> tokenizer_of(const DataPlan& plan);
/// Encodes text files and maps token files. IoError and ConfigError name the file. ConfigError also if no token would
/// be trained.
RunData open_data(const RunPlan& run, const Tokenizer& tokenizer);
/// The tokens that end an answer: of the chat template, of the model, and what ends documents.
std::vector<int32_t> ends_of_answers(const RunPlan& plan, const RunData& data, const ModelConfig& config,
                                     const Tokenizer& tokenizer);
/// "2.87K tokens (tokenizer bytes), 38% of them trained", or nothing of the share if all are.
std::string describe_tokens(int64_t tokens, int64_t trained, std::string_view tokenizer);
/// What look_at_data() has seen.
struct DataLook {
  int64_t files = 0, text_files = 0;
  int64_t text_bytes = 0, read_bytes = 0;  // bytes of all text files, and how many of them were read
  std::optional<RunData> whole = {};       // the data, if all of it was read
  double trained = 1;                      // else the share of what was read that is trained,
  int64_t about_samples = 0;               // and as many samples to train on as its tokens let expect
  std::vector<std::string> notes = {};     // as those of RunData

  /// "3 files, 11.7M tokens (tokenizer bytes), 38% of them trained, 45761 samples of 256 tokens", or what was read of
  /// how much.
  std::string describe(std::string_view tokenizer) const;
};
/// Opens every file, and encodes the text if it has at most `text_bytes` in all; else what comes first in the files,
/// about as much together. Throws what open_data() would throw of what is read.
DataLook look_at_data(const RunPlan& run, const Tokenizer& tokenizer, int64_t text_bytes);

}  // namespace nought
