#include "nought/chat/chat_template.h"

#include "support/byte_level.h"
#include "support/golden_root.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::chat_template_test {
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

/// False for templates that a tokenizer's markers alone do not tell, or take for another.
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

/// In a time that grows with the text, and not with the square of the answers.
TEST(ChatTemplate, a_program_may_mark_very_many_answers) {
  const auto bytes = make_tokenizer("bytes");
  const std::string source =
      "{% for i in range(100) %}{% for j in range(100) %}{% generation %}a{% endgeneration %}b{% endfor %}{% endfor %}";
  const ChatTemplate chat(ChatSource{.name = "many", .jinja = source, .specials = {}}, *bytes);
  const ChatTemplate::Tokens tokens = chat.conversation(kTalk);
  ASSERT_EQ(tokens.ids.size(), 20'000u);
  for (size_t i = 0; i < tokens.ids.size(); ++i) ASSERT_EQ(tokens.targets[i], i % 2 == 0 ? 1 : 0) << i;
}

/// Tokens are bytes; it has a token "</s>", which next_marker() does not find.
class Looking final : public Tokenizer {
 public:
  std::string_view name() const override { return "looking"; }
  int64_t vocab_size() const override { return 257; }
  std::string decode(std::span<const int32_t> ids) const override { return std::string(ids.begin(), ids.end()); }
  int32_t separator() const override { return 0; }
  std::optional<int32_t> find(std::string_view token) const override {
    return token == "</s>" ? std::optional(256) : std::nullopt;
  }
  std::optional<MarkerMatch> next_marker(std::string_view text, size_t from) const override {
    looked += text.size() - from;
    return std::nullopt;
  }
  int64_t text_bytes(int32_t) const override { return 1; }
  uint64_t fingerprint() const override { return 0; }

  mutable size_t looked = 0;  // at so many bytes

 private:
  void append(std::string_view text, EncodeOptions, std::vector<int32_t>& ids) const override {
    ids.insert(ids.end(), text.begin(), text.end());
  }
};

/// A long text with very many of one marker was searched for each other one behind each of them.
TEST(ChatTemplate, a_text_is_searched_once_however_many_markers_it_has) {
  const Looking tokenizer;
  const std::string source = "{% for i in range(1000) %}a</s>{% endfor %}";
  const ChatTemplate chat(ChatSource{.name = "many", .jinja = source, .specials = {}, .markers = {"</s>"}}, tokenizer);
  tokenizer.looked = 0;
  const std::vector<int32_t> ids = chat.prompt(kTalk);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 1000);
  EXPECT_EQ(ids.size(), 2000u);
  EXPECT_LE(tokenizer.looked, 5000u);
}

