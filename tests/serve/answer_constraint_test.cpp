#include "nought/serve/answer_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/grammar/grammar_states.h"

namespace nought::answer_constraint_test {
namespace {

bool takes(const AnswerConstraint& constraint, const ReplyParser::Options& reply, std::string_view text) {
  GrammarStates states(constraint.grammar(reply));
  const GrammarStates::State at = states.next(states.start(), text);
  return at != GrammarStates::kDead && states.ends(at);
}

/// The arguments of the first call that the parser finds.
std::string arguments_of(const ReplyParser::Options& reply, const std::string& text) {
  ReplyParser parser(reply);
  std::string arguments;
  std::vector<ReplyPart> parts = parser.push(text);
  for (const ReplyPart& part : parts)
    if (part.kind == ReplyPart::Kind::arguments) arguments += part.text;
  return parser.whole_calls() == 1 ? arguments : "";
}

TEST(AnswerConstraint, forced_calls_are_those_that_the_parser_reads) {
  const AnswerConstraint forced{
      .tools = {{.name = "f", .parameters = OrderedJson::parse(R"({"properties": {"a": {"const": 1}},
    "required": ["a"]})")}},
      .must_call = true};
  for (const auto& [form, text] : std::vector<std::pair<ToolForm, std::string>>{
           {ToolForm::hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
           {ToolForm::llama3_json, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"},
           {ToolForm::mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"},
           {ToolForm::deepseek_v3,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}}) {
    const ReplyParser::Options reply{.tools = form, .tool_names = {"f"}};
    EXPECT_TRUE(takes(forced, reply, text)) << text;
    EXPECT_EQ(arguments_of(reply, text), "{\"a\": 1}") << text;
    EXPECT_FALSE(takes(forced, reply, "Hello."));
    std::string other = text;
    other[other.find('1')] = '2';
    EXPECT_FALSE(takes(forced, reply, other));
  }
}

TEST(AnswerConstraint, strict_tools_leave_the_text_before_calls_free) {
  const ReplyParser::Options reply{.tools = ToolForm::hermes};
  const AnswerConstraint strict{
      .tools = {
          {.name = "f", .parameters = OrderedJson::parse(R"({"type": "object", "properties": {}})"), .strict = true}}};
  EXPECT_TRUE(strict.constrains());
  EXPECT_TRUE(takes(strict, reply, "Just <text> {."));
  EXPECT_TRUE(takes(strict, reply, "Hm. <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes(strict, reply, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_FALSE(takes(strict, reply, "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"));
}

TEST(AnswerConstraint, json_begins_behind_the_thinking) {
  const AnswerConstraint object{.format = AnswerConstraint::Format::object};
  const ReplyParser::Options opened{.reasoning = ReasoningForm::qwen3, .thinks = true};
  EXPECT_TRUE(takes(object, opened, "{ hm }</think>\n\n{}"));
  EXPECT_FALSE(takes(object, opened, "{}"));
  const ReplyParser::Options open{.reasoning = ReasoningForm::qwen3};
  EXPECT_TRUE(takes(object, open, "<think>Hm</think>\n{\"a\": [1]}"));
  EXPECT_TRUE(takes(object, open, "{}"));
  EXPECT_FALSE(takes(object, {}, "<think>Hm</think>{}"));
}

TEST(AnswerConstraint, masks_of_equal_constraints_are_shared) {
  const auto tokenizer = make_tokenizer("bytes");
  AnswerMasks masks(*tokenizer);
  AnswerConstraint constraint{.format = AnswerConstraint::Format::object};
  const auto first = masks.of(constraint, {});
  EXPECT_EQ(masks.of(constraint, {}), first);
  EXPECT_NE(masks.of(constraint, {.reasoning = ReasoningForm::qwen3}), first);
}

}  // namespace
}  // namespace nought::answer_constraint_test
