#include "nought/serve/reply_form.h"

#include "support/golden.h"
#include <gtest/gtest.h>

namespace nought::reply_form_test {
namespace {

TEST(ReplyForm, is_that_of_the_template) {
  struct Case {
    const char* file;
    ToolForm tools;
    ReasoningForm reasoning;
  };
  const auto tokenizer = make_tokenizer("bytes");
  for (const Case& each :
       {Case{"qwen2_5", ToolForm::hermes, ReasoningForm::none}, Case{"qwen3", ToolForm::hermes, ReasoningForm::qwen3},
        Case{"hermes_tools", ToolForm::hermes, ReasoningForm::none},
        Case{"llama3_1", ToolForm::llama3_json, ReasoningForm::none},
        Case{"mistral_v3", ToolForm::mistral, ReasoningForm::none},
        Case{"deepseek_r1", ToolForm::deepseek_v3, ReasoningForm::qwen3},
        Case{"gemma2", ToolForm::none, ReasoningForm::none}}) {
    const std::string path = test::golden_folder("chat") + "/" + each.file + ".jinja";
    const ChatTemplate chat(chat_source_for(path, "bytes", *tokenizer), *tokenizer);
    EXPECT_EQ(enum_name(tool_form_of(chat, *tokenizer)), enum_name(each.tools)) << each.file;
    EXPECT_EQ(enum_name(reasoning_form_of(chat, *tokenizer)), enum_name(each.reasoning)) << each.file;
  }
}

}  // namespace
}  // namespace nought::reply_form_test