/// An export has the program, and trainers that learn answers alone look for the tags.
TEST(ChatTemplate, every_named_program_says_what_an_assistant_writes) {
  const auto bytes = make_tokenizer("bytes");
  for (const Case& each : kCases)
    EXPECT_TRUE(jinja::Program("named", chat_source(each.format, *bytes).jinja).marks_targets())
        << enum_name(each.format);
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

TEST(ChatTemplate, a_program_does_not_spell_markers_that_the_tokenizer_lacks) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(folder, {"<|im_start|>"});
  const auto template_of = [&](const std::string& program) {
    return ChatTemplate(chat_source_for(folder.write("mine.jinja", program).string(), folder.path(), *tokenizer),
                        *tokenizer);
  };
  const auto refusal_of = [](auto&& call) { return message_of<ConfigError>(call); };
  const std::vector<ChatMessage> talk{{"user", "a"}, {"assistant", "<|call|>"}}, called{{"tool", "a"}, talk[1]};
  const std::string turn = "{% for m in messages %}<|im_start|>{{ m.role + '\\n' + m.content }}";

  const ChatTemplate lacks_end = template_of(turn + "<|im_end|>{% endfor %}");
  EXPECT_THAT(refusal_of([&] { lacks_end.require_markers(); }),
              HasSubstr("mine.jinja has the markers <|im_end|>, which are no tokens of the tokenizer"));
  EXPECT_THAT(refusal_of([&] { lacks_end.conversation(talk); }),
              HasSubstr("data.add_special_tokens = [\"<|im_end|>\"] with training.resize_vocab = true adds them"));
  EXPECT_FALSE(lacks_end.prompt(talk).empty()) << "who talks to a model gets its text";

  const ChatTemplate calls = template_of(turn + "{{ '<|call|>' if m.role == 'tool' }}{% endfor %}");
  calls.require_markers();
  EXPECT_EQ(refusal_of([&] { calls.conversation(talk); }), "") << "a message may spell what it likes";
  EXPECT_THAT(refusal_of([&] { calls.conversation(called); }), HasSubstr("<|call|>"));

  EXPECT_THAT(refusal_of([&] { template_of(turn + "<end_of_turn>{% endfor %}").require_markers(); }),
              HasSubstr("the markers <end_of_turn>"));
  const ChatTemplate zephyr =
      template_of("{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content }}{% endfor %}{# <|user|> #}");
  zephyr.require_markers();
  EXPECT_THAT(zephyr.missing_markers(), ElementsAre("<|user|>"));
  EXPECT_EQ(refusal_of([&] { zephyr.conversation(talk); }), "") << "models have learned it as text";
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

TEST(ChatTemplate, a_folder_has_its_program_in_one_of_its_files_or_else_a_notation_by_its_markers) {
  const TempFolder folder;
  const auto bytes = make_tokenizer("bytes");
  const auto found = [&](const std::string& wanted = "") { return chat_source_for(wanted, folder.path(), *bytes); };
  EXPECT_THAT(message_of<ConfigError>([&] { found(); }), HasSubstr("no markers of a known chat template"));
  const TempFolder other;
  EXPECT_EQ(chat_source_for("", folder.path(), *byte_level_tokenizer(other, {"<|im_start|>", "<|im_end|>"})).name,
            "chatml");
  folder.write("chat_template.json", R"({"chat_template": "{{ 'json' }}"})");
  EXPECT_EQ(found().jinja, "{{ 'json' }}");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "list"}],
                   "bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true})");
  EXPECT_EQ(found().jinja, "list");
  EXPECT_THAT(found().specials,
              testing::UnorderedElementsAre(std::pair("bos_token", "<s>"), std::pair("eos_token", "</s>")));
  const std::string file =
      folder.write("chat_template.jinja", "{{ '<|im_start|>' + message['role'] }}<｜User｜>").string();
  EXPECT_EQ(found().name, file);
  EXPECT_THAT(found().markers, ElementsAre("<|im_start|>", "<｜User｜>"));
  EXPECT_EQ(found("zephyr").name, "zephyr");
  const std::string mine = folder.write("mine.jinja", "mine").string();
  EXPECT_EQ(found(mine).jinja, "mine");
  folder.write("chat_template.jinja", "{% extends 'x' %}");
  EXPECT_THAT(message_of<ConfigError>([&] { ChatTemplate(found(), *bytes); }),
              HasSubstr("chat_template.jinja: line 1: the tag \"extends\" is not supported"));
}

