#include <array>
#include <charconv>

#include "nought/base/base64.h"
#include "nought/base/error.h"
#include "nought/io/files.h"
#include "nought/text/tokenizer_files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

struct Encoding {
  std::string_view name;
  int64_t tokens;  // without the markers: no two encodings have the same number
  std::string_view pattern;
  std::vector<std::pair<std::string_view, int32_t>> specials;  // the first ends a text
};

// From OpenAI's tiktoken, openai_public.py.
const std::array<Encoding, 3>& encodings() {
  static const std::array<Encoding, 3> known{{
      {"r50k_base", 50256, kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       kCl100kPattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", 199998, kO200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
  }};
  return known;
}

// One line: base64(bytes), a space, the rank.
void parse_line(std::string_view line, Vocabulary& vocabulary) {
  const size_t space = line.find(' ');
  require<ConfigError>(space != std::string_view::npos, "expected a token in base64, a space and its rank");
  const auto token = decode_base64(line.substr(0, space));
  require<ConfigError>(token && !token->empty(), "\"{}\" is no token in base64", line.substr(0, space));
  int64_t rank = -1;
  const auto [stop, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
  require<ConfigError>(error == std::errc() && stop == line.data() + line.size(), "\"{}\" is no rank",
                       line.substr(space + 1));
  vocabulary.add(*token, rank);
}

void parse_lines(const fs::path& file, std::string_view text, Vocabulary& vocabulary) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    try {
      parse_line(line, vocabulary);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
  }
}

const Encoding& encoding_of(const fs::path& file, const Vocabulary& vocabulary) {
  for (const Encoding& encoding : encodings())
    if (encoding.tokens == vocabulary.size()) return encoding;
  fail<ConfigError>(
      "{}: has {} tokens; known encodings are r50k_base (50256), cl100k_base (100256) and o200k_base "
      "(199998): for others, name a tokenizer.json, which says its pattern",
      file.string(), vocabulary.size());
}

}  // namespace

std::unique_ptr<Tokenizer> read_tiktoken(const fs::path& file) {
  const std::string bytes = read_bytes(file);
  TextPipeline pipeline;
  identify(file, bytes, pipeline);
  parse_lines(file, bytes, *pipeline.vocabulary);
  const Encoding& encoding = encoding_of(file, *pipeline.vocabulary);
  pipeline.model =
      make_bpe(*pipeline.vocabulary, merges_by_rank(*pipeline.vocabulary), {.ignore_merges = true, .unknown = {}});
  pipeline.pre_tokenizers.steps.push_back(make_split(encoding.pattern));
  pipeline.pre_tokenizers.byte_level = true;
  for (const auto& [content, id] : encoding.specials)
    pipeline.added.add({.content = std::string(content), .id = id, .special = true});
  pipeline.separator = encoding.specials.front().second;
  return std::make_unique<TextTokenizer>(std::move(pipeline));
}

}  // namespace nought
