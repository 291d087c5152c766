#include "nought/data/chat_template.h"

#include "support/byte_level.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace {

using test::byte_level_tokenizer;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<ChatMessage> kTalk{
    {"system", "Be kind."}, {"user", " Hi? "}, {"assistant", "Hello!"}, {"user", "Bye."}, {"assistant", "So long."}};

/// The conversation as its tokens spell it, what is a target in braces.
std::string marked(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<ChatMessage>& messages) {
  const ChatTemplate::Tokens tokens = chat.conversation(messages);
  EXPECT_EQ(tokens.ids.size(), tokens.targets.size());
  std::string text;
  bool open = false;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const bool target = tokens.targets[i] != 0;
    if (target != open) text += target ? "{" : "}";
    open = target;
    text += tokenizer.decode(std::span(&tokens.ids[i], 1));
  }
  return open ? text + "}" : text;
}

struct Case {
  ChatFormat format;
  std::vector<std::string> markers;
  std::string conversation, prompt;  // of kTalk, and of its first two messages
};

// As the models' own chat templates render them.
const std::vector<Case> kCases{
    {ChatFormat::chatml,
     {"<|im_start|>", "<|im_end|>"},
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi? <|im_end|>\n<|im_start|>assistant\n"
     "{Hello!<|im_end|>}\n<|im_start|>user\nBye.<|im_end|>\n<|im_start|>assistant\n{So long.<|im_end|>}\n",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi? <|im_end|>\n<|im_start|>assistant\n"},
    {ChatFormat::llama3,
     {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
     "{Hello!<|eot_id|>}<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n{So long.<|eot_id|>}",
     "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nHi?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {ChatFormat::mistral,
     {"<s>", "[INST]", "[/INST]", "</s>"},
     "<s>[INST] Be kind.\n\nHi?[/INST]{ Hello!</s>}[INST] Bye.[/INST]{ So long.</s>}",
     "<s>[INST] Be kind.\n\nHi?[/INST]"},
    {ChatFormat::zephyr,
     {"<s>", "</s>"},
     "<|system|>\nBe kind.</s>\n<|user|>\n Hi? </s>\n<|assistant|>\n{Hello!</s>}\n<|user|>\nBye.</s>\n"
     "<|assistant|>\n{So long.</s>}\n",
     "<|system|>\nBe kind.</s>\n<|user|>\n Hi? </s>\n<|assistant|>\n"},
    {ChatFormat::gemma,
     {"<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>"},
     "<bos><start_of_turn>user\nBe kind.\n\nHi?<end_of_turn>\n<start_of_turn>model\n{Hello!<end_of_turn>}\n"
     "<start_of_turn>user\nBye.<end_of_turn>\n<start_of_turn>model\n{So long.<end_of_turn>}\n",
     "<bos><start_of_turn>user\nBe kind.\n\nHi?<end_of_turn>\n<start_of_turn>model\n"},
    {ChatFormat::llama2,
     {"<s>", "</s>"},
     "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n Hi? [/INST]{ Hello! </s>}<s>[INST] Bye. [/INST]{ So long. </s>}",
     "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n Hi? [/INST]"},
    {ChatFormat::phi3,
     {"<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"},
     "<|system|>\nBe kind.<|end|>\n<|user|>\n Hi? <|end|>\n<|assistant|>\n{Hello!<|end|>}\n<|user|>\nBye.<|end|>\n"
     "<|assistant|>\n{So long.<|end|>}\n<|endoftext|>",
     "<|system|>\nBe kind.<|end|>\n<|user|>\n Hi? <|end|>\n<|assistant|>\n"},
    {ChatFormat::phi4_mini,
     {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"},
     "<|system|>Be kind.<|end|><|user|> Hi? <|end|><|assistant|>{Hello!<|end|>}<|user|>Bye.<|end|>"
     "<|assistant|>{So long.<|end|>}<|endoftext|>",
     "<|system|>Be kind.<|end|><|user|> Hi? <|end|><|assistant|>"},
    {ChatFormat::phi4,
     {"<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>"},
     "<|im_start|>system<|im_sep|>Be kind.<|im_end|><|im_start|>user<|im_sep|> Hi? <|im_end|>"
     "<|im_start|>assistant<|im_sep|>{Hello!<|im_end|>}<|im_start|>user<|im_sep|>Bye.<|im_end|>"
     "<|im_start|>assistant<|im_sep|>{So long.<|im_end|>}",
     "<|im_start|>system<|im_sep|>Be kind.<|im_end|><|im_start|>user<|im_sep|> Hi? <|im_end|>"
     "<|im_start|>assistant<|im_sep|>"},
    {ChatFormat::deepseek,
     {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
     "<｜begin▁of▁sentence｜>Be kind.\n\nUser:  Hi? \n\nAssistant:{ Hello!<｜end▁of▁sentence｜>}User: Bye.\n\n"
     "Assistant:{ So long.<｜end▁of▁sentence｜>}",
     "<｜begin▁of▁sentence｜>Be kind.\n\nUser:  Hi? \n\nAssistant:"},
    {ChatFormat::deepseek3,
     {"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
     "<｜begin▁of▁sentence｜>Be kind.<｜User｜> Hi? <｜Assistant｜>{Hello!<｜end▁of▁sentence｜>}<｜User｜>Bye."
     "<｜Assistant｜>{So long.<｜end▁of▁sentence｜>}",
     "<｜begin▁of▁sentence｜>Be kind.<｜User｜> Hi? <｜Assistant｜>"},
};

/// Of which a tokenizer's markers alone tell nothing, or another.
bool is_told_by_markers(ChatFormat format) {
  return format != ChatFormat::zephyr && format != ChatFormat::llama2 && format != ChatFormat::phi4_mini;
}

TEST(ChatTemplate, writes_as_the_models_own_templates_do_and_targets_what_the_assistant_says) {
  for (const Case& each : kCases) {
    const TempFolder folder;
    const auto tokenizer = byte_level_tokenizer(folder, each.markers);
    const ChatTemplate chat(each.format, *tokenizer);
    EXPECT_EQ(marked(chat, *tokenizer, kTalk), each.conversation);
    EXPECT_EQ(tokenizer->decode(chat.prompt(std::span(kTalk).first(2))), each.prompt);
    EXPECT_TRUE(chat.missing_markers().empty());
    if (is_told_by_markers(each.format)) {
      EXPECT_EQ(chat_format_of(*tokenizer), each.format);
    }
  }
}

TEST(ChatTemplate, markers_are_tokens_and_a_message_cannot_forge_them) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(folder, {"<|im_start|>", "<|im_end|>"});
  const ChatTemplate chat(ChatFormat::chatml, *tokenizer);
  const std::vector<int32_t> ids = chat.prompt(std::vector<ChatMessage>{{"user", "<|im_end|>"}});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 257), 1);
  EXPECT_THAT(chat.stop_ids(), ElementsAre(257));
}

TEST(ChatTemplate, markers_take_the_white_space_that_the_tokenizer_gives_them) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(
      folder, {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"}, /*strip_right=*/true);
  const ChatTemplate chat(ChatFormat::phi3, *tokenizer);
  EXPECT_EQ(marked(chat, *tokenizer, kTalk),
            "<|system|>Be kind.<|end|><|user|>Hi? <|end|><|assistant|>{Hello!<|end|>}<|user|>Bye.<|end|>"
            "<|assistant|>{So long.<|end|>}<|endoftext|>");
  // As the tokens of the whole text, which is what Hugging Face's tokenizers read.
  const std::string text = "<|user|>\n  a  b <|end|>\n<|assistant|>\n\n c<|end|>\n<|endoftext|>";
  EXPECT_EQ(chat.conversation(std::vector<ChatMessage>{{"user", "  a  b "}, {"assistant", "\n c"}}).ids,
            tokenizer->encode(text, {.specials = true}));
}

TEST(ChatTemplate, deepseek_3_has_all_system_messages_before_the_rest) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat(ChatFormat::deepseek3, *bytes);
  EXPECT_EQ(bytes->decode(chat.prompt(std::vector<ChatMessage>{{"user", "a"}, {"system", "x"}, {"system", "y"}})),
            "x\n\ny<｜User｜>a<｜Assistant｜>");
}

TEST(ChatTemplate, markers_that_a_tokenizer_lacks_are_written_as_text) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat(ChatFormat::chatml, *bytes);
  EXPECT_EQ(bytes->decode(chat.prompt(std::span(kTalk).first(2))), kCases[0].prompt);
  EXPECT_THAT(chat.missing_markers(), ElementsAre("<|im_start|>", "<|im_end|>"));
  EXPECT_THAT(message_of<ConfigError>([&] { chat.require_markers(); }),
              HasSubstr("data.add_special_tokens = [\"<|im_start|>\",\"<|im_end|>\"] with training.resize_vocab"));
  const std::vector<std::string> markers{"<|im_start|>", "<|im_end|>"};
  const auto more = make_tokenizer("bytes", markers);
  ChatTemplate(ChatFormat::chatml, *more).require_markers();
  ChatTemplate(ChatFormat::zephyr, *bytes).require_markers();  // its markers were text from the start
  EXPECT_THAT(message_of<ConfigError>([&] { chat_format_of(*bytes); }), HasSubstr("no markers of a known"));
}

TEST(ChatTemplate, what_a_notation_cannot_say_is_refused) {
  const auto bytes = make_tokenizer("bytes");
  const auto refusal = [&](ChatFormat format, const std::vector<ChatMessage>& messages) {
    return message_of<ConfigError>([&] { ChatTemplate(format, *bytes).conversation(messages); });
  };
  EXPECT_THAT(refusal(ChatFormat::chatml, {{"usr", "x"}}), HasSubstr("message 1 has the role \"usr\""));
  EXPECT_THAT(refusal(ChatFormat::gemma, {{"user", "x"}, {"user", "y"}}), HasSubstr("message 2 is the user's"));
  EXPECT_THAT(refusal(ChatFormat::mistral, {{"user", "x"}, {"system", "y"}}), HasSubstr("only as the first"));
  EXPECT_THAT(refusal(ChatFormat::zephyr, {}), HasSubstr("without messages"));
  EXPECT_THAT(message_of<ConfigError>([] { chat_format("chatlm"); }), HasSubstr("did you mean \"chatml\"?"));
}

TEST(ChatTemplate, a_folder_names_its_notation_by_its_program_or_by_its_tokenizer) {
  const TempFolder folder;
  const auto bytes = make_tokenizer("bytes");
  const auto found = [&] { return chat_format_in(folder.path(), *bytes); };
  EXPECT_THAT(message_of<ConfigError>(found), HasSubstr("no markers of a known chat template"));
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tools", "template": "x"},
                                     {"name": "default", "template": "{{ '<start_of_turn>' }}"}]})");
  EXPECT_EQ(found(), ChatFormat::gemma);
  folder.write("tokenizer_config.json", R"({"chat_template": "{{ '<|im_start|>' + message['role'] }}"})");
  EXPECT_EQ(found(), ChatFormat::chatml);
  folder.write("chat_template.jinja", "{{ '<|start_header_id|>' }}");
  EXPECT_EQ(found(), ChatFormat::llama3);
  const std::vector<std::pair<const char*, ChatFormat>> programs{
      {"{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
       "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}",
       ChatFormat::llama2},
      {"{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}",
       ChatFormat::phi3},
      {"{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{{ '<|assistant|>' }}{{ eos_token }}",
       ChatFormat::phi4_mini},
      {"{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}", ChatFormat::phi4},
      {"{{ bos_token }}{{ 'User: ' + message['content'] + '\\n\\n' }}{{ 'Assistant: ' + message['content'] + eos_token "
       "}}"
       "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
       ChatFormat::deepseek},
      {"{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}",
       ChatFormat::deepseek3},
      {"{{'<|user|>\\n' + message['content'] + eos_token}}{{ '<|assistant|>' }}", ChatFormat::zephyr}};
  for (const auto& [program, format] : programs) {
    folder.write("chat_template.jinja", program);
    EXPECT_EQ(found(), format) << program;
  }
  // Phi 3 medium, Phi 4 reasoning, DeepSeek R1 and gpt-oss, which write otherwise.
  for (const char* other :
       {"{{ bos_token }}<|user|>\\n<|end|><|assistant|>\\n", "<|im_start|>system<|im_sep|>You are Phi,",
        "<｜User｜><｜Assistant｜>{% if '</think>' in content %}", "<|start|>assistant<|end|>", "{{ x }}"}) {
    folder.write("chat_template.jinja", other);
    EXPECT_THAT(message_of<ConfigError>(found), HasSubstr("is none of chatml")) << other;
  }
}

}  // namespace
}  // namespace nought
