// The RUN.json that `nought init` writes: the text, with comments, from a few answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nought {

enum class RunKind {
  pretrain,   // a small model from random weights
  continued,  // a model folder goes on with plain text
  finetune    // a model folder learns conversations or instructions
};

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
};

/// JSON with comments, which load_run_config() reads.
std::string run_file_text(const InitAnswers& answers);

/// `path`, which holds from the current directory, as it is written in `run_file`. What is not there stays as it is.
std::string relative_to_run_file(const std::string& path, const std::string& run_file);

}  // namespace nought
