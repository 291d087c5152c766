// Whether the weights that a run exported are those of which its receipt has a hash.
#pragma once

#include <filesystem>
#include <string>

#include "nought/checkpoint/receipt_check.h"

namespace nought {

struct ExportComparison {
  bool compared = false;
  std::string note = {};  // why not; or how they differ, "" if they do not
};

/// Reads all weights in the folder. Those in 16 bits are compared with the checkpoint of their step, rounded as they
/// are, if it is there. IoError for files that are damaged.
ExportComparison compare_export(const Receipt& receipt, const std::filesystem::path& folder);

}  // namespace nought
