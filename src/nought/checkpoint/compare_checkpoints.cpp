#include "nought/checkpoint/compare_checkpoints.h"

#include <map>
#include <utility>

#include "nought/checkpoint/checkpoint_manifest.h"

namespace nought {

namespace {

/// Checksum and state by what the block is of: all that its entry says but where it lies.
using Blocks = std::map<std::string, std::pair<std::string, std::string>>;

Blocks blocks_of(const std::filesystem::path& checkpoint) {
  const Json manifest = read_manifest(checkpoint);
  Blocks blocks;
  for (Json entry : manifest.value("blocks", Json::array())) {
    const std::string hash = entry.value("xxh3", "");
    const std::string state = entry.value("state", "") + "/" + entry.value("parameter", "");
    for (const char* place : {"xxh3", "file", "tensor"}) entry.erase(place);
    blocks[entry.dump()] = {hash, state};
  }
  return blocks;
}

}  // namespace

CheckpointDifference compare_checkpoints(const std::filesystem::path& first, const std::filesystem::path& other) {
  const Blocks here = blocks_of(first), there = blocks_of(other);
  if (here.size() != there.size()) return {};
  CheckpointDifference difference{.equal = true};
  for (const auto& [key, block] : here) {
    const auto found = there.find(key);
    if (found == there.end()) return {};
    if (block.first != found->second.first && difference.first.empty())
      difference.equal = false, difference.first = block.second;
  }
  return difference;
}

}  // namespace nought
