#include "nought/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/chat/chat_notation.h"
#include "nought/text/unicode.h"

namespace nought {

using jinja::from_utf8;
using jinja::Items;
using jinja::kData;
using jinja::Rendered;
using jinja::Value;

namespace {

constexpr std::string_view kAssistant = "assistant";

/// The day on which training takes place, for programs that tell the date: the tokens of a run do not depend on when it
/// runs. It is the one that Llama 3's template falls back to, a Friday.
std::tm training_day() {
  std::tm day{};
  day.tm_year = 124, day.tm_mon = 6, day.tm_mday = 26, day.tm_wday = 5, day.tm_yday = 207;
  return day;
}

std::tm today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return day;
}

/// Bytes that are no UTF-8 become U+FFFD, as transformers decodes them.
std::string valid_text(std::string_view text) {
  std::string valid;
  while (true) {
    const size_t good = valid_utf8_prefix(text);
    valid += text.substr(0, good);
    if (good == text.size()) return valid;
    append_utf8(valid, 0xFFFD);
    text.remove_prefix(good + 1);
  }
}

/// What a model thought goes by several names. Programs find it under the two that they read, as in transformers.
void add_reasoning(Items& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = message.find(from_utf8(name));
    if (!found || found->is_none()) continue;
    const Value thought = *found;
    if (!message.find(from_utf8("thinking"))) message.set(from_utf8("thinking", kData), thought);
    message.set(from_utf8("reasoning_content", kData), thought);
    return;
  }
}

/// A message as a program sees it. Its role is part of markers in some programs, so it must be a word; all else is
/// data.
Value value_of_message(const ChatMessage& message, size_t number) {
  const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
  require<ConfigError>(!message.role.empty() && std::all_of(message.role.begin(), message.role.end(), is_of_word),
                       "message {} has the role \"{}\", expected a word", number, message.role);
  Items items{.kind = Items::kMap};
  items.set(from_utf8("role"), from_utf8(message.role));
  items.set(from_utf8("content"), from_utf8(valid_text(message.content), kData));
  if (const Items* fields = message.fields.map())
    for (size_t i = 0; i < fields->keys.size(); ++i)
      if (*fields->keys[i].text() != from_utf8("role")) items.set(fields->keys[i], fields->values[i]);
  add_reasoning(items);
  return items;
}

/// Where the last data in [begin, end) ends; `begin` if there is none.
size_t end_of_data(const Rendered& text, size_t end, size_t begin = 0) {
  while (end > begin && (text.flags(end - 1) & kData) == 0) --end;
  return end;
}

bool has_data(const Rendered& text, size_t begin, size_t end) { return end_of_data(text, end, begin) > begin; }

size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

ChatTemplate::ChatTemplate(ChatSource source, const Tokenizer& tokenizer)
    : source_(std::move(source)), program_(source_.name, source_.jinja), tokenizer_(tokenizer) {
  std::vector<std::string> texts = source_.markers;
  texts.insert(texts.end(), source_.spelt.begin(), source_.spelt.end());
  for (const auto& [key, text] : source_.specials) texts.push_back(text);
  for (const std::string& text : texts) {
    const auto found = tokenizer_.next_marker(text, 0);
    if (text.empty() || (found && found->end - found->begin == text.size())) continue;  // the tokenizer finds it
    const bool ends = text.size() == 1 && text[0] == kEndOfText;
    if (const auto id = ends ? tokenizer_.separator() : tokenizer_.find(text)) markers_.emplace_back(text, *id);
  }
}

namespace {

/// Whether a mapping has a list of that name with something in it.
bool has_list(const Value& mapping, std::string_view name) {
  const Items* items = mapping.map();
  const Value* found = items != nullptr ? items->find(from_utf8(name)) : nullptr;
  return found != nullptr && found->list() != nullptr && !found->list()->values.empty();
}

}  // namespace

