#include "nought/data/chat_template.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/data/files.h"
#include "nought/data/unicode.h"

namespace nought {

namespace {

constexpr std::string_view kAssistant = "assistant";

/// The marker that begins a conversation, "" if there is none.
std::string_view beginning(ChatFormat format) {
  switch (format) {
    case ChatFormat::llama3:
      return "<|begin_of_text|>";
    case ChatFormat::mistral:
      return "<s>";
    case ChatFormat::gemma:
      return "<bos>";
    case ChatFormat::chatml:
    case ChatFormat::zephyr:
      break;
  }
  return "";
}

/// The marker that ends an answer, "" for the tokenizer's own end of a text.
std::string_view ending(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml:
      return "<|im_end|>";
    case ChatFormat::llama3:
      return "<|eot_id|>";
    case ChatFormat::gemma:
      return "<end_of_turn>";
    case ChatFormat::mistral:
    case ChatFormat::zephyr:
      break;
  }
  return "";
}

/// A marker that only models of this notation have; Zephyr's are words of other models.
std::string_view telltale(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml:
      return "<|im_start|>";
    case ChatFormat::llama3:
      return "<|start_header_id|>";
    case ChatFormat::mistral:
      return "[INST]";
    case ChatFormat::gemma:
      return "<start_of_turn>";
    case ChatFormat::zephyr:
      return "<|assistant|>";
  }
  return "";
}

bool trims(ChatFormat format) { return format != ChatFormat::chatml && format != ChatFormat::zephyr; }

}  // namespace

ChatFormat chat_format(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [format, known] : EnumNames<ChatFormat>::value) {
    if (known == name) return format;
    names.emplace_back(known);
  }
  fail<ConfigError>("the chat template \"{}\" is not known; known are chatml, llama3, mistral, zephyr and gemma{}",
                    name, did_you_mean(std::string(name), names));
}

ChatFormat chat_format_of(const Tokenizer& tokenizer) {
  for (const ChatFormat format :
       {ChatFormat::llama3, ChatFormat::gemma, ChatFormat::chatml, ChatFormat::mistral, ChatFormat::zephyr})
    if (tokenizer.find(telltale(format))) return format;
  fail<ConfigError>(
      "the tokenizer \"{}\" has no markers of a known chat template: name one of chatml, llama3, mistral, zephyr and "
      "gemma",
      tokenizer.name());
}

namespace {

/// The Jinja program of a folder, "" if it has none.
std::string chat_program(const std::filesystem::path& folder) {
  const std::filesystem::path program = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(program)) return read_text(program);
  if (!std::filesystem::exists(config)) return "";
  const auto json = nlohmann::json::parse(read_text(config), nullptr, /*allow_exceptions=*/false);
  require<ConfigError>(json.is_object(), "{}: not a JSON object", config.string());
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())  // several, by name
    for (const nlohmann::json& each : *found)
      if (each.is_object() && each.value("name", nlohmann::json()) == "default" && each.contains("template") &&
          each["template"].is_string())
        return each["template"].get<std::string>();
  fail<ConfigError>("{}: chat_template must be a text, or a list with a \"default\"", config.string());
}

}  // namespace

ChatFormat chat_format_in(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const std::string program = chat_program(folder);
  if (program.empty()) return chat_format_of(tokenizer);
  const auto has = [&](std::string_view marker) { return program.find(marker) != std::string::npos; };
  // Notations that share markers with those that are known: Llama 2, Phi 4 and Phi 3.
  if (!has("<<SYS>>") && !has("<|im_sep|>") && !has("<|end|>"))
    for (const ChatFormat format :
         {ChatFormat::llama3, ChatFormat::gemma, ChatFormat::chatml, ChatFormat::mistral, ChatFormat::zephyr})
      if (has(telltale(format))) return format;
  fail<ConfigError>("the chat template of {} is none of chatml, llama3, mistral, zephyr and gemma: name the one to use",
                    folder.string());
}

/// Collects text between markers, so that it is encoded in one go as it will be read.
class ChatTemplate::Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void text(std::string_view more, bool target = false) {
    if (target != target_) flush();
    target_ = target;
    pending_ += more;
  }
  void marker(std::string_view name, bool target = false) {
    const auto id = tokenizer_.find(name);
    id ? token(*id, target) : text(name, target);
  }
  void token(int32_t id, bool target) {
    flush();
    tokens_.ids.push_back(id);
    tokens_.targets.push_back(target);
  }
  Tokens finish() {
    flush();
    return std::move(tokens_);
  }

 private:
  void flush() {
    if (!pending_.empty()) tokenizer_.encode(pending_, tokens_.ids, {.at_start = tokens_.ids.empty()});
    tokens_.targets.resize(tokens_.ids.size(), target_);
    pending_.clear();
  }

  const Tokenizer& tokenizer_;
  Tokens tokens_;
  std::string pending_;
  bool target_ = false;
};

