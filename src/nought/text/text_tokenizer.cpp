#include "nought/text/text_tokenizer.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/text/step_chain.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

/// Calls found(match) for every added token in the text, and between(text, offset) for what lies between.
template <class Found, class Between>
void split_at(const AddedTokens& added, std::string_view text, bool specials, bool normalized, Found&& found,
              Between&& between) {
  size_t done = 0;
  while (const auto match = added.next(text, done, specials, normalized)) {
    if (match->begin > done) between(text.substr(done, match->begin - done), done);
    found(*match);
    done = match->end;
  }
  if (done < text.size()) between(text.substr(done), done);
}

}  // namespace

TextTokenizer::TextTokenizer(TextPipeline pipeline) : pipeline_(std::move(pipeline)) {
  vocab_size_ = pipeline_.vocabulary->size();
  for (const AddedToken& token : pipeline_.added.all()) {
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
    if (static_cast<size_t>(token.id) >= added_by_id_.size()) added_by_id_.resize(static_cast<size_t>(token.id) + 1);
    Added& of_id = added_by_id_[static_cast<size_t>(token.id)];
    of_id = {token.content, of_id.special || token.special};
  }
  const auto crosses_lines = [](const AddedToken& token) {
    return token.strip_left || token.strip_right || token.content.find('\n') != std::string::npos;
  };
  const std::vector<AddedToken>& added = pipeline_.added.all();
  cuts_between_lines_ = pipeline_.normalizers.empty() && !pipeline_.pre_tokenizers.steps.empty() &&
                        pipeline_.pre_tokenizers.steps.front()->cuts_between_lines() &&
                        std::none_of(added.begin(), added.end(), crosses_lines);
}

std::optional<MarkerMatch> TextTokenizer::next_marker(std::string_view text, size_t from) const {
  return pipeline_.added.first_of_any(text, from);
}

int64_t TextTokenizer::text_bytes(int32_t id) const {
  const std::string* added = added_by_id(id);
  if (id == pipeline_.separator || (added && added_by_id_[static_cast<size_t>(id)].special)) return 0;
  return added || pipeline_.vocabulary->token(id) ? lengthens_by(id) : 0;
}

size_t TextTokenizer::cut_point(std::string_view text, size_t from) const {
  return cuts_between_lines_ ? cut_between_lines(text, from) : std::string_view::npos;
}

void TextTokenizer::append(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) append_valid(text.substr(0, valid), options, ids);
    size_t end = valid;
    while (end < text.size() && valid_utf8_prefix(text.substr(end, 4)) == 0) ++end;
    if (end > valid) pipeline_.model->encode_bytes(text.substr(valid, end - valid), ids);
    text.remove_prefix(end);
    options.at_start = false;
  }
}

void TextTokenizer::append_valid(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
  split_at(
      pipeline_.added, text, options.specials, false, [&](const auto& match) { ids.push_back(match.id); },
      [&](std::string_view section, size_t offset) {
        append_section(section, {options.specials, options.at_start && offset == 0}, ids);
      });
}

void TextTokenizer::append_section(std::string_view section, EncodeOptions options, std::vector<int32_t>& ids) const {
  std::string normalized;
  if (!pipeline_.normalizers.empty()) {
    normalized = section;
    normalize(pipeline_.normalizers, normalized);
    section = normalized;
  }
  split_at(
      pipeline_.added, section, options.specials, true, [&](const auto& match) { ids.push_back(match.id); },
      [&](std::string_view text, size_t offset) { append_normalized(text, options.at_start && offset == 0, ids); });
}

void TextTokenizer::append_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  TextPieces pieces;
  pieces.views.push_back(text);
  const GrowthLimit limit(text.size());
  for (const auto& step : pipeline_.pre_tokenizers.steps) {
    step->apply(pieces, at_start);
    if (!pieces.made.empty()) limit.check(pieces.bytes(), "the pre-tokenizers");
  }
  pipeline_.model->encode(pieces.views, ids);
}

const std::string* TextTokenizer::added_by_id(int32_t id) const {
  const auto index = static_cast<size_t>(id);
  const bool added = id >= 0 && index < added_by_id_.size() && !added_by_id_[index].content.empty();
  return added ? &added_by_id_[index].content : nullptr;
}

std::string TextTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string* token = added_by_id(id);
    if (!token) token = pipeline_.vocabulary->token(id);
    require<ConfigError>(token, "the tokenizer \"{}\" has no token {}; its ids are below {}", name(), id, vocab_size());
    tokens.push_back(*token);
  }
  return pipeline_.decoder.decode(std::move(tokens));
}

int32_t TextTokenizer::separator() const {
  require<ConfigError>(pipeline_.separator.has_value(),
                       "the tokenizer \"{}\" names no token that ends a text; add \"eos_token\" to the "
                       "tokenizer_config.json beside it",
                       name());
  return *pipeline_.separator;
}

std::optional<int32_t> TextTokenizer::find(std::string_view token) const {
  const auto added = pipeline_.added.find(token);
  return added ? added : pipeline_.vocabulary->find(token);
}

}  // namespace nought
