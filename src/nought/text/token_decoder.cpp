#include "nought/text/token_decoder.h"

#include <numeric>

#include "nought/text/step_chain.h"
#include "nought/text/unicode.h"
#include "nought/text/vocabulary.h"

namespace nought {

namespace {

using Tokens = std::vector<std::string>;

std::string concatenate(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

size_t length_of(const Tokens& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), size_t{0},
                         [](size_t sum, const std::string& token) { return sum + token.size(); });
}

// Removes up to `count` times `content` from the start or the end of each token.
void strip(Tokens& tokens, const std::string& content, int64_t start, int64_t stop) {
  for (std::string& token : tokens) {
    for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
    for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
  }
}

// Spaces between words, of which the marked tokens are no beginnings. tidy: without those that English does not write.
void join_words(Tokens& tokens, const std::string& mark, bool tidy) {
  constexpr std::pair<std::string_view, std::string_view> kTidy[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0) token.starts_with(mark) ? void(token.erase(0, mark.size())) : void(token.insert(0, 1, ' '));
    if (!tidy) continue;
    for (const auto& [from, to] : kTidy) replace_all(token, from, to);
  }
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonView& json, bool byte_level) {
  for_each_step(json, "decoders", [&](const JsonView& step, const std::string& type) { add(step, type, byte_level); });
}

void TokenDecoder::add(const JsonView& json, const std::string& type, bool byte_level) {
  if (type == "ByteLevel") {
    json.check(byte_level, "the decoder ByteLevel needs the pre-tokenizer ByteLevel");
  } else if (type == "Replace") {
    const JsonView pattern = json["pattern"];
    pattern["Regex"].check(pattern["Regex"].is_null(), "a decoder's Replace supports only a String");
    steps_.emplace_back([from = pattern["String"].string(), to = replacement_text(json["content"])](Tokens& tokens) {
      for (std::string& token : tokens) replace_all(token, from, to);
    });
  } else if (type == "ByteFallback") {
    steps_.emplace_back([](Tokens& tokens) {
      for (std::string& token : tokens)
        if (const auto byte = byte_of_token(token)) token.assign(1, static_cast<char>(*byte));
    });
  } else if (type == "Fuse") {
    steps_.emplace_back([](Tokens& tokens) { tokens = {concatenate(tokens)}; });
  } else if (type == "Strip") {
    const std::string content = json["content"].string();
    json["content"].check(!content.empty(), "is empty");
    steps_.emplace_back([content, start = json["start"].integer(), stop = json["stop"].integer()](Tokens& tokens) {
      strip(tokens, content, start, stop);
    });
  } else if (type == "WordPiece") {
    steps_.emplace_back([mark = json["prefix"].string_or("##"),
                         tidy = json["cleanup"].boolean_or(true)](Tokens& tokens) { join_words(tokens, mark, tidy); });
  } else if (type == "Metaspace") {
    const std::string replacement = json["replacement"].string_or("\u2581");
    const bool marked =
        json["prepend_scheme"].string_or("always") != "never" && json["add_prefix_space"].boolean_or(true);
    steps_.emplace_back([replacement, marked](Tokens& tokens) {
      if (marked && !tokens.empty() && tokens[0].starts_with(replacement)) tokens[0].erase(0, replacement.size());
      for (std::string& token : tokens) replace_all(token, replacement, " ");
    });
  } else {
    json.check(false,
               "the decoder {} is not supported; supported are ByteLevel, Replace, ByteFallback, Fuse, Strip, "
               "Metaspace, WordPiece and Sequence",
               type);
  }
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  const GrowthLimit limit(length_of(tokens));
  for (const Step& step : steps_) {
    step(tokens);
    limit.check(length_of(tokens), "the decoders");
  }
  return concatenate(tokens);
}

}  // namespace nought
