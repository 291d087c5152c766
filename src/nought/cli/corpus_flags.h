// The options that the commands of `nought data` have in common which read a corpus and write another.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/corpus/clean.h"
#include "nought/corpus/corpus_folder.h"

namespace nought {

struct CorpusFlags {
  std::vector<std::string> inputs;
  std::string output, rejected, shard_size = "256MiB";
  DocumentOptions documents;
  int threads = 1;
  bool overwrite = false;

  /// The folders, checked. ConfigError.
  CorpusFolderOptions folders() const;
  /// The input files. ConfigError if one lies in an output folder. IoError.
  std::vector<std::filesystem::path> files() const;
  /// What decides about the result, besides the inputs and the command's own options.
  Json settings(const std::string& command) const;
};

/// INPUT, --field, --separator and --threads.
void add_input_options(CLI::App& command, CorpusFlags& flags);
/// --output, --rejected, --shard-size and --overwrite.
void add_output_options(CLI::App& command, CorpusFlags& flags);

/// Runs clean() with a line that says how far it is, prints the table of its report, and writes the report beside the
/// folder.
void clean_and_report(const CleanOptions& options);

/// Writes what was counted beside a folder, DIR.json, and returns the path. IoError.
std::filesystem::path write_report(const std::filesystem::path& folder, const Json& report);

}  // namespace nought
