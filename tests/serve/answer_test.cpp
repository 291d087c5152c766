#include "nought/serve/answer.h"

#include "serve/kept_reply.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::answer_test {
namespace {

/// What is answered to a request whose reply is this text, token by token.
std::string answer_of(AnswerOptions options, const std::string& text) {
  static const auto tokenizer = make_tokenizer("bytes");
  ServeMetrics metrics;
  options.chat = true;
  options.id = "chatcmpl-7";
  const auto reply = std::make_shared<test::KeptReply>();
  const auto answer = std::make_shared<Answer>(options, reply, *tokenizer, metrics);
  const std::shared_ptr<RequestListener> choice = answer->add_choice({1, 2}, true);
  choice->on_start(0);
  for (const int32_t id : tokenizer->encode(text))
    if (!choice->on_token({.id = id})) break;
  choice->on_end(FinishReason::stop, nullptr);
  return reply->text;
}

const std::string kReply =
    "<think>Two calls.</think>Well.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"
    "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
const AnswerOptions kTools{.parser = {.tools = ToolForm::hermes, .reasoning = ReasoningForm::qwen3}};

TEST(Answer, has_calls_and_thinking_beside_the_content) {
  const Json whole = Json::parse(answer_of(kTools, kReply));
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Well.");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Two calls.");
  EXPECT_EQ(
      choice["message"]["tool_calls"],
      Json::parse(R"([{"id": "call_7_0_0", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
                            {"id": "call_7_0_1", "type": "function", "function": {"name": "g", "arguments": "{}"}}])"));
  EXPECT_EQ(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 18);

  AnswerOptions one = kTools;
  one.parallel_calls = false;
  EXPECT_EQ(Json::parse(answer_of(one, kReply))["choices"][0]["message"]["tool_calls"].size(), 1u);
  const std::string called = kReply.substr(kReply.find("<tool_call>"));
  EXPECT_TRUE(Json::parse(answer_of(kTools, called))["choices"][0]["message"]["content"].is_null());
}

TEST(Answer, a_stream_of_calls_adds_up_to_them) {
  AnswerOptions options = kTools;
  options.stream = true;
  const std::string events = answer_of(options, kReply);
  std::string content, reasoning, why;
  Json calls = Json::array();
  for (size_t at = events.find("data: {"); at != std::string::npos; at = events.find("data: {", at + 1)) {
    const Json choice = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6))["choices"][0];
    const Json& delta = choice["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    if (choice["finish_reason"].is_string()) why = choice["finish_reason"].get<std::string>();
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    if (call.contains("id")) {
      EXPECT_EQ(call["index"], calls.size());
      EXPECT_EQ(call["function"]["arguments"], "");
      calls.push_back(call["function"]);
    } else {
      calls[call["index"].get<size_t>()]["arguments"].get_ref<std::string&>() +=
          call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(reasoning, "Two calls.");
  EXPECT_EQ(why, "tool_calls");
  EXPECT_EQ(calls, Json::parse(R"([{"name": "f", "arguments": "{\"a\": 1}"}, {"name": "g", "arguments": "{}"}])"));
}

}  // namespace
}  // namespace nought::answer_test
