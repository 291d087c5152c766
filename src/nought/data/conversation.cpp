#include "nought/data/conversation.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

namespace {

/// A message's text: a string, or parts {"type": "text", "text": ...}.
std::string content_of(const Json& value, size_t number) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  const bool parts = value.is_array() && std::all_of(value.begin(), value.end(), [&](const Json& part) {
                       const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                                            part.contains("text") && part["text"].is_string();
                       if (is_text) text += part["text"].get_ref<const std::string&>();
                       return is_text;
                     });
  require<ConfigError>(parts, "the content of message {} is {}, expected a string", number, describe_json(value));
  return text;
}

std::string plain_role(const std::string& role) {
  if (role == "human") return "user";
  return role == "gpt" || role == "model" || role == "bot" ? "assistant" : role;
}

const Json& field_of(const Json& message, const char* name, size_t number) {
  const auto found = message.find(name);
  require<ConfigError>(found != message.end(), "message {} has no \"{}\"", number, name);
  return *found;
}

/// Appends a list of messages, {"role", "content"} or {"from", "value"} each.
void append_list(const Json& list, std::vector<ChatMessage>& messages) {
  require<ConfigError>(list.is_array(), "expected a list of messages, found {}", describe_json(list));
  for (const Json& message : list) {
    const size_t number = messages.size() + 1;
    require<ConfigError>(message.is_object(), "message {} is {}, expected an object", number, describe_json(message));
    const bool share = message.contains("from") && !message.contains("role");
    const Json& role = field_of(message, share ? "from" : "role", number);
    require<ConfigError>(role.is_string(), "the role of message {} is {}, expected a string", number,
                         describe_json(role));
    messages.push_back({plain_role(role.get<std::string>()),
                        content_of(field_of(message, share ? "value" : "content", number), number)});
  }
}

const std::string& text_of(const Json& value, std::string_view key) {
  require<ConfigError>(value.is_string(), "\"{}\" is {}, expected a string", key, describe_json(value));
  return value.get_ref<const std::string&>();
}

/// The text of a key; "" if it is absent or null.
std::string optional_text(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() || found->is_null() ? "" : text_of(*found, key);
}

std::vector<ChatMessage> read_instruction(const Json& record) {
  std::vector<ChatMessage> messages;
  if (std::string system = optional_text(record, "system"); !system.empty())
    messages.push_back({"system", std::move(system)});
  if (const auto history = record.find("history"); history != record.end() && !history->is_null()) {
    require<ConfigError>(history->is_array(), "\"history\" is {}, expected a list", describe_json(*history));
    for (const Json& turn : *history) {
      require<ConfigError>(turn.is_array() && turn.size() == 2, "\"history\" holds {}, expected [question, answer]",
                           describe_json(turn));
      messages.push_back({"user", text_of(turn[0], "history")});
      messages.push_back({"assistant", text_of(turn[1], "history")});
    }
  }
  std::string question = text_of(record["instruction"], "instruction");
  if (const std::string input = optional_text(record, "input"); !input.empty()) question += "\n" + input;
  messages.push_back({"user", std::move(question)});
  messages.push_back({"assistant", text_of(record["output"], "output")});
  return messages;
}

std::vector<ChatMessage> read_prompt(const Json& record) {
  std::vector<ChatMessage> messages;
  const auto add = [&](const char* key, const char* role) {
    const Json& value = record[key];
    if (value.is_array()) return append_list(value, messages);
    messages.push_back({role, text_of(value, key)});
  };
  add("prompt", "user");
  add("completion", "assistant");
  return messages;
}

}  // namespace

std::optional<ConversationForm> conversation_form(const Json& record) {
  const auto has = [&](const char* key) { return record.is_object() && record.contains(key); };
  if (record.is_array() || has("messages")) return ConversationForm::messages;
  if (has("conversations")) return ConversationForm::conversations;
  if (has("instruction") && has("output")) return ConversationForm::instruction;
  if (has("prompt") && has("completion")) return ConversationForm::prompt_completion;
  return std::nullopt;
}

std::vector<ChatMessage> read_conversation(const Json& record) {
  const auto form = conversation_form(record);
  require<ConfigError>(form.has_value(),
                       "is no conversation: it has neither \"messages\" nor \"conversations\", nor \"instruction\" and "
                       "\"output\", nor \"prompt\" and \"completion\"");
  if (form == ConversationForm::instruction) return read_instruction(record);
  if (form == ConversationForm::prompt_completion) return read_prompt(record);
  std::vector<ChatMessage> messages;
  append_list(record.is_array() ? record : record[std::string(enum_name(*form))], messages);
  return messages;
}

}  // namespace nought
