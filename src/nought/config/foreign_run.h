// A run of another program as a RUN.json: what its settings are called here, and what has no counterpart.
//
// Each setting is judged by the reader of RUN.json itself, so that what is taken is accepted.
//
// Non-goals: the text of the file (cli/init_from.h); data sets of the hub, which are not fetched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/config/foreign_settings.h"

namespace nought {

struct TakenKey {
  std::string path;  // "training.learning_rate"
  Json value;        // paths hold from the current directory
  std::string from;  // what it was written as, and where: "lr, line 12"; "" if the user said it
};

/// What flags of `nought init` say in place of the file.
struct ForeignChoices {
  std::string model, output_dir, method;  // alignment.method
  std::vector<std::string> data;
  int64_t seq_length = 0, ranks = 0;  // 0: as the file has it
};

struct TranslatedRun {
  std::vector<TakenKey> taken;
  std::vector<std::string> missing;     // "FILE:LINE: key = value: why": what the run will not do
  std::vector<std::string> not_needed;  // likewise of what is so anyway
  std::string mistake;                  // why the keys together are refused; "" if they are not
  int64_t ranks = 1;

  /// The key of a path; null if it is not taken.
  const TakenKey* find(const std::string& path) const;
};

TranslatedRun translate_run(const ForeignSettings& settings, const ForeignChoices& choices);

}  // namespace nought
