// Repeats: which parts of which documents occurred before. Found once, then a file from which they are read in order.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "nought/corpus/dedup.h"

namespace nought {

/// Part `part` of document number `document`: a line, or the word at which a stretch begins; 0 if it is all of it.
struct Repeat {
  uint64_t document = 0, part = 0;
  auto operator<=>(const Repeat&) const = default;
};

/// What all documents have in common.
struct RepeatsHeader {
  uint64_t documents = 0, clusters = 0, largest_cluster = 0;
};

/// Finds them, and writes `file` whole or not at all. Sorted runs lie beside it meanwhile. Throws as dedup() does.
void find_repeats(const DedupOptions& options, const std::filesystem::path& file, const DedupObserver& observe);

class RepeatsReader {
 public:
  /// IoError.
  explicit RepeatsReader(const std::filesystem::path& file);
  const RepeatsHeader& header() const { return header_; }
  /// The parts of a document, in order. Documents are asked for in order, and may be left out.
  std::vector<uint64_t> parts_of(uint64_t document);

 private:
  bool read_next();

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  RepeatsHeader header_;
  std::optional<Repeat> next_;
};

/// Where each stretch of `words` begins and ends in bytes of the text.
struct TextWord {
  size_t begin = 0, end = 0;
};
std::vector<TextWord> words_with_places(std::string_view text);

}  // namespace nought
