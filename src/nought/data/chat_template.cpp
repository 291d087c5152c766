#include "nought/data/chat_template.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/data/chat_notation.h"
#include "nought/data/unicode.h"
#include "nought/io/files.h"

namespace nought {

namespace {

constexpr std::string_view kAssistant = "assistant";

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [format, name] : EnumNames<ChatFormat>::value) names.emplace_back(name);
  return names;
}

}  // namespace

std::string chat_program(const std::filesystem::path& folder) {
  const std::filesystem::path program = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(program)) return read_text(program);
  if (!std::filesystem::exists(config)) return "";
  const auto json = Json::parse(read_text(config), nullptr, /*allow_exceptions=*/false);
  require<ConfigError>(json.is_object(), "{}: not a JSON object", config.string());
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())  // several, by name
    for (const Json& each : *found)
      if (each.is_object() && each.value("name", Json()) == "default" && each.contains("template") &&
          each["template"].is_string())
        return each["template"].get<std::string>();
  fail<ConfigError>("{}: chat_template must be a text, or a list with a \"default\"", config.string());
}

std::string chat_format_names() { return fmt::format("{}", fmt::join(format_names(), ", ")); }

ChatFormat chat_format(std::string_view name) {
  for (const auto& [format, known] : EnumNames<ChatFormat>::value)
    if (known == name) return format;
  fail<ConfigError>("the chat template \"{}\" is not known; known are {}{}", name, chat_format_names(),
                    did_you_mean(name, format_names()));
}

ChatFormat chat_format_of(const Tokenizer& tokenizer) {
  for (const ChatNotation& each : chat_notations())
    if (!each.telltales.empty() && std::all_of(each.telltales.begin(), each.telltales.end(),
                                               [&](std::string_view marker) { return tokenizer.find(marker); }))
      return each.format;
  fail<ConfigError>("the tokenizer \"{}\" has no markers of a known chat template: name one of {}", tokenizer.name(),
                    chat_format_names());
}

ChatFormat chat_format_in(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const std::string program = chat_program(folder);
  if (program.empty()) return chat_format_of(tokenizer);
  const auto has = [&](std::string_view word) { return program.find(word) != std::string::npos; };
  for (const ChatNotation& each : chat_notations())
    if (std::all_of(each.words.begin(), each.words.end(), has) &&
        std::none_of(each.not_words.begin(), each.not_words.end(), has))
      return each.format;
  fail<ConfigError>("the chat template of {} is none of {}: name the one to use", folder.string(), chat_format_names());
}

ChatFormat chat_format_for(std::optional<ChatFormat> named, const std::filesystem::path& path,
                           const Tokenizer& tokenizer) {
  std::error_code ignored;
  if (named) return *named;
  return std::filesystem::is_directory(path, ignored) ? chat_format_in(path, tokenizer) : chat_format_of(tokenizer);
}

/// Collects text between markers, so that it is encoded in one go as it will be read.
class ChatTemplate::Writer {
 public:
  Writer(const Tokenizer& tokenizer, const std::vector<Marker>& markers) : tokenizer_(tokenizer), markers_(markers) {}

  void text(std::string_view more, bool target = false) {
    if (target != target_) flush();
    target_ = target;
    pending_ += more;
  }
  void token(int32_t id, bool target) {
    flush();
    strips_ = false;
    tokens_.ids.push_back(id);
    tokens_.targets.push_back(target);
  }
  /// Text of a notation: what spells a marker is one.
  void notation(std::string_view around, bool target = false) {
    while (!around.empty()) {
      const Marker* next = nullptr;
      size_t at = std::min(around.find(kEndOfText), around.size());
      for (const Marker& marker : markers_)
        if (const size_t found = around.find(marker.text); found < at) at = found, next = &marker;
      text(around.substr(0, at), target);
      around.remove_prefix(at);
      if (next) {
        write(*next, target);
        around.remove_prefix(next->text.size());
      } else if (!around.empty()) {
        token(tokenizer_.separator(), target);
        around.remove_prefix(1);
      }
    }
  }
  Tokens finish() {
    flush();
    return std::move(tokens_);
  }

 private:
  void write(const Marker& marker, bool target) {
    if (!marker.id) return text(marker.text, target);
    if (marker.strips_left) pending_.resize(pending_.size() - trailing_white_space(pending_));
    token(*marker.id, target);
    strips_ = marker.strips_right;
  }
  void flush() {
    if (strips_) pending_.erase(0, leading_white_space(pending_));
    if (!pending_.empty()) {
      tokenizer_.encode(pending_, tokens_.ids, {.at_start = tokens_.ids.empty()});
      strips_ = false;
    }
    tokens_.targets.resize(tokens_.ids.size(), target_);
    pending_.clear();
  }

  const Tokenizer& tokenizer_;
  const std::vector<Marker>& markers_;
  Tokens tokens_;
  std::string pending_;
  bool target_ = false, strips_ = false;  // white space that follows the last marker belongs to it
};

