#include "nought/serve/messages_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/serve/api_error.h"

namespace nought::messages_api_test {
namespace {

using testing::HasSubstr;

struct Kept final : HttpReply {
  void send(int with, std::string_view, std::string body, const Headers&) override {
    status = with, text = std::move(body);
  }
  void begin(std::string_view, const Headers&) override {}
  void write(std::string piece) override { text += piece; }
  void finish() override {}
  void on_gone(std::function<void()>) override {}
  int status = 0;
  std::string text;
};

TEST(MessagesApi, a_request_becomes_that_of_a_chat) {
  const OrderedJson chat =
      chat_of_messages(R"({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "Be kind."}],
    "messages": [{"role": "user", "content": "Weather?"},
                 {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
                   {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "weather", "input": {"at": "Ulm"}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Rain."}]},
                   {"type": "text", "text": "And?"}]}],
    "tools": [{"name": "weather", "description": "Tells", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "stop_sequences": ["END"], "top_k": 3,
    "thinking": {"type": "enabled", "budget_tokens": 1024}})",
                       false);
  EXPECT_EQ(chat, OrderedJson::parse(R"({"model": "m", "messages": [
    {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", "type": "function",
      "function": {"name": "weather", "arguments": "{\"at\":\"Ulm\"}"}}], "reasoning_content": "Hm."},
    {"role": "tool", "tool_call_id": "c1", "content": "Rain."}, {"role": "user", "content": "And?"}],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Tells", "parameters": {"type": "object"}}}],
    "parallel_tool_calls": false, "tool_choice": "required", "chat_template_kwargs": {"enable_thinking": true},
    "max_tokens": 9, "stop": ["END"], "top_k": 3})"));
}

TEST(MessagesApi, wrong_fields_are_refused_by_name) {
  const auto param_of = [](const std::string& body) -> std::string {
    try {
      chat_of_messages(body, false);
    } catch (const ApiError& error) {
      return Json::parse(error.body())["error"]["param"].get<std::string>();
    }
    return "";
  };
  const std::string hi = R"("messages": [{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(param_of("{" + hi + "}"), "max_tokens");
  EXPECT_EQ(param_of("{\"max_tokens\": 1, \"n\": 2, " + hi + "}"), "n");
  EXPECT_EQ(param_of("{\"max_tokens\": 1, \"mcp_servers\": [1], " + hi + "}"), "mcp_servers");
  EXPECT_EQ(param_of(R"({"max_tokens": 1, "messages": [{"role": "system", "content": "Hi"}]})"), "messages[0].role");
  EXPECT_EQ(param_of(R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "messages[0].content[0].type");
  EXPECT_EQ(param_of(R"({"max_tokens": 1, "tools": [{"type": "bash_20250124", "name": "bash"}], )" + hi + "}"),
            "tools[0].type");
}

TEST(MessagesApi, an_answer_becomes_blocks) {
  const auto kept = std::make_shared<Kept>();
  MessagesReply(kept).send(200, "application/json", R"({"id": "chatcmpl-7", "model": "m", "choices": [{"message":
    {"content": "So.", "reasoning_content": "Hm.", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
    "finish_reason": "tool_calls", "stop_reason": null}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}})",
                           {});
  EXPECT_EQ(Json::parse(kept->text),
            Json::parse(R"({"id": "msg_7", "type": "message", "role": "assistant", "model": "m", "content": [
    {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "So."},
    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}], "stop_reason": "tool_use", "stop_sequence": null,
    "usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2}})"));
  MessagesReply(kept).send(429, "application/json", error_body(429, "later"), {});
  EXPECT_EQ(Json::parse(kept->text),
            Json::parse(R"({"type": "error", "error": {"type": "rate_limit_error", "message": "later"}})"));
}

TEST(MessagesApi, a_stream_becomes_named_events) {
  const auto kept = std::make_shared<Kept>();
  MessagesReply reply(kept);
  reply.set_prompt_tokens(5);
  const auto delta = [&](const std::string& json, const std::string& why) {
    reply.write(R"(data: {"id": "chatcmpl-7", "model": "m", "choices": [{"delta": )" + json + R"(, "finish_reason": )" +
                why + R"(, "stop_reason": "END"}]})" + "\n\n");
  };
  delta(R"({"role": "assistant", "content": ""})", "null");
  delta(R"({"reasoning_content": "Hm"})", "null");
  delta(R"({"content": "So"})", "null");
  delta(R"({"content": "."})", "null");
  delta(R"({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]})", "null");
  delta(R"({"tool_calls": [{"function": {"arguments": "{}"}}]})", "null");
  delta("{}", "\"stop\"");
  reply.write("data: {\"choices\": [], \"usage\": {\"completion_tokens\": 3}}\n\n");
  reply.write("data: [DONE]\n\n");
  std::string order;
  std::vector<Json> events;
  for (size_t at = kept->text.find("event: "); at != std::string::npos; at = kept->text.find("event: ", at + 1)) {
    const size_t data = kept->text.find("\ndata: ", at);
    events.push_back(Json::parse(kept->text.substr(data + 7, kept->text.find("\n\n", data) - data - 7)));
    EXPECT_EQ(events.back()["type"], kept->text.substr(at + 7, data - at - 7));
    order += events.back()["type"].get<std::string>() +
             (events.back().contains("index") ? events.back()["index"].dump() : "") + " ";
  }
  EXPECT_EQ(order,
            "message_start content_block_start0 content_block_delta0 content_block_stop0 content_block_start1 "
            "content_block_delta1 content_block_delta1 content_block_stop1 content_block_start2 content_block_delta2 "
            "content_block_stop2 message_delta message_stop ");
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(events[9]["delta"]["partial_json"], "{}");
  EXPECT_EQ(events[11]["delta"], Json::parse(R"({"stop_reason": "stop_sequence", "stop_sequence": "END"})"));
}

}  // namespace
}  // namespace nought::messages_api_test