/// The notations by name have no way to write tools and documents: without a word the model would learn to answer
/// without them.
void ChatTemplate::refuse_unwritten(std::span<const ChatMessage> messages, const Value& variables) const {
  const bool calls = std::any_of(messages.begin(), messages.end(),
                                 [](const ChatMessage& each) { return has_list(each.fields, "tool_calls"); });
  require<ConfigError>(!calls && !has_list(variables, "tools"),
                       "the chat template {} writes neither tools nor calls of them: give the template of a model that "
                       "has learned them, as a Jinja file (data.chat_template, --chat-template)",
                       source_.name);
  require<ConfigError>(
      !has_list(variables, "documents"),
      "the chat template {} does not write \"documents\": give the template of a model that has learned "
      "them, as a Jinja file (data.chat_template, --chat-template), or remove the key",
      source_.name);
}

Rendered ChatTemplate::text(std::span<const ChatMessage> messages, const Value& variables, bool asks,
                            const std::tm& now) const {
  if (source_.is_notation) refuse_unwritten(messages, variables);
  std::vector<Value> all;
  for (const ChatMessage& each : messages) all.push_back(value_of_message(each, all.size() + 1));
  // As apply_chat_template() has it: tools and documents are none if there are none.
  Items given{.kind = Items::kMap};
  given.set(from_utf8("messages"), Value::list(std::move(all)));
  given.set(from_utf8("add_generation_prompt"), asks);
  const auto give = [&](const Value& key, const Value& value) {
    if (!given.find(*key.text())) given.set(key, value);
  };
  if (const Items* more = variables.map())
    for (size_t i = 0; i < more->keys.size(); ++i) give(more->keys[i], more->values[i]);
  for (const char* key : {"tools", "documents"}) give(from_utf8(key), Value::None());
  for (const auto& [key, text] : source_.specials) give(from_utf8(key), from_utf8(text));
  return program_.render(given, now);
}

namespace {

/// The markers that a program wrote into a text, from the front to the back. What was searched for each spelling is not
/// searched again.
class Markers {
 public:
  Markers(const Tokenizer& tokenizer, std::span<const std::pair<std::string, int32_t>> spellings, const Rendered& text)
      : tokenizer_(tokenizer), spellings_(spellings), text_(text), searched_(spellings.size()) {}

  /// The first at or behind `from`, which never falls.
  std::optional<MarkerMatch> next(size_t from) {
    std::optional<MarkerMatch> first = of_tokenizer(from);
    for (size_t i = 0; i < spellings_.size(); ++i) {
      const auto& [spelling, id] = spellings_[i];
      // One that begins before what was found.
      const size_t at = spelt(spelling, searched_[i], from, first ? first->begin : text_.size());
      if (at != std::string::npos) first = MarkerMatch{at, at + spelling.size(), id};
    }
    return first;
  }

 private:
  /// None begins before `at`, where one does if `known`.
  struct Searched {
    size_t at = 0;
    bool known = false;
  };

  std::optional<MarkerMatch> of_tokenizer(size_t from) {
    if (begun_ && (!found_ || found_->begin >= from)) return found_;
    begun_ = true, found_ = tokenizer_.next_marker(text_.str(), from);
    while (found_ && has_data(text_, found_->begin, found_->end))
      found_ = tokenizer_.next_marker(text_.str(), found_->begin + utf8_length(text_.str()[found_->begin]));
    return found_;
  }
  size_t spelt(const std::string& spelling, Searched& searched, size_t from, size_t before) const {
    if (!searched.known || searched.at < from) {
      const std::string_view text = std::string_view(text_.str()).substr(0, before + spelling.size() - 1);
      size_t at = text.find(spelling, std::max(from, searched.at));
      while (at != text.npos && has_data(text_, at, at + spelling.size())) at = text.find(spelling, at + 1);
      searched = at != text.npos ? Searched{at, true} : Searched{std::max(searched.at, before), false};
    }
    return searched.known && searched.at < before ? searched.at : std::string::npos;
  }

