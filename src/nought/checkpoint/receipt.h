// Receipt: receipt.jsonl in the folder of a run, a chain of lines that each hold the SHA-256 of the line before.
//
// A line of the kind "start" stands where a run begins or goes on: program, configuration, what decides the order of
// the data, hashes of files, and the weights. A line of the kind "step" has the loss, the gradient's norm, the samples
// and the weights of a step. Whoever changes a line has to change all behind it, and the checkpoints and exports that
// hold one of their hashes. Lines are only added: steps that a run makes again behind a kill stand there twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/append_file.h"
#include "nought/io/file_format.h"

namespace nought {

inline constexpr FileFormat kReceiptFormat{"nought-receipt", 1};
inline constexpr std::string_view kReceiptFile = "receipt.jsonl";
/// In what a checkpoint says about itself: the hash of the line that belongs to it.
inline constexpr const char* kReceiptKey = "receipt";
/// In the line of a start: how far losses and norms may be apart on other ranks, 0 if they have the same bits; or, as
/// text, the setting by which other ranks have another result.
inline constexpr const char* kOtherRanksKey = "other_ranks";

/// Adds lines. Each is on disk when add() returns.
class ReceiptWriter {
 public:
  /// Goes on with the folder's receipt, or begins one; what a kill left of a line goes. before: the hash that a new one
  /// goes on from, as a checkpoint of another folder has it, or "". IoError if what is there is no receipt, or broken.
  ReceiptWriter(std::filesystem::path folder, std::string before);

  /// Returns the hash of the line.
  std::string add(OrderedJson line);
  const std::string& last() const { return last_; }

 private:
  AppendFile file_;
  std::string last_;
};

struct ReceiptLine {
  Json json;
  std::string hash;

  std::string_view kind() const { return json.at("kind").get_ref<const std::string&>(); }
  int64_t step() const { return json.at("step").get<int64_t>(); }
};

/// The lines of a receipt whose chain holds.
class Receipt {
 public:
  /// IoError, which names the first line that is not as it was written.
  explicit Receipt(const std::filesystem::path& folder);

  const std::vector<ReceiptLine>& lines() const { return lines_; }
  const std::string& last() const { return lines_.back().hash; }
  /// The line with this hash; null if there is none.
  const ReceiptLine* find(std::string_view hash) const;

 private:
  std::vector<ReceiptLine> lines_;
};

bool has_receipt(const std::filesystem::path& folder);

}  // namespace nought
