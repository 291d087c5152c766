// Every form of a conversation gives the same messages, and what is none is refused by what it lacks.
#include "nought/chat/conversation.h"

#include <tuple>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::conversation_test {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> read(const std::string& line) {
  std::vector<std::string> messages;
  for (const ChatMessage& message : read_conversation(OrderedJson::parse(line)).messages)
    messages.push_back(message.role + ": " + message.content);
  return messages;
}

TEST(Conversation, every_form_gives_its_messages) {
  const std::vector<std::pair<ConversationForm, std::string>> lines{
      {ConversationForm::messages,
       R"({"messages": [{"role": "user", "content": "Hi\nyou"}, {"role": "assistant", "content": "Ho"}]})"},
      {ConversationForm::messages,
       R"([{"role": "user", "content": "Hi\nyou"}, {"role": "assistant", "content": "Ho"}])"},
      {ConversationForm::conversations,
       R"({"conversations": [{"from": "human", "value": "Hi\nyou"}, {"from": "gpt", "value": "Ho"}], "id": 3})"},
      {ConversationForm::instruction, R"({"instruction": "Hi", "input": "you", "output": "Ho", "text": "all of it"})"},
      {ConversationForm::prompt_completion, R"({"prompt": "Hi\nyou", "completion": "Ho"})"},
      {ConversationForm::prompt_completion,
       R"({"prompt": [{"role": "user", "content": "Hi\nyou"}], "completion": [{"role": "assistant", "content": "Ho"}]})"}};
  for (const auto& [form, line] : lines) {
    EXPECT_EQ(conversation_form(OrderedJson::parse(line)), form) << line;
    EXPECT_THAT(read(line), ElementsAre("user: Hi\nyou", "assistant: Ho")) << line;
  }
}

TEST(Conversation, an_instruction_may_have_a_system_message_a_history_and_no_input) {
  EXPECT_THAT(read(R"({"instruction": "And?", "input": "", "output": "No.", "system": "Be brief.",
                       "history": [["More?", "Yes."]]})"),
              ElementsAre("system: Be brief.", "user: More?", "assistant: Yes.", "user: And?", "assistant: No."));
  EXPECT_THAT(read(R"({"instruction": "And?", "input": null, "output": "No.", "history": null})"),
              ElementsAre("user: And?", "assistant: No."));
}

TEST(Conversation, tools_documents_and_calls_are_kept_for_the_template) {
  const ChatRecord record = read_conversation(OrderedJson::parse(
      R"({"tools": "[{\"name\": \"f\"}]", "documents": null, "chat_template_kwargs": {"enable_thinking": false},
          "messages": [{"role": "assistant", "tool_calls": [{"name": "f"}]},
                       {"role": "tool", "content": "x", "tool_call_id": "1"}]})"));
  EXPECT_EQ(record.variables.map()->values.size(), 2u);
  EXPECT_TRUE(record.variables.map()->find(jinja::from_utf8("tools"))->list());
  EXPECT_FALSE(record.variables.map()->find(jinja::from_utf8("enable_thinking"))->truth());
  EXPECT_EQ(record.messages[0].content, "");
  EXPECT_TRUE(record.messages[0].fields.map()->find(jinja::from_utf8("tool_calls")));
  EXPECT_TRUE(record.messages[1].fields.map()->find(jinja::from_utf8("tool_call_id")));
  EXPECT_THAT(message_of<ConfigError>([] { read(R"({"messages": [], "tools": 3})"); }), HasSubstr("\"tools\" is"));
}

TEST(Conversation, what_is_none_is_told_by_what_it_lacks) {
  for (const char* line : {R"({"text": "a"})", R"({"prompt": "a"})", R"({"instruction": "a"})", "\"a\"", "null"})
    EXPECT_EQ(conversation_form(OrderedJson::parse(line)), std::nullopt) << line;
  const auto error_of = [](const std::string& line) { return message_of<ConfigError>([&] { read(line); }); };
  EXPECT_THAT(error_of(R"({"text": "a"})"), HasSubstr("neither \"messages\" nor \"conversations\""));
  EXPECT_THAT(error_of(R"({"messages": 3})"), HasSubstr("expected a list of messages"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user"}]})"), HasSubstr("message 1 has no \"content\""));
  EXPECT_THAT(error_of(R"({"prompt": "a", "completion": 3})"), HasSubstr("\"completion\" is"));
  EXPECT_THAT(error_of(R"({"instruction": 1, "output": "a"})"), HasSubstr("\"instruction\" is"));
  EXPECT_THAT(error_of(R"({"instruction": "a", "output": "b", "history": [["c"]]})"),
              HasSubstr("expected [question, answer]"));
}

}  // namespace
}  // namespace nought::conversation_test
