#include "nought/checkpoint/checkpoint_contents.h"

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// Adds what one entry of the manifest says. Blocks of a parameter's master cover it once.
void add_block(const Json& block, const fs::path& checkpoint, std::set<std::string>& files,
               CheckpointContents& contents) {
  const std::string state = block.at("state"), file = block.at("file");
  contents.states.insert(state);
  if (state == "master") {
    const int64_t elements = block.at("end").get<int64_t>() - block.at("begin").get<int64_t>();
    contents.parameters += elements;
    if (block.value("frozen", false)) contents.frozen += elements;
  }
  if (!files.insert(file).second) return;
  std::error_code error;
  const auto bytes = fs::file_size(checkpoint / file, error);
  require<IoError>(!error, "{}: the manifest names {}, which cannot be read: {}", checkpoint.string(), file,
                   error.message());
  ++contents.files, contents.bytes += static_cast<int64_t>(bytes);
}

}  // namespace

CheckpointContents contents_of(const fs::path& checkpoint) {
  const Json manifest = read_manifest(checkpoint);
  CheckpointContents contents{.format = {}, .info = info_in(manifest, checkpoint), .states = {}};
  try {
    contents.format = manifest.at("format");
    std::set<std::string> files;
    for (const Json& block : manifest.at("blocks")) add_block(block, checkpoint, files, contents);
  } catch (const Json::exception& error) {
    fail_damaged(checkpoint, error.what());
  }
  return contents;
}

}  // namespace nought