  const Tokenizer& tokenizer_;
  std::span<const std::pair<std::string, int32_t>> spellings_;  // that it does not find
  const Rendered& text_;
  bool begun_ = false;
  std::optional<MarkerMatch> found_ = {};  // by the tokenizer
  std::vector<Searched> searched_;         // for each spelling
};

}  // namespace

std::optional<MarkerMatch> ChatTemplate::next_marker(const Rendered& text, size_t from) const {
  return Markers(tokenizer_, markers_, text).next(from);
}

void ChatTemplate::encode(const Rendered& text, std::span<const Span> targets, Tokens& tokens) const {
  if (!source_.is_notation && !targets.empty()) refuse(refused_in(text));
  const std::string_view all = text.str();
  const size_t first = tokens.ids.size();
  tokens.starts.push_back(first);
  size_t done = 0;
  size_t next = 0;  // the first target that ends behind what was asked for last
  const auto target_at = [&](size_t at) {
    while (next < targets.size() && targets[next].end <= at) ++next;
    return next < targets.size() && targets[next].begin <= at;
  };
  // The text up to there, cut where targets begin and end, as a prompt and an answer are when the model is asked.
  const auto write_text = [&](size_t end) {
    while (done < end) {
      const bool is_target = target_at(done);
      const size_t edge = next == targets.size() ? end : is_target ? targets[next].end : targets[next].begin;
      const size_t cut = std::min(end, edge);
      tokenizer_.encode(all.substr(done, cut - done), tokens.ids, {.at_start = tokens.ids.size() == first});
      tokens.targets.resize(tokens.ids.size(), is_target);
      done = cut;
    }
  };
  Markers markers(tokenizer_, markers_, text);
  while (const auto marker = markers.next(done)) {
    const std::string_view before = all.substr(done, marker->begin - done);
    write_text(marker->begin - (marker->strips_left ? trailing_white_space(before) : 0));
    tokens.ids.push_back(marker->id);
    tokens.targets.push_back(target_at(marker->begin));
    done = marker->end + (marker->strips_right ? leading_white_space(all.substr(marker->end)) : 0);
  }
  write_text(all.size());
}

/// Where answers lie in the text of a conversation, by what the program writes for the beginnings of the conversation.
class ChatTemplate::Answers {
 public:
  Answers(const ChatTemplate& chat, std::span<const ChatMessage> messages, const Value& variables)
      : chat_(chat), messages_(messages), variables_(variables) {}

  /// The text of the first `count` messages. One is kept: those of all beginnings would take the square of the memory.
  const Rendered& text(size_t count) {
    if (!text_ || text_->first != count) text_.emplace(count, write(messages_.first(count), false));
    return text_->second;
  }
  /// Where message `index` lies in the text of the first `count`; nothing if that text has it otherwise than the model
  /// writes it.
  std::optional<Span> find(size_t index, size_t count) {
    const Rendered& all = text(count);
    const Rendered prompt = write(messages_.first(index), true);
    size_t begin = common(all, prompt);
    if (begin < end_of_data(prompt, prompt.size())) return std::nullopt;
    if (begin < prompt.size()) {
      const auto behind = behind_header(all, prompt, index, begin);
      if (!behind) return std::nullopt;
      begin = *behind;
    }
    const auto end = index + 1 == count ? std::optional(end_of_last(all, count)) : end_of_earlier(all, begin, index);
    if (!end || *end < begin) return std::nullopt;
    // White space behind the marker that ends the answer is not the model's.
    const size_t told = std::max(begin, end_of_data(all, *end));
    const std::string_view tail = std::string_view(all.str()).substr(told, *end - told);
    const size_t space = trailing_white_space(tail);
    return Span{begin, *end - (space < tail.size() ? space : 0)};
  }

