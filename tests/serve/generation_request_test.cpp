#include "nought/serve/generation_request.h"

#include "support/golden.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::generation_request_test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A model with one of the golden chat templates, whose tokens are bytes.
struct Templated {
  explicit Templated(const std::string& file)
      : chat(chat_source_for(test::golden_folder("chat") + "/" + file + ".jinja", "bytes", *tokenizer), *tokenizer) {
    model.tool_form = tool_form_of(chat, *tokenizer);
    model.reasoning_form = reasoning_form_of(chat, *tokenizer);
  }
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("bytes");
  ChatTemplate chat;
  ServedModel model{.name = "m", .tokenizer = *tokenizer, .chat = &chat, .vocab_size = 256, .max_context = 8192};
};

const Json kBody = Json::parse(R"({
  "messages": [{"role": "user", "content": "Weather?"},
               {"role": "assistant", "content": null, "tool_calls": [
                 {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": "{\"at\": \"Ulm\"}"}}]},
               {"role": "tool", "tool_call_id": "call00001", "content": "Rain."}],
  "tools": [{"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]})");

TEST(GenerationRequest, tools_and_their_calls_reach_the_template) {
  const Templated qwen("qwen2_5"), mistral("mistral_v3");
  Json body = kBody;
  const GenerationRequest read = read_chat_completion(body.dump(), qwen.model, 1);
  const std::string prompt = qwen.tokenizer->decode(read.prompts[0]);
  EXPECT_THAT(prompt, HasSubstr(R"("description": "Tells it")"));
  EXPECT_THAT(prompt, HasSubstr(R"({"name": "weather", "arguments": {"at": "Ulm"}})"));
  EXPECT_THAT(prompt, HasSubstr("<tool_response>\nRain."));
  EXPECT_EQ(read.answer.parser.tools, ToolForm::hermes);
  EXPECT_EQ(read.answer.parser.tool_names, std::vector<std::string>{"weather"});
  EXPECT_THAT(mistral.tokenizer->decode(read_chat_completion(body.dump(), mistral.model, 1).prompts[0]),
              HasSubstr("call00001"));

  body["tool_choice"] = "none";
  const GenerationRequest none = read_chat_completion(body.dump(), qwen.model, 1);
  EXPECT_THAT(qwen.tokenizer->decode(none.prompts[0]), Not(HasSubstr("Tells it")));
  EXPECT_EQ(none.answer.parser.tools, ToolForm::none);
}

TEST(GenerationRequest, thinking_begins_where_the_prompt_opens_it) {
  const Templated qwen("qwen3");
  Json body{{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  const auto parser = [&] { return read_chat_completion(body.dump(), qwen.model, 1).answer.parser; };
  EXPECT_EQ(parser().reasoning, ReasoningForm::qwen3);
  EXPECT_FALSE(parser().thinks);
  body["messages"][0]["content"] = "<think>";
  EXPECT_FALSE(parser().thinks);
  const Templated opens("deepseek_r1");
  EXPECT_TRUE(read_chat_completion(body.dump(), opens.model, 1).answer.parser.thinks);
}

}  // namespace
}  // namespace nought::generation_request_test
