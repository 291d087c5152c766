#include "nought/serve/responses_api.h"

#include "serve/kept_reply.h"
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/serve/api_error.h"

namespace nought::responses_api_test {
namespace {

TEST(ResponsesApi, a_request_becomes_that_of_a_chat) {
  EXPECT_EQ(chat_of_response(R"({"model": "m", "instructions": "Be kind.", "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
      {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
      {"type": "function_call", "id": "fc", "call_id": "c1", "name": "weather", "arguments": "{}"},
      {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c1", "output": "Rain."}],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": true}],
    "tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 9,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}, "store": false})"),
            OrderedJson::parse(
                R"({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "Rain."}],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}, "strict": true}}],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, "max_tokens": 9, "model": "m"})"));
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input": "Hi", "previous_response_id": "resp_1"})", "previous_response_id"},
           {R"({"input": "Hi", "tools": [{"type": "web_search"}]})", "tools[0].type"},
           {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type"},
           {R"({"input": []})", "input"}}) {
    try {
      chat_of_response(body);
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      EXPECT_EQ(Json::parse(error.body())["error"]["param"], param);
    }
  }
}

TEST(ResponsesApi, a_stream_ends_with_what_a_whole_answer_is) {
  const auto kept = std::make_shared<test::KeptReply>();
  ResponseReply whole(kept);
  whole.set_request({{"input", "Hi"}});
  whole.send(200, "application/json", R"({"id": "chatcmpl-7", "created": 3, "model": "m", "choices": [{"message":
    {"content": "So.", "reasoning_content": "Hm.", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 1}}})",
             {});
  const Json answer = Json::parse(kept->text);
  ASSERT_EQ(answer["output"].size(), 3u) << answer;
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "So.");
  EXPECT_EQ(answer["output"][2]["call_id"], "c");
  EXPECT_EQ(answer["usage"]["output_tokens"], 3);

  kept->text.clear();
  ResponseReply stream(kept);
  stream.set_request({{"input", "Hi"}, {"stream", true}});
  const auto write = [&](const std::string& rest) {
    stream.write(R"(data: {"id": "chatcmpl-7", "created": 3, "model": "m", )" + rest + "}\n\n");
  };
  for (const char* delta :
       {R"({"role": "assistant", "content": ""})", R"({"reasoning_content": "H"})", R"({"reasoning_content": "m."})",
        R"({"content": "So."})", R"({"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]})",
        R"({"tool_calls": [{"function": {"arguments": "{}"}}]})"})
    write(R"("choices": [{"finish_reason": null, "delta": )" + std::string(delta) + "}]");
  write(R"("choices": [{"finish_reason": "tool_calls", "delta": {}}])");
  write(R"("choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 1}})");
  std::vector<Json> events;
  for (size_t at = kept->text.find("\ndata: "); at != std::string::npos; at = kept->text.find("\ndata: ", at + 1))
    events.push_back(Json::parse(kept->text.substr(at + 7, kept->text.find("\n\n", at) - at - 7)));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"], answer["output"]);
  EXPECT_EQ(events.back()["response"]["usage"], answer["usage"]);
}

}  // namespace
}  // namespace nought::responses_api_test