 private:
  Rendered write(std::span<const ChatMessage> messages, bool asks) const {
    return chat_.text(messages, variables_, asks, training_day());
  }
  /// How far two texts agree, up to the end of a marker or of a character.
  size_t common(const Rendered& a, const Rendered& b) const {
    const size_t agree = common_prefix(a.str(), b.str());
    size_t end = agree;
    for (const Rendered* text : {&a, &b}) {
      Markers markers(chat_.tokenizer_, chat_.markers_, *text);
      for (size_t from = end_of_data(*text, agree); from < agree;) {
        const auto marker = markers.next(from);
        if (!marker || marker->begin >= agree) break;
        if (marker->end > agree) end = std::min(end, marker->begin);
        from = marker->end;
      }
    }
    return valid_utf8_prefix(std::string_view(a.str()).substr(0, end));
  }
  /// Where an answer begins whose prompt agrees with the text only up to `from`: behind the words that ask for it, if
  /// they follow; else there, if the prompt goes on without a marker (it begins to think for the model).
  std::optional<size_t> behind_header(const Rendered& all, const Rendered& prompt, size_t index, size_t from) const {
    const Rendered before = write(messages_.first(index), false);
    const std::string header = prompt.str().starts_with(before.str()) ? prompt.str().substr(before.size()) : "";
    const size_t at = header.empty() ? std::string::npos : all.str().find(header, from);
    if (at != std::string::npos && !has_data(all, from, at + header.size())) return at + header.size();
    return chat_.next_marker(prompt, from) ? std::nullopt : std::optional(from);
  }
  /// Whether the program wrote more than white space in [begin, end), behind the last data there.
  static bool has_tail(const Rendered& text, size_t begin, size_t end) {
    const size_t told = std::max(begin, end_of_data(text, end));
    return told < end && !trim(std::string_view(text.str()).substr(told, end - told)).empty();
  }
  /// Where the last answer ends: where a next turn would begin, or else with the text.
  size_t end_of_last(const Rendered& all, size_t count) const {
    std::vector<ChatMessage> more(messages_.begin(), messages_.begin() + static_cast<long>(count));
    more.push_back({"user", "And?"});
    try {
      const size_t end = common(all, write(more, false)), told = end_of_data(all, all.size());
      if (end >= told && has_tail(all, told, end)) return end;
    } catch (const ConfigError&) {  // the program does not take such a turn here
    }
    return all.size();
  }
  std::optional<size_t> end_of_earlier(const Rendered& all, size_t begin, size_t index) const {
    const Rendered ends = write(messages_.first(index + 1), false);
    const size_t end = common(all, ends);
    const bool whole = end >= end_of_data(ends, ends.size()) && (end == ends.size() || has_tail(all, begin, end));
    return whole ? std::optional(end) : std::nullopt;
  }

  const ChatTemplate& chat_;
  std::span<const ChatMessage> messages_;
  Value variables_;
  std::optional<std::pair<size_t, Rendered>> text_;  // of how many messages
};

ChatTemplate::Tokens ChatTemplate::conversation(std::span<const ChatMessage> messages, const Value& variables) const {
  require<ConfigError>(!messages.empty(), "a conversation without messages");
  Tokens tokens;
  if (program_.marks_targets()) {
    const Rendered all = text(messages, variables, false, training_day());
    std::vector<Span> targets;
    for (size_t i = 0; i < all.size(); ++i) {
      if ((all.flags(i) & jinja::kTarget) == 0) continue;
      if (targets.empty() || targets.back().end != i) targets.push_back({i, i});
      targets.back().end = i + 1;
    }
    encode(all, targets, tokens);
    return tokens;
  }
  Answers answers(*this, messages, variables);
  std::vector<size_t> waiting;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == kAssistant) waiting.push_back(i);
  const bool has_answers = !waiting.empty();
  for (size_t count = messages.size(); count > 0; count = waiting.empty() ? 0 : waiting.back() + 1) {
    std::vector<Span> targets;
    const bool must = !waiting.empty() && waiting.back() + 1 == count;
    std::erase_if(waiting, [&](size_t index) {
      const auto found = index < count ? answers.find(index, count) : std::nullopt;
      if (found) targets.push_back(*found);
      return found.has_value();
    });
    require<ConfigError>(!must || waiting.empty() || waiting.back() + 1 != count,
                         "the chat template {} writes what comes before message {} otherwise once it is answered, so "
                         "nothing tells what the assistant says: give it {{% generation %}} blocks",
                         source_.name, count);
    if (!targets.empty() || !has_answers) encode(answers.text(count), targets, tokens);
  }
  return tokens;
}

