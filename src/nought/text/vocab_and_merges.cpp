#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

// "gpt2-vocab.json" has its merges in "gpt2-merges.txt".
fs::path merges_of(const fs::path& vocab) {
  std::string name = vocab.stem().string();
  replace_all(name, "vocab", "merges");
  const fs::path file = vocab.parent_path() / (name + ".txt");
  require<IoError>(name != vocab.stem().string() && fs::is_regular_file(file),
                   "{}: a vocabulary needs its merges beside it, {} is no file", vocab.string(), file.string());
  return file;
}

std::vector<Merge> parse_merges(const fs::path& file, const std::string& text, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::string clean = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    const std::vector<std::string> pair = split(clean, ' ');
    require<ConfigError>(pair.size() == 2, "{}:{}: expected two tokens with a space between, found {} parts",
                         file.string(), number, pair.size());
    const auto id = [&](const std::string& token) {
      const auto bytes = characters_to_bytes(token);
      const auto found = bytes ? vocabulary.find(*bytes) : std::nullopt;
      require<ConfigError>(found.has_value(), "{}:{}: \"{}\" is not in the vocabulary", file.string(), number, token);
      return *found;
    };
    merges.push_back({id(pair[0]), id(pair[1]), id(pair[0] + pair[1]), static_cast<uint32_t>(merges.size())});
  }
  return merges;
}

// The slow tokenizer of a class that is not GPT-2's may cut text by another pattern.
bool read_config(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const Json json = read_json_file(file.string());
  const JsonView config(json, file.string());
  const std::string name = config["tokenizer_class"].string_or("GPT2Tokenizer");
  config["tokenizer_class"].check(name == "GPT2Tokenizer" || name == "GPT2TokenizerFast",
                                  "vocab.json and merges.txt of a {} are not supported: a tokenizer.json says all of "
                                  "its rules",
                                  name);
  return config["add_prefix_space"].boolean_or(false);
}

}  // namespace

std::unique_ptr<Tokenizer> read_vocab_and_merges(const fs::path& vocab) {
  const fs::path merges_file = merges_of(vocab);
  const std::string bytes = read_bytes(vocab), merges_text = read_bytes(merges_file);
  const Json json = parse_json(bytes, vocab.string());
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", vocab.string(), describe_json(json));

  TextPipeline pipeline;
  identify(vocab, bytes + merges_text, pipeline);
  for (const auto& [token, id] : json.items()) {
    const int64_t value = JsonView(id, vocab.string() + ": the token " + token).integer();
    const auto plain = characters_to_bytes(token);
    try {
      pipeline.vocabulary->add(plain ? *plain : token, value);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", vocab.string(), error.what()));
    }
    if (token == "<|endoftext|>")
      pipeline.added.add({.content = token, .id = static_cast<int32_t>(value), .special = true});
  }
  Json pre_tokenizer{{"type", "ByteLevel"}, {"add_prefix_space", read_config(vocab.parent_path())}};
  pipeline.pre_tokenizers = read_pre_tokenizers(JsonView(pre_tokenizer, vocab.string()));
  pipeline.model = make_bpe(*pipeline.vocabulary, parse_merges(merges_file, merges_text, *pipeline.vocabulary), {});
  find_separator(vocab.parent_path(), pipeline);
  return std::make_unique<TextTokenizer>(std::move(pipeline));
}

}  // namespace nought
