// ReceiptCopy: a copy of the folder of a run with a receipt, to be changed as somebody might who knows how it is made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_folder.h"

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/receipt.h"
#include "nought/io/sha256.h"

namespace nought::test {

class ReceiptCopy {
 public:
  explicit ReceiptCopy(const std::filesystem::path& run) {
    using std::filesystem::copy_options;
    std::filesystem::copy(run, folder_.path(), copy_options::recursive | copy_options::overwrite_existing);
  }

  std::filesystem::path path() const { return folder_.path(); }
  std::vector<OrderedJson> lines() const {
    std::vector<OrderedJson> lines;
    for (const std::string& line : split(read_bytes(folder_ / kReceiptFile), '\n'))
      if (!line.empty()) lines.push_back(OrderedJson::parse(line));
    return lines;
  }
  /// Writes the lines as they are: the chain breaks.
  void write(const std::vector<OrderedJson>& lines) const {
    std::string text;
    for (const OrderedJson& line : lines) text += line.dump() + "\n";
    folder_.write(kReceiptFile, text);
  }
  /// Writes a chain of the lines.
  void chain(std::vector<OrderedJson> lines) const {
    std::string last;
    for (OrderedJson& line : lines) line["previous"] = last, last = sha256_of(line.dump());
    write(lines);
  }
  /// Gives checkpoints and the export the hashes of the chain.
  void forge_links() const {
    const Receipt receipt(path());
    for (const std::filesystem::path& checkpoint : list_checkpoints(path()))
      for (const ReceiptLine& line : receipt.lines())
        if (line.step() == checkpoint_step(checkpoint)) forge_link(checkpoint, line.hash);
    Json state = Json::parse(read_bytes(folder_ / "trainer_state.json"));
    state["receipt"] = receipt.last();
    folder_.write("trainer_state.json", state.dump());
  }
  static void forge_link(const std::filesystem::path& checkpoint, const std::string& hash) {
    const Json manifest = read_manifest(checkpoint);
    CheckpointInfo info = info_in(manifest, checkpoint);
    info.about[kReceiptKey] = hash;
    write_manifest(info, manifest.at("blocks"), checkpoint, manifest.value("rank_states", Json()));
  }

 private:
  TempFolder folder_;
};

}  // namespace nought::test
