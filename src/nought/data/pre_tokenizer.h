// PreTokenizer: cuts text into the pieces that no token crosses.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nought/data/json_view.h"
#include "nought/data/regex.h"

namespace nought {

/// GPT-2's pieces, which the ByteLevel pre-tokenizer uses.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Those of OpenAI's later encodings (tiktoken, openai_public.py); llama 3 has the first of them.
inline constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen 2's, whose digits stand alone.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The pieces of a text. `made` holds the text of pieces that a step changed; views point into it or into the text.
struct TextPieces {
  std::vector<std::string_view> views;
  std::deque<std::string> made;
  std::vector<Regex::Match> matches;  // room for the steps to work in
  std::vector<std::string_view> next;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts each piece further. at_start: the first piece begins the text.
  virtual void apply(TextPieces& pieces, bool at_start) const = 0;
  /// True if a text may be cut as cut_between_lines() cuts it: the pieces are the same.
  virtual bool cuts_between_lines() const { return false; }
};

/// The first place at or behind `from` between a line that ends in a printable ASCII character and one that begins with
/// an ASCII letter; npos if there is none. The patterns above have a piece end there, whatever surrounds it.
size_t cut_between_lines(std::string_view text, size_t from);

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool byte_level = false;  // tokens are written in GPT-2's characters for bytes
};

/// Each match of the pattern and each text between matches is a piece.
std::unique_ptr<PreTokenizer> make_split(std::string_view pattern);

/// The steps of tokenizer.json's "pre_tokenizer"; none for null. ConfigError for a type that is not supported.
PreTokenizers read_pre_tokenizers(const JsonView& json);

}  // namespace nought