ChatTemplate::ChatTemplate(ChatFormat format, const Tokenizer& tokenizer)
    : notation_(notation_of(format)), tokenizer_(tokenizer) {
  std::vector<std::string_view> names = notation_.markers;
  names.insert(names.end(), notation_.spelt.begin(), notation_.spelt.end());
  if (!notation_.end.empty()) names.push_back(notation_.end);
  for (const std::string_view name : names) {
    Marker marker{name, tokenizer.find(name)};
    const auto takes = [&](const std::string& text) {
      return marker.id && tokenizer.encode(text, {.specials = true}) == std::vector{*marker.id};
    };
    marker.strips_left = takes(fmt::format("\n{}", name)), marker.strips_right = takes(fmt::format("{}\n", name));
    markers_.push_back(marker);
  }
}

std::vector<ChatMessage> ChatTemplate::prepared(std::span<const ChatMessage> messages) const {
  const std::string_view format = enum_name(notation_.format);
  const bool folds = notation_.place == SystemPlace::first || notation_.place == SystemPlace::block;
  std::vector<ChatMessage> result;
  std::optional<std::string> system;  // that has no turn of its own
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool is_system = role == "system";
    require<ConfigError>(is_system || role == "user" || role == kAssistant,
                         "message {} has the role \"{}\"; {} knows system, user and assistant", i + 1, role, format);
    require<ConfigError>(!folds || !is_system || i == 0, "message {} is a system message; {} has it only as the first",
                         i + 1, format);
    if (is_system && notation_.place != SystemPlace::turn) {
      system = system ? *system + "\n\n" + content : content;
      continue;
    }
    const std::string_view turn = result.size() % 2 == 0 ? "user" : kAssistant;
    require<ConfigError>(!notation_.alternates || role == turn,
                         "message {} is the {}'s where {} has the {}'s: they take turns", i + 1, role, format, turn);
    result.push_back({role, folds && system ? with_system(*std::exchange(system, std::nullopt), content) : content});
    if (notation_.trims) result.back().content = trim(result.back().content);
  }
  require<ConfigError>(!result.empty(), "a conversation without messages of a user or an assistant");
  if (system && !folds) result.insert(result.begin(), {"system", *system});
  return result;
}

std::string ChatTemplate::with_system(const std::string& system, const std::string& content) const {
  if (notation_.place == SystemPlace::block) return fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", system, content);
  return fmt::format("{}\n\n{}", trim(system), trim(content));
}

ChatTemplate::Tokens ChatTemplate::write(std::span<const ChatMessage> messages, bool answer) const {
  Writer writer(tokenizer_, markers_);
  const auto begin = [&](bool here) {
    if (!here || notation_.begin.empty()) return;
    if (const auto id = tokenizer_.find(notation_.begin)) writer.token(*id, false);
  };
  begin(!notation_.begins_each_user);
  for (const auto& [role, content] : prepared(messages)) {
    if (role == kAssistant) {
      writer.notation(notation_.assistant);
      for (const std::string_view part : {notation_.before, std::string_view(content), notation_.after})
        writer.text(part, true);
      notation_.end.empty() ? writer.token(tokenizer_.separator(), true) : writer.notation(notation_.end, true);
      writer.notation(notation_.close);
      continue;
    }
    begin(notation_.begins_each_user);
    const ChatTurn& turn = role == "user" ? notation_.user : notation_.system;
    writer.notation(turn.open);
    writer.text(content);
    writer.notation(turn.close);
  }
  writer.notation(answer ? notation_.assistant : notation_.last);
  return writer.finish();
}

ChatTemplate::Tokens ChatTemplate::conversation(std::span<const ChatMessage> messages) const {
  return write(messages, false);
}

std::vector<int32_t> ChatTemplate::prompt(std::span<const ChatMessage> messages) const {
  return write(messages, true).ids;
}

std::vector<int32_t> ChatTemplate::stop_ids() const {
  std::vector<int32_t> ids{tokenizer_.separator()};
  const auto end = notation_.end.empty() ? std::nullopt : tokenizer_.find(notation_.end);
  if (end && *end != ids[0]) ids.push_back(*end);
  return ids;
}

std::vector<std::string> ChatTemplate::missing_markers() const {
  std::vector<std::string> missing;
  for (const Marker& marker : markers_)
    if (!marker.id && std::count(notation_.spelt.begin(), notation_.spelt.end(), marker.text) == 0)
      missing.emplace_back(marker.text);
  return missing;
}

void ChatTemplate::require_markers() const {
  const std::vector<std::string> missing = missing_markers();
  require<ConfigError>(missing.empty(),
                       "the chat template {} has the markers {}, which are no tokens of the tokenizer \"{}\": "
                       "data.add_special_tokens = {} with training.resize_vocab = true adds them (nought tokenize: "
                       "--add-special-token), or choose another data.chat_template",
                       enum_name(notation_.format), fmt::join(missing, ", "), tokenizer_.name(), Json(missing).dump());
}

}  // namespace nought
