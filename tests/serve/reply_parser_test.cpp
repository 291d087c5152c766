#include "nought/serve/reply_parser.h"

#include <gtest/gtest.h>

namespace nought::reply_parser_test {
namespace {

using Kind = ReplyPart::Kind;

/// The parts of a text that comes in pieces of so many bytes, neighbours joined.
std::vector<ReplyPart> parts_of(const ReplyParser::Options& options, const std::string& text, size_t piece) {
  ReplyParser parser(options);
  std::vector<ReplyPart> all;
  const auto add = [&](const std::vector<ReplyPart>& parts) {
    for (const ReplyPart& part : parts)
      if (!all.empty() && all.back().kind == part.kind && part.kind != Kind::call)
        all.back().text += part.text;
      else
        all.push_back(part);
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser.push(std::string_view(text).substr(at, piece)));
  add(parser.finish());
  return all;
}

std::string shown(const std::vector<ReplyPart>& parts) {
  std::string text;
  for (const ReplyPart& part : parts)
    text += (part.kind == Kind::content     ? "content("
             : part.kind == Kind::reasoning ? "reasoning("
             : part.kind == Kind::call      ? "call("
                                            : "arguments(") +
            part.text + ")";
  return text;
}

struct Case {
  ToolForm tools;
  const char *text, *parts;
  ReasoningForm reasoning = ReasoningForm::none;
  bool thinks = false;
};

const std::vector<Case> kCases{
    {ToolForm::none, " a <tool_call> b ", "content( a <tool_call> b )"},
    {ToolForm::hermes, "Hi\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>",
     "content(Hi)call(f)arguments({\"a\": \"}\\\"\"})"},
    {ToolForm::hermes,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"x\":[1]},\"name\":\"g\"}"
     "</tool_call>\nDone. ",
     "call(f)arguments({})call(g)arguments({\"x\":[1]})content(Done. )"},
    {ToolForm::hermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "call(f)arguments({})"},
    {ToolForm::hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
     "call(f)arguments({\"a\": 1})"},
    {ToolForm::hermes, "a < b <tool_cal", "content(a < b <tool_cal)"},
    {ToolForm::hermes, "see <tool_call> here {", "content(see <tool_call> here {)"},
    {ToolForm::hermes, "<tool_call>{\"a\": 1} rest", "content(<tool_call>{\"a\": 1} rest)"},
    {ToolForm::hermes, "<tool_call>{\"name\": \"f\", \"argu", "content(<tool_call>{\"name\": \"f\", \"argu)"},
    {ToolForm::hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1,", "call(f)arguments({\"a\": [1,)"},
    {ToolForm::llama3_json, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "call(f)arguments({\"a\": 1})"},
    {ToolForm::llama3_json,
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}",
     "call(f)arguments({})call(f)arguments({})"},
    {ToolForm::llama3_json, "{\"name\": \"Bob\", \"age\": 3}", "content({\"name\": \"Bob\", \"age\": 3})"},
    {ToolForm::llama3_json, "So {\"name\": \"f\", \"parameters\": {}}",
     "content(So {\"name\": \"f\", \"parameters\": {}})"},
    {ToolForm::llama3_json, "<|python_tag|>print(1)", "content(<|python_tag|>print(1))"},
    {ToolForm::mistral,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
     "call(f)arguments({\"a\": 1})call(g)arguments({})"},
    {ToolForm::mistral, "Hm[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g{\"b\": {}}",
     "content(Hm)call(f)arguments({\"a\": 1})call(g)arguments({\"b\": {}})"},
    {ToolForm::deepseek_v3,
     "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
     "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "content(Yes.)call(f)arguments({\"a\": 1})call(g)arguments({})"},
    {ToolForm::hermes, "\n<think>\nHm, <tool_call>?\n</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>",
     "reasoning(Hm, <tool_call>?)call(f)arguments({})", ReasoningForm::qwen3},
    {ToolForm::none, "Hm.</think>A", "reasoning(Hm.)content(A)", ReasoningForm::qwen3, true},
    {ToolForm::none, "Hm.\n\n</think>\n\nA\n", "reasoning(Hm.)content(A\n)", ReasoningForm::deepseek_r1},
    {ToolForm::none, "Hm. \n", "reasoning(Hm.)", ReasoningForm::deepseek_r1},
    {ToolForm::none, " <b>", "content( <b>)", ReasoningForm::qwen3},
    {ToolForm::none, "<thi", "content(<thi)", ReasoningForm::qwen3}};

TEST(ReplyParser, parts_do_not_depend_on_how_the_text_comes) {
  for (const Case& each : kCases) {
    const ReplyParser::Options options{each.tools, each.reasoning, each.thinks, {"f", "g"}};
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}})
      EXPECT_EQ(shown(parts_of(options, each.text, piece)), each.parts) << piece << " bytes of " << each.text;
  }
}

TEST(ReplyParser, arguments_come_as_they_are_written) {
  ReplyParser parser({.tools = ToolForm::hermes});
  EXPECT_EQ(shown(parser.push("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"")), "call(f)arguments({\"a\")");
  EXPECT_EQ(shown(parser.push(": 1")), "arguments(: 1)");
  EXPECT_EQ(parser.whole_calls(), 0);
  EXPECT_EQ(shown(parser.push("}}")), "arguments(})");
  EXPECT_EQ(parser.calls(), 1);
  EXPECT_EQ(parser.whole_calls(), 1);
}

}  // namespace
}  // namespace nought::reply_parser_test
