// PreferenceRecord: a prompt and two answers to it in JSON, one chosen and one rejected, in the forms that TRL reads;
// texts with labels; and prompts alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/chat/conversation.h"

namespace nought {

/// A text, or a list of messages.
struct PreferencePart {
  std::string text;
  std::vector<ChatMessage> messages;
};

struct PreferenceRecord {
  bool conversational = false;  // all parts are lists of messages
  PreferencePart prompt, chosen, rejected;
  std::optional<double> margin = {};  // how far the chosen answer should be ahead
  jinja::Value variables;             // see template_variables()
};

/// A prompt, an answer to it, and whether it is wanted, if that is known.
struct LabelledRecord {
  bool conversational = false;
  PreferencePart prompt, completion;
  bool desirable = false;
  jinja::Value variables;
};

/// A prompt that a model answers, and what else its record holds.
struct PromptRecord {
  bool conversational = false;
  PreferencePart prompt;
  std::string columns;  // the whole record, as JSON
  jinja::Value variables;
};
/// Reads {"prompt"}, a text or a list of messages, beside any other keys. ConfigError.
PromptRecord read_prompt(const OrderedJson& record);

/// A text, and what a classifier should say of it.
struct ScoredRecord {
  bool conversational = false;
  PreferencePart text;
  bool ends = false;           // the text is a prompt with its whole answer, which the end of a document follows
  std::vector<double> wanted;  // an index of a class, or a number for each label; empty: nobody says
  jinja::Value variables;
};

/// Reads {FIELD or "messages" or "prompt" and "completion", "label" or "labels"}: texts or lists of messages, and a
/// number, true, false, or a list of numbers. ConfigError.
ScoredRecord read_scored(const OrderedJson& record, const std::string& field);

/// Whether a record has an answer with a label.
bool is_labelled(const OrderedJson& record);
/// Reads {"prompt", "completion", "label"}: texts, or lists of messages. ConfigError.
LabelledRecord read_labelled(const OrderedJson& record);
/// Reads {"prompt", "completion"}, or {"messages"}, of which the last is the answer: it needs no label. ConfigError.
LabelledRecord read_completed(const OrderedJson& record);
/// The two answers of a pair as answers with labels.
std::vector<LabelledRecord> unpaired(const PreferenceRecord& record);

/// Whether a record has two answers of which one was chosen.
bool is_preference(const OrderedJson& record);
/// Reads {"prompt", "chosen", "rejected"}: texts, or lists of messages. Without a prompt, or where the answers are
/// messages and the prompt is a text, the prompt is what both answers begin with: messages, or characters, of which a
/// space at the end belongs to the answers. ConfigError.
PreferenceRecord read_preference(const OrderedJson& record);

}  // namespace nought
