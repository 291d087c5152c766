#include "nought/chat/conversation.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/chat/record_json.h"

namespace nought {

namespace {

std::string describe(const OrderedJson& value) {
  return describe_json(value.is_array() ? Json::array() : value.is_object() ? Json::object() : Json(value));
}

/// A message's text: a string, or parts {"type": "text", "text": ...}.
std::string content_of(const OrderedJson& value, size_t number) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  const bool parts = value.is_array() && std::all_of(value.begin(), value.end(), [&](const OrderedJson& part) {
                       const bool is_text = part.is_object() && part.value("type", OrderedJson()) == "text" &&
                                            part.contains("text") && part["text"].is_string();
                       if (is_text) text += part["text"].get_ref<const std::string&>();
                       return is_text;
                     });
  require<ConfigError>(parts, "the content of message {} is {}, expected a string", number, describe(value));
  return text;
}

std::string plain_role(const std::string& role) {
  if (role == "human") return "user";
  return role == "gpt" || role == "model" || role == "bot" ? "assistant" : role;
}

const OrderedJson& field_of(const OrderedJson& message, const char* name, size_t number) {
  const auto found = message.find(name);
  require<ConfigError>(found != message.end(), "message {} has no \"{}\"", number, name);
  return *found;
}

/// What a chat template may read besides role and content; undefined if there is nothing.
jinja::Value fields_of(const OrderedJson& message) {
  OrderedJson fields;
  for (const auto& [key, value] : message.items())
    if (key != "role" && key != "from" && key != "value" && (key != "content" || value.is_null())) fields[key] = value;
  return fields.empty() ? jinja::Value() : jinja::value_of(fields, jinja::kData);
}

/// Whether a message may do without text: it calls tools.
bool calls_tools(const OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  const auto content = message.find("content");
  return calls != message.end() && calls->is_array() && !calls->empty() &&
         (content == message.end() || content->is_null());
}

/// Appends a list of messages, {"role", "content"} or {"from", "value"} each.
void append_list(const OrderedJson& list, std::vector<ChatMessage>& messages) {
  require<ConfigError>(list.is_array(), "expected a list of messages, found {}", describe(list));
  for (const OrderedJson& message : list) {
    const size_t number = messages.size() + 1;
    require<ConfigError>(message.is_object(), "message {} is {}, expected an object", number, describe(message));
    const bool share = message.contains("from") && !message.contains("role");
    const OrderedJson& role = field_of(message, share ? "from" : "role", number);
    require<ConfigError>(role.is_string(), "the role of message {} is {}, expected a string", number, describe(role));
    const bool no_text = !share && calls_tools(message);
    messages.push_back({plain_role(role.get<std::string>()),
                        no_text ? "" : content_of(field_of(message, share ? "value" : "content", number), number),
                        fields_of(message)});
  }
}

const std::string& text_of(const OrderedJson& value, std::string_view key) {
  require<ConfigError>(value.is_string(), "\"{}\" is {}, expected a string", key, describe(value));
  return value.get_ref<const std::string&>();
}

/// The text of a key; "" if it is absent or null.
std::string optional_text(const OrderedJson& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() || found->is_null() ? "" : text_of(*found, key);
}

std::vector<ChatMessage> read_instruction(const OrderedJson& record) {
  std::vector<ChatMessage> messages;
  if (std::string system = optional_text(record, "system"); !system.empty())
    messages.push_back({"system", std::move(system)});
  if (const auto history = record.find("history"); history != record.end() && !history->is_null()) {
    require<ConfigError>(history->is_array(), "\"history\" is {}, expected a list", describe(*history));
    for (const OrderedJson& turn : *history) {
      require<ConfigError>(turn.is_array() && turn.size() == 2, "\"history\" holds {}, expected [question, answer]",
                           describe(turn));
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

std::vector<ChatMessage> read_prompt(const OrderedJson& record) {
  std::vector<ChatMessage> messages;
  const auto add = [&](const char* key, const char* role) {
    const OrderedJson& value = record[key];
    if (value.is_array()) return append_list(value, messages);
    messages.push_back({role, text_of(value, key)});
  };
  add("prompt", "user");
  add("completion", "assistant");
  return messages;
}

}  // namespace

jinja::Value template_variables(const OrderedJson& record) {
  OrderedJson variables;
  const auto add = [&](const std::string& key, const OrderedJson& value) {
    if (!value.is_null()) variables[key] = value;
  };
  for (const char* key : {"tools", "documents"}) {
    const auto found = record.find(key);
    if (found == record.end()) continue;
    // Columns of tables hold such lists as text.
    const OrderedJson parsed =
        found->is_string() ? parse_record(found->get<std::string>(), false) : OrderedJson(*found);
    require<ConfigError>(parsed.is_array() || parsed.is_null(), "\"{}\" is {}, expected a list", key, describe(*found));
    add(key, parsed);
  }
  if (const auto more = record.find("chat_template_kwargs"); more != record.end() && more->is_object())
    for (const auto& [key, value] : more->items()) add(key, value);
  return variables.empty() ? jinja::Value() : jinja::value_of(variables, jinja::kData);
}

std::vector<ChatMessage> read_messages(const OrderedJson& list) {
  std::vector<ChatMessage> messages;
  append_list(list, messages);
  return messages;
}

std::optional<ConversationForm> conversation_form(const OrderedJson& record) {
  const auto has = [&](const char* key) { return record.is_object() && record.contains(key); };
  if (record.is_array() || has("messages")) return ConversationForm::messages;
  if (has("conversations")) return ConversationForm::conversations;
  if (has("instruction") && has("output")) return ConversationForm::instruction;
  if (has("prompt") && has("completion")) return ConversationForm::prompt_completion;
  return std::nullopt;
}

ChatRecord read_conversation(const OrderedJson& record) {
  const auto form = conversation_form(record);
  require<ConfigError>(form.has_value(),
                       "is no conversation: it has neither \"messages\" nor \"conversations\", nor \"instruction\" and "
                       "\"output\", nor \"prompt\" and \"completion\"");
  ChatRecord read;
  if (form == ConversationForm::instruction) {
    read.messages = read_instruction(record);
  } else if (form == ConversationForm::prompt_completion) {
    read.messages = read_prompt(record);
  } else {
    append_list(record.is_array() ? record : record[std::string(enum_name(*form))], read.messages);
  }
  read.variables = template_variables(record);
  return read;
}

}  // namespace nought