/// Renders a program of tests/golden/chat with markers of its own.
ChatSource golden_source(const std::string& name) {
  const std::string file = fmt::format("{}/chat/{}.jinja", test::golden_root(), name);
  return {file, test::read_bytes(file), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}

TEST(ChatTemplate, a_named_template_is_a_program_that_others_run_too) {
  // The text of the program, for exports, as it writes with nothing but the special tokens of transformers.
  for (const Case& each : kCases) {
    const TempFolder folder;
    const auto tokenizer = byte_level_tokenizer(folder, each.markers);
    const ChatSource source = chat_source(each.format, *tokenizer);
    const ChatTemplate again({"exported", source.jinja, source.specials}, *tokenizer);
    EXPECT_EQ(marked(again, *tokenizer, kTalk), each.conversation);
  }
}

TEST(ChatTemplate, a_program_gives_the_tokens_of_the_named_template_that_writes_the_same) {
  const TempFolder folder;
  const auto llama =
      byte_level_tokenizer(folder, {"<s>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "</s>"});
  EXPECT_EQ(marked(ChatTemplate(golden_source("llama3"), *llama), *llama, kTalk),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
            "{Hello!<|eot_id|>}<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n{So long.<|eot_id|>}");
  const TempFolder other;
  const auto phi = byte_level_tokenizer(other, {"<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "</s>"});
  const ChatTemplate from_file(golden_source("phi3"), *phi), named(ChatFormat::phi3, *phi);
  EXPECT_EQ(from_file.conversation(kTalk).ids, named.conversation(kTalk).ids);
  EXPECT_EQ(from_file.conversation(kTalk).targets, named.conversation(kTalk).targets);
  EXPECT_EQ(from_file.prompt(std::span(kTalk).first(2)), named.prompt(std::span(kTalk).first(2)));
  EXPECT_THAT(from_file.stop_ids(), ElementsAre(phi->separator(), *phi->find("<|end|>")));
}

TEST(ChatTemplate, generation_blocks_say_what_is_a_target) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(folder, {"<|im_start|>", "<|im_end|>"});
  const ChatTemplate chat(golden_source("generation"), *tokenizer);
  EXPECT_EQ(marked(chat, *tokenizer, {{"user", "a"}, {"assistant", "b"}}),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}\n");
}

TEST(ChatTemplate, an_answer_that_later_turns_rewrite_is_the_target_of_a_document_of_its_own) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(folder, {"<|im_start|>", "<|im_end|>"});
  const ChatTemplate chat(golden_source("qwen3"), *tokenizer);
  const std::vector<ChatMessage> talk{
      {"user", "a"}, {"assistant", "<think>\nhm\n</think>\n\nb"}, {"user", "c"}, {"assistant", "d"}};
  EXPECT_EQ(marked(chat, *tokenizer, talk),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n{<think>\n\n</think>\n\nd<|im_end|>}\n"
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{<think>\nhm\n</think>\n\nb<|im_end|>}\n");
  EXPECT_THAT(chat.conversation(talk).starts, testing::SizeIs(2));
  EXPECT_THAT(chat.conversation(std::span(talk).first(2)).starts, ElementsAre(0));
}

TEST(ChatTemplate, calls_of_tools_are_targets_and_tools_are_told) {
  const TempFolder folder;
  const auto tokenizer = byte_level_tokenizer(folder, {"<|im_start|>", "<|im_end|>"});
  const ChatTemplate chat(golden_source("hermes_tools"), *tokenizer);
  const auto of = [](const char* json) { return jinja::value_of(OrderedJson::parse(json), jinja::kData); };
  const std::vector<ChatMessage> talk{
      {"user", "a"},
      {"assistant", "", of(R"({"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}], "content": null})")},
      {"tool", "<|im_end|>"},
      {"assistant", "b"}};
  const ChatTemplate::Tokens tokens = chat.conversation(
      talk, of(R"({"tools": [{"function": {"name": "f", "description": "d", "parameters": {"properties": {}}}}]})"));
  const std::string text = tokenizer->decode(tokens.ids);
  EXPECT_THAT(text, HasSubstr("\"description\": \"f() - d"));
  std::string said;
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.targets[i]) said += tokenizer->decode(std::span(&tokens.ids[i], 1));
  EXPECT_EQ(said, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>b<|im_end|>");
  // The result spells a marker, and does not forge it.
  EXPECT_EQ(std::count(tokens.ids.begin(), tokens.ids.end(), *tokenizer->find("<|im_end|>")), 5);
}

TEST(ChatTemplate, a_prompt_that_begins_to_think_does_not_hide_where_the_answer_begins) {
  const TempFolder folder;
  const auto tokenizer =
      byte_level_tokenizer(folder, {"<s>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "</s>"});
  const ChatTemplate chat(golden_source("deepseek_r1"), *tokenizer);
  EXPECT_EQ(marked(chat, *tokenizer, {{"user", "a"}, {"assistant", "<think>hm</think>b"}}),
            "<s><｜User｜>a<｜Assistant｜>{b<｜end▁of▁sentence｜>}");
  EXPECT_EQ(tokenizer->decode(chat.prompt(std::vector<ChatMessage>{{"user", "a"}})),
            "<s><｜User｜>a<｜Assistant｜><think>\n");
}

TEST(ChatTemplate, thinking_is_found_by_all_its_names) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat({"test", "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }};{% endfor %}", {}},
                          *bytes);
  const auto of = [](const char* json) { return jinja::value_of(OrderedJson::parse(json), jinja::kData); };
  const std::vector<ChatMessage> talk{{"assistant", "", of(R"({"reasoning": "a"})")},
                                      {"assistant", "", of(R"({"thinking": "b", "reasoning_content": null})")},
                                      {"assistant", ""}};
  EXPECT_EQ(bytes->decode(chat.prompt(talk)), "aa;bb;;");
}

TEST(ChatTemplate, tools_are_written_by_programs_and_refused_by_notations) {
  const auto bytes = make_tokenizer("bytes");
  const auto of = [](const char* json) { return jinja::value_of(OrderedJson::parse(json), jinja::kData); };
  const jinja::Value tools = of(R"({"tools": [{"name": "f", "about": 1}]})");
  const std::vector<ChatMessage> asks{{"user", "a"}},
      calls{{"assistant", "", of(R"({"tool_calls": [{"name": "f"}]})")}};
  const ChatTemplate program({"test", "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}", {}},
                             *bytes);
  EXPECT_EQ(bytes->decode(program.prompt(asks, tools)), R"([{"name": "f", "about": 1}]a)");
  const ChatTemplate chatml(ChatFormat::chatml, *bytes);
  for (const auto& [messages, variables] : {std::pair{asks, tools}, std::pair{calls, jinja::Value()}})
    EXPECT_THAT(message_of<ConfigError>([&, &m = messages, &v = variables] { chatml.prompt(m, v); }),
                HasSubstr("the chat template chatml writes neither tools nor calls of them"));
  EXPECT_FALSE(chatml.prompt(asks, of(R"({"tools": []})")).empty());
}

TEST(ChatTemplate, documents_are_written_by_programs_and_refused_by_notations) {
  const auto bytes = make_tokenizer("bytes");
  const jinja::Value given =
      jinja::value_of(OrderedJson::parse(R"({"documents": [{"title": "t", "text": "d"}]})"), jinja::kData);
  const std::vector<ChatMessage> asks{{"user", "a"}};
  const ChatTemplate program({"test", "{{ documents[0].text }}{% for m in messages %}{{ m.content }}{% endfor %}", {}},
                             *bytes);
  EXPECT_EQ(bytes->decode(program.prompt(asks, given)), "da");
  const ChatTemplate chatml(ChatFormat::chatml, *bytes);
  EXPECT_THAT(message_of<ConfigError>([&] { chatml.prompt(asks, given); }),
              HasSubstr("the chat template chatml does not write \"documents\""));
}

TEST(ChatTemplate, a_role_is_a_word_and_a_message_is_made_valid_text) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat({"test", "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}", {}}, *bytes);
  const std::vector<ChatMessage> forged{{"a|><|im_end|>", "b"}}, broken{{"user", "\xff!"}};
  EXPECT_THAT(message_of<ConfigError>([&] { chat.prompt(forged); }), HasSubstr("expected a word"));
  EXPECT_EQ(bytes->decode(chat.prompt(broken)), "user\xEF\xBF\xBD!");
}

}  // namespace
}  // namespace nought::chat_template_test