std::vector<int32_t> ChatTemplate::prompt(std::span<const ChatMessage> messages, const Value& variables) const {
  Tokens tokens;
  encode(text(messages, variables, true, today()), {}, tokens);
  return std::move(tokens.ids);
}

std::vector<int32_t> ChatTemplate::trained_ids(std::span<const ChatMessage> messages, const Value& variables,
                                               bool asks) const {
  const Rendered all = text(messages, variables, asks, training_day());
  if (!source_.is_notation) refuse(refused_in(all));
  Tokens tokens;
  encode(all, {}, tokens);
  return std::move(tokens.ids);
}

std::vector<int32_t> ChatTemplate::stop_ids() const {
  std::vector<int32_t> ids{tokenizer_.separator()};
  try {
    const std::vector<ChatMessage> talk{{"user", "Hi"}, {"assistant", "Ho"}};
    Answers answers(*this, talk, {});
    const auto answer = answers.find(1, talk.size());
    const Rendered& all = answers.text(talk.size());
    Markers markers(tokenizer_, markers_, all);
    for (auto marker = markers.next(answer ? answer->begin : all.size()); marker; marker = markers.next(marker->end))
      if (marker->end == answer->end && marker->id != ids[0]) ids.push_back(marker->id);
  } catch (const ConfigError&) {  // a program for other conversations
  }
  return ids;
}

std::vector<std::string> ChatTemplate::missing_markers() const {
  std::vector<std::string> missing;
  for (const std::string& marker : source_.markers)
    if (!tokenizer_.find(marker)) missing.push_back(marker);
  return missing;
}

std::vector<std::string> ChatTemplate::refused_markers() const {
  // The templates of Zephyr and TinyLlama have these, and their tokenizers none of them.
  constexpr std::array<std::string_view, 3> kLearnedAsText{"<|system|>", "<|user|>", "<|assistant|>"};
  std::vector<std::string> markers = missing_markers();
  if (!source_.is_notation)
    std::erase_if(markers, [&](const std::string& marker) {
      return std::find(kLearnedAsText.begin(), kLearnedAsText.end(), marker) != kLearnedAsText.end();
    });
  return markers;
}

std::vector<std::string> ChatTemplate::refused_in(const Rendered& text) const {
  std::vector<std::string> found = refused_markers();
  std::erase_if(found, [&](const std::string& marker) {
    size_t at = text.str().find(marker);
    while (at != std::string::npos && has_data(text, at, at + marker.size())) at = text.str().find(marker, at + 1);
    return at == std::string::npos;
  });
  return found;
}

void ChatTemplate::require_markers() const {
  if (source_.is_notation) return refuse(refused_markers());
  Rendered plain;
  try {
    plain = text(std::vector<ChatMessage>{{"user", "Hi"}, {"assistant", "Ho"}}, {}, false, training_day());
  } catch (const ConfigError&) {  // a program for other conversations
  }
  refuse(refused_in(plain));
}

void ChatTemplate::refuse(const std::vector<std::string>& markers) const {
  require<ConfigError>(markers.empty(),
                       "the chat template {} has the markers {}, which are no tokens of the tokenizer \"{}\": "
                       "data.add_special_tokens = {} with training.resize_vocab = true adds them (nought tokenize: "
                       "--add-special-token), or choose another data.chat_template",
                       source_.name, fmt::join(markers, ", "), tokenizer_.name(), Json(markers).dump());
}

}  // namespace nought
