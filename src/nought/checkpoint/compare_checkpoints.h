// compare_checkpoints(): whether two checkpoints hold the same bits, by the checksums in their manifests: no state is
// read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace nought {

struct CheckpointDifference {
  std::optional<bool> equal = {};  // nothing: other ranks or another mesh have cut the states in other blocks
  std::string first = {};          // the first state that differs: "master/model.norm.weight"
};

/// IoError for a manifest that cannot be read.
CheckpointDifference compare_checkpoints(const std::filesystem::path& first, const std::filesystem::path& other);

}  // namespace nought
