// The Jinja programs of named notations. That they render what ChatTemplate writes is seen by what interprets them.
#include "nought/data/chat_jinja.h"

#include "support/byte_level.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/chat_template.h"

namespace nought {
namespace {

using test::byte_level_tokenizer;
using test::TempFolder;
using testing::HasSubstr;
using testing::Not;

TEST(ChatJinja, the_program_of_chatml_is_the_one_that_people_write) {
  EXPECT_EQ(chat_jinja(ChatFormat::chatml, *make_tokenizer("bytes")),
            "{% for message in messages %}{% set content = message['content'] %}"
            "{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}"
            "{% elif message['role'] == 'user' %}{{ '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}"
            "{% elif message['role'] == 'system' %}{{ '<|im_start|>system\\n' + content + '<|im_end|>\\n' }}"
            "{% else %}{{ raise_exception('Roles are system, user and assistant') }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

TEST(ChatJinja, every_program_is_recognized_as_its_notation) {
  const TempFolder folder;
  const auto bytes = make_tokenizer("bytes");
  for (const auto& [format, name] : EnumNames<ChatFormat>::value) {
    folder.write("chat_template.jinja", chat_jinja(format, *bytes));
    EXPECT_EQ(chat_format_in(folder.path(), *bytes), format) << name;
  }
}

TEST(ChatJinja, a_marker_at_the_start_is_written_where_the_tokenizer_has_it) {
  const TempFolder folder;
  const auto with = byte_level_tokenizer(folder, {"<s>", "</s>"});
  EXPECT_THAT(chat_jinja(ChatFormat::mistral, *with), testing::StartsWith("{{ '<s>' }}"));
  EXPECT_THAT(chat_jinja(ChatFormat::mistral, *make_tokenizer("bytes")), Not(HasSubstr("<s>")));
  EXPECT_THAT(chat_jinja(ChatFormat::llama2, *with), HasSubstr("{{ '<s>' + '[INST] ' + content + ' [/INST]' }}"));
}

}  // namespace
}  // namespace nought
