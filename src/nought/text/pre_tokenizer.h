// PreTokenizer: cuts text into pieces. No token crosses the end of a piece.
#pragma once

#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/json_view.h"
#include "nought/text/regex.h"

namespace nought {

/// GPT-2's pattern, which the ByteLevel pre-tokenizer uses.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// The patterns of OpenAI's later encodings (tiktoken, openai_public.py). Llama 3 uses the first one.
inline constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen 2's pattern, in which each digit is a piece.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The pieces of a text. `made` holds the text of pieces that a step changed; views point into it or into the text.
struct TextPieces {
  std::vector<std::string_view> views;
  std::deque<std::string> made;
  std::vector<Regex::Match> matches;   // scratch space of the steps
  std::vector<std::string_view> next;  // scratch space of the steps

  size_t bytes() const {
    return std::accumulate(views.begin(), views.end(), size_t{0},
                           [](size_t sum, std::string_view piece) { return sum + piece.size(); });
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts each piece further. at_start: whether the first piece begins the text.
  virtual void apply(TextPieces& pieces, bool at_start) const = 0;
  /// True if cutting a text at cut_between_lines() first gives the same pieces.
  virtual bool cuts_between_lines() const { return false; }
};

/// The first place at or behind `from` between a line that ends in a printable ASCII character and a line that begins
/// with an ASCII letter; npos if there is none. By each of the patterns above a piece ends there, whatever surrounds
/// it.
size_t cut_between_lines(std::string_view text, size_t from);

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool byte_level = false;  // true: the vocabulary spells bytes by GPT-2's characters
};

/// A step that makes a piece of each match of the pattern, and of each text between matches.
std::unique_ptr<PreTokenizer> make_split(std::string_view pattern);

/// The steps of "pre_tokenizer" in tokenizer.json; none if it is null. ConfigError for an unsupported type.
PreTokenizers read_pre_tokenizers(const JsonView& json);

}  // namespace nought
