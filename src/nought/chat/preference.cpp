#include "nought/chat/preference.h"

#include <algorithm>
#include <utility>

#include "nought/base/error.h"
#include "nought/chat/record_json.h"

namespace nought {

namespace {

const OrderedJson& answer_of(const OrderedJson& record, const char* key) {
  const auto found = record.find(key);
  require<ConfigError>(found != record.end(), "has no \"{}\"", key);
  require<ConfigError>(found->is_string() || found->is_array(), "\"{}\" is {}, expected a text or a list of messages",
                       key, describe_json(found->is_object() ? Json::object() : Json(*found)));
  return *found;
}

PreferencePart part_of(const OrderedJson& value) {
  if (value.is_string()) return {.text = value.get<std::string>(), .messages = {}};
  return {.text = {}, .messages = read_messages(value)};
}

/// The length of the prompt that two answers begin with. If one is a beginning of the other, its last element is no
/// part of the prompt, so that neither answer is empty.
template <class Sequence>
size_t common_beginning(const Sequence& chosen, const Sequence& rejected) {
  const size_t shorter = std::min(chosen.size(), rejected.size());
  size_t count = 0;
  while (count < shorter && chosen[count] == rejected[count]) ++count;
  return count < shorter || count == 0 ? count : count - 1;
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

void split_texts(const std::string& chosen, const std::string& rejected, PreferenceRecord& record) {
  size_t begin = common_beginning(chosen, rejected);
  while (begin > 0 && begin < chosen.size() && continues_character(chosen[begin])) --begin;
  if (begin > 0 && chosen[begin - 1] == ' ') --begin;
  record.prompt.text = chosen.substr(0, begin);
  record.chosen.text = chosen.substr(begin), record.rejected.text = rejected.substr(begin);
}

void split_messages(const OrderedJson& chosen, const OrderedJson& rejected, PreferenceRecord& record) {
  const size_t begin = common_beginning(chosen, rejected);
  record.prompt = part_of(chosen), record.chosen = part_of(chosen), record.rejected = part_of(rejected);
  const auto cut = static_cast<std::ptrdiff_t>(begin);
  record.prompt.messages.resize(begin);
  for (PreferencePart* answer : {&record.chosen, &record.rejected})
    answer->messages.erase(answer->messages.begin(), answer->messages.begin() + cut);
}

}  // namespace

bool is_labelled(const OrderedJson& record) {
  return record.is_object() && record.contains("completion") && record.contains("label") &&
         record["label"].is_boolean();
}

namespace {

/// Without a label.
LabelledRecord read_answered(const OrderedJson& json) {
  const OrderedJson &prompt = answer_of(json, "prompt"), &completion = answer_of(json, "completion");
  require<ConfigError>(prompt.is_array() == completion.is_array(),
                       "of \"prompt\" and \"completion\" one is a text and the other a list of messages");
  require<ConfigError>(!completion.is_array() || !completion.empty(), "\"completion\" has no message");
  return {.conversational = completion.is_array(),
          .prompt = part_of(prompt),
          .completion = part_of(completion),
          .desirable = false,
          .variables = template_variables(json)};
}

}  // namespace

LabelledRecord read_labelled(const OrderedJson& json) {
  require<ConfigError>(is_labelled(json), "expected \"prompt\", \"completion\" and \"label\", which is true or false");
  LabelledRecord record = read_answered(json);
  record.desirable = json["label"].get<bool>();
  return record;
}

LabelledRecord read_completed(const OrderedJson& json) {
  require<ConfigError>(json.is_object(), "expected an object with \"prompt\" and \"completion\", or \"messages\"");
  if (!json.contains("messages")) return read_answered(json);
  std::vector<ChatMessage> messages = read_messages(answer_of(json, "messages"));
  require<ConfigError>(messages.size() > 1 && messages.back().role == "assistant",
                       "\"messages\" must end with an answer of an assistant, after a message that it answers");
  LabelledRecord record{.conversational = true,
                        .prompt = {},
                        .completion = {.text = {}, .messages = {messages.back()}},
                        .desirable = false,
                        .variables = template_variables(json)};
  messages.pop_back();
  record.prompt.messages = std::move(messages);
  return record;
}

PromptRecord read_prompt(const OrderedJson& json) {
  require<ConfigError>(json.is_object(), "expected an object with \"prompt\", found another value");
  const OrderedJson& prompt = answer_of(json, "prompt");
  require<ConfigError>(!prompt.empty() && prompt != "", "\"prompt\" is empty");
  return {.conversational = prompt.is_array(),
          .prompt = part_of(prompt),
          .columns = json.dump(),
          .variables = template_variables(json)};
}

ScoredRecord read_scored(const OrderedJson& json, const std::string& field) {
  require<ConfigError>(json.is_object(), "expected an object with \"{}\" and \"label\", found another value", field);
  const bool parted = !json.contains(field) && json.contains("completion");
  const bool messages = !json.contains(field) && json.contains("messages");
  const OrderedJson& text = answer_of(json, parted ? "prompt" : messages ? "messages" : field.c_str());
  ScoredRecord record{.conversational = text.is_array(),
                      .text = part_of(text),
                      .ends = parted,
                      .wanted = {},
                      .variables = template_variables(json)};
  if (parted) {
    const OrderedJson& answer = answer_of(json, "completion");
    require<ConfigError>(answer.is_array() == text.is_array(),
                         "of \"prompt\" and \"completion\" one is a text and the other a list of messages");
    const PreferencePart rest = part_of(answer);
    record.text.text += rest.text;
    record.text.messages.insert(record.text.messages.end(), rest.messages.begin(), rest.messages.end());
  }
  const auto label = json.find(json.contains("label") ? "label" : "labels");
  if (label == json.end()) return record;
  for (const OrderedJson& each : label->is_array() ? *label : OrderedJson::array({*label})) {
    require<ConfigError>(each.is_number() || each.is_boolean(),
                         "\"{}\" is {}, expected the index of a class, a number, or a list of numbers", label.key(),
                         describe_json(Json(each)));
    record.wanted.push_back(each.is_boolean() ? (each.get<bool>() ? 1.0 : 0.0) : each.get<double>());
  }
  return record;
}

std::vector<LabelledRecord> unpaired(const PreferenceRecord& record) {
  return {{record.conversational, record.prompt, record.chosen, true, record.variables},
          {record.conversational, record.prompt, record.rejected, false, record.variables}};
}

bool is_preference(const OrderedJson& record) {
  return record.is_object() && record.contains("chosen") && record.contains("rejected");
}

PreferenceRecord read_preference(const OrderedJson& json) {
  require<ConfigError>(json.is_object(), "expected an object with \"chosen\" and \"rejected\", found another value");
  const OrderedJson &chosen = answer_of(json, "chosen"), &rejected = answer_of(json, "rejected");
  require<ConfigError>(chosen.is_array() == rejected.is_array(),
                       "of \"chosen\" and \"rejected\" one is a text and the other a list of messages");
  PreferenceRecord record{.conversational = chosen.is_array(),
                          .prompt = {},
                          .chosen = {},
                          .rejected = {},
                          .margin = {},
                          .variables = template_variables(json)};
  const auto prompt = json.find("prompt");
  const bool explicit_prompt = prompt != json.end() && !prompt->is_null();
  if (explicit_prompt) answer_of(json, "prompt");
  if (explicit_prompt && prompt->is_array() == record.conversational) {
    record.prompt = part_of(*prompt), record.chosen = part_of(chosen), record.rejected = part_of(rejected);
  } else {
    require<ConfigError>(!explicit_prompt || record.conversational,
                         "\"prompt\" is a list of messages, and the answers are texts: write all as texts, or all as "
                         "messages");
    if (record.conversational) {
      split_messages(chosen, rejected, record);
    } else {
      split_texts(chosen.get_ref<const std::string&>(), rejected.get_ref<const std::string&>(), record);
    }
  }
  for (const auto& [name, part] : {std::pair{"chosen", &record.chosen}, std::pair{"rejected", &record.rejected}})
    require<ConfigError>(!record.conversational || !part->messages.empty(), "\"{}\" has no message", name);
  if (const auto margin = json.find("margin"); margin != json.end() && !margin->is_null()) {
    require<ConfigError>(margin->is_number(), "\"margin\" is {}, expected a number", describe_json(Json(*margin)));
    record.margin = margin->get<double>();
  }
  return record;
}

}  // namespace nought