std::vector<ChatMessage> ChatTemplate::prepared(std::span<const ChatMessage> messages) const {
  const std::string_view format = enum_name(format_);
  std::vector<ChatMessage> result;
  std::optional<std::string> system;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool is_system = message.role == "system";
    require<ConfigError>(is_system || message.role == "user" || message.role == kAssistant,
                         "message {} has the role \"{}\"; {} knows system, user and assistant", i + 1, message.role,
                         format);
    std::string content(trims(format_) ? trim(message.content) : std::string_view(message.content));
    if (!folds_system()) {
      result.push_back({message.role, std::move(content)});
      continue;
    }
    require<ConfigError>(!is_system || i == 0, "message {} is a system message; {} has it only as the first", i + 1,
                         format);
    if (is_system) {
      system = std::move(content);
      continue;
    }
    const char* turn = result.size() % 2 == 0 ? "user" : "assistant";
    require<ConfigError>(message.role == turn, "message {} is the {}'s where {} has the {}'s: they take turns", i + 1,
                         message.role, format, turn);
    if (system) content = *std::exchange(system, std::nullopt) + "\n\n" + content;
    result.push_back({message.role, std::move(content)});
  }
  require<ConfigError>(!result.empty(), "a conversation without messages of a user or an assistant");
  return result;
}

void ChatTemplate::open(Writer& writer, const std::string& role) const {
  switch (format_) {
    case ChatFormat::chatml:
      writer.marker("<|im_start|>");
      return writer.text(role + "\n");
    case ChatFormat::llama3:
      writer.marker("<|start_header_id|>");
      writer.text(role);
      writer.marker("<|end_header_id|>");
      return writer.text("\n\n");
    case ChatFormat::mistral:
      if (role == kAssistant) return;
      writer.marker("[INST]");
      return writer.text(" ");
    case ChatFormat::zephyr:
      writer.marker(fmt::format("<|{}|>", role));
      return writer.text("\n");
    case ChatFormat::gemma:
      writer.marker("<start_of_turn>");
      return writer.text(role == kAssistant ? "model\n" : role + "\n");
  }
}

void ChatTemplate::close(Writer& writer, bool assistant) const {
  if (format_ == ChatFormat::mistral && !assistant) return writer.marker("[/INST]");
  const std::string_view end = ending(format_);
  end.empty() ? writer.token(tokenizer_.separator(), assistant) : writer.marker(end, assistant);
  if (format_ != ChatFormat::llama3 && format_ != ChatFormat::mistral) writer.text("\n");
}

ChatTemplate::Tokens ChatTemplate::write(std::span<const ChatMessage> messages, bool answer) const {
  Writer writer(tokenizer_);
  const std::string_view begin = beginning(format_);
  if (const auto id = begin.empty() ? std::nullopt : tokenizer_.find(begin)) writer.token(*id, false);
  for (const ChatMessage& message : prepared(messages)) {
    const bool assistant = message.role == kAssistant;
    open(writer, message.role);
    // Mistral's answers begin with a space, which the model writes itself.
    const bool spaced = assistant && format_ == ChatFormat::mistral;
    writer.text(spaced ? " " + message.content : message.content, assistant);
    close(writer, assistant);
  }
  if (answer) open(writer, std::string(kAssistant));
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
  const auto end = ending(format_).empty() ? std::nullopt : tokenizer_.find(ending(format_));
  if (end && *end != ids[0]) ids.push_back(*end);
  return ids;
}

std::vector<std::string> ChatTemplate::missing_markers() const {
  std::vector<std::string_view> markers;
  switch (format_) {
    case ChatFormat::llama3:
      markers = {"<|start_header_id|>", "<|end_header_id|>"};
      break;
    case ChatFormat::mistral:
      markers = {"[INST]", "[/INST]"};
      break;
    case ChatFormat::chatml:
    case ChatFormat::gemma:
      markers = {telltale(format_)};
      break;
    case ChatFormat::zephyr:  // which were text from the start
      break;
  }
  if (!ending(format_).empty()) markers.push_back(ending(format_));
  std::vector<std::string> missing;
  for (const std::string_view marker : markers)
    if (!tokenizer_.find(marker)) missing.emplace_back(marker);
  return missing;
}

}  // namespace nought
