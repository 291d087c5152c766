// Charsmap: SentencePiece's own rules of normalization, which a tokenizer.json has as "Precompiled".
//
// It is a trie of byte strings (a double array as darts-clone writes it) whose leaves say where in a block of texts the
// replacement begins. It is applied as the tokenizers library does: a cluster of characters that a person sees as one
// (a grapheme) of fewer than 6 bytes is replaced as a whole by what its shortest known beginning becomes; longer ones,
// and what is not known, character by character.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/normalizer.h"

namespace nought {

class Charsmap {
 public:
  /// The content of precompiled_charsmap, decoded. ConfigError if it is none.
  explicit Charsmap(std::string_view bytes);

  /// What the shortest beginning of the text that the map knows becomes; nothing if it knows none.
  std::optional<std::string_view> replacement(std::string_view text) const;

 private:
  std::vector<uint32_t> trie_;
  std::string texts_;  // each ends with a byte 0
};

/// A step that applies it. ConfigError if the base64 is none, or not that of a Charsmap.
std::unique_ptr<Normalizer> make_precompiled(std::string_view base64);

}  // namespace nought
