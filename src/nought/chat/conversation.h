// Conversations in JSON, in the forms in which people keep them for fine-tuning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/json.h"
#include "nought/base/visit.h"
#include "nought/chat/chat_template.h"

namespace nought {

enum class ConversationForm : uint8_t {
  messages,           // {"messages": [{"role": "user", "content": ...}, ...]}, or the list alone
  conversations,      // {"conversations": [{"from": "human", "value": ...}, ...]}, as ShareGPT has it
  instruction,        // {"instruction": ..., "input": ..., "output": ...}, as Alpaca has it; input may be absent, and
                      // "system" and "history", a list of [question, answer], may come before
  prompt_completion,  // {"prompt": ..., "completion": ...}: two texts, or two lists of messages
};

template <>
struct EnumNames<ConversationForm> {
  static constexpr std::array<std::pair<ConversationForm, std::string_view>, 4> value{{
      {ConversationForm::messages, "messages"},
      {ConversationForm::conversations, "conversations"},
      {ConversationForm::instruction, "instruction and output"},
      {ConversationForm::prompt_completion, "prompt and completion"},
  }};
};

struct ChatRecord {
  std::vector<ChatMessage> messages;
  jinja::Value variables;  // see template_variables()
};

/// What a record gives to the chat template beside its messages: "tools", "documents", and what "chat_template_kwargs"
/// holds. ConfigError.
jinja::Value template_variables(const OrderedJson& record);

/// A list of messages, {"role", "content"} or {"from", "value"} each. ConfigError.
std::vector<ChatMessage> read_messages(const OrderedJson& list);

/// The form of a record, by its keys, the first of them that it has; nothing if it is no conversation.
std::optional<ConversationForm> conversation_form(const OrderedJson& record);
/// A record in any of the forms. ConfigError.
ChatRecord read_conversation(const OrderedJson& record);

}  // namespace nought
