// The RUN.json that `nought init` writes: the text, with comments, from a few answers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

enum class RunKind {
  quickstart,  // the same as pretrain, in small steps, on text of this machine
  pretrain,    // a small model from random weights
  continued,   // a model folder goes on with plain text
  finetune,    // a model folder learns conversations or instructions
  lora,        // the same, by an adapter: the model stays frozen
  qlora,       // the same, and the frozen model is kept in codes of 4 bits
  dpo,         // a model folder learns which of two answers was chosen
  reward,      // a model folder gets a head that scores answers, the chosen one of two higher
  grpo,        // a model folder learns from rewards of the answers that it writes itself
  rloo,        // the same, by what an answer is better than the others
  ppo,         // the same, with a value model beside
  gkd          // a model folder learns what a larger one says of answers
};
template <>
struct EnumNames<RunKind> {
  static constexpr std::array<std::pair<RunKind, std::string_view>, 12> value{{{RunKind::quickstart, "quickstart"},
                                                                               {RunKind::pretrain, "pretrain"},
                                                                               {RunKind::continued, "continue"},
                                                                               {RunKind::finetune, "finetune"},
                                                                               {RunKind::lora, "lora"},
                                                                               {RunKind::qlora, "qlora"},
                                                                               {RunKind::dpo, "dpo"},
                                                                               {RunKind::reward, "reward"},
                                                                               {RunKind::grpo, "grpo"},
                                                                               {RunKind::rloo, "rloo"},
                                                                               {RunKind::ppo, "ppo"},
                                                                               {RunKind::gkd, "gkd"}}};
};

/// Whether the model begins with random weights.
inline bool has_random_weights(RunKind kind) { return kind == RunKind::quickstart || kind == RunKind::pretrain; }
/// Whether an adapter is trained.
inline bool has_adapter(RunKind kind) { return kind == RunKind::lora || kind == RunKind::qlora; }
/// Whether the data is conversations.
inline bool learns_chats(RunKind kind) { return kind == RunKind::finetune || has_adapter(kind); }

/// Whether the data is pairs of answers.
inline bool learns_pairs(RunKind kind) { return kind == RunKind::dpo || kind == RunKind::reward; }

/// Whether the data is prompts, whose answers the model writes and rewards judge.
inline bool learns_rewards(RunKind kind) {
  return kind == RunKind::grpo || kind == RunKind::rloo || kind == RunKind::ppo;
}

/// Whether the data is judged answers, or prompts whose answers will be judged.
inline bool learns_answers(RunKind kind) { return learns_pairs(kind) || learns_rewards(kind) || kind == RunKind::gkd; }

struct InitAnswers {
  RunKind kind = RunKind::pretrain;
  std::string run_file = "run.json";
  std::string model;              // a folder's path, relative to run_file; pretrain has none
  std::vector<std::string> data;  // paths or globs, relative to run_file
  std::string tokenizer;          // pretrain: "bytes", or a path relative to run_file
  int64_t vocab_size = 256;       // pretrain: of the tokenizer
  int64_t seq_length = 512;       // tokens
  std::string output_dir = "out";
  int64_t ranks = 1;
  std::string reward_model = {};           // ppo: a folder that judges answers, relative to run_file; "": a rule does
  std::string teacher = {};                // gkd: likewise the folder of the teacher
  std::string targets = "\"all-linear\"";  // lora, qlora: JSON of target_modules

  // What the data and the tokenizer ask for; see suit_to_data().
  std::string chat_template = {};                    // finetune: "" = the model's own
  std::vector<std::string> add_special_tokens = {};  // the template's markers that the tokenizer lacks
  bool resize_vocab = false;                         // whether the model needs rows for them
  double validation_fraction = 0.02;                 // 0: there is too little data to keep some aside
  int64_t samples = 0;                               // how many sequences the data has; 0: not known
  bool length_given = false;                         // seq_length is the user's
};

/// JSON with comments, which load_run_config() reads.
std::string run_file_text(const InitAnswers& answers);

}  // namespace nought
