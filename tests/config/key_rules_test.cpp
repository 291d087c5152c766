#include "nought/config/key_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::key_rules_test {
namespace {

constexpr KeyRule kIdle{"idle", "true | 3", KeyStatus::no_effect, "nothing reads it"};
constexpr KeyRule kRefused{"no", "1", KeyStatus::refused, "not here"};
constexpr KeyRule kAbsent{"absent", "null", KeyStatus::refused, "write another"};

TEST(KeyRules, what_is_accepted_says_nothing) {
  for (const Json& value : {Json(true), Json(3), Json(3.0), Json(nullptr), Json("auto")}) {
    EXPECT_EQ(judge(value, kIdle, "f: idle").mistake, "") << value;
    EXPECT_EQ(judge(value, kIdle, "f: idle").warning, "") << value;
  }
}

TEST(KeyRules, another_value_is_a_warning_or_a_mistake_with_the_reason) {
  EXPECT_EQ(judge(false, kIdle, "f: idle").warning, "f: idle = false has no effect: nothing reads it");
  EXPECT_EQ(judge(2, kRefused, "f: no").mistake, "f: no = 2 is not supported: not here; only 1 is accepted");
  EXPECT_EQ(judge(2, kAbsent, "f: absent").mistake, "f: absent = 2 is not supported: write another");
  const KeyRule differs{"tf32", "null", KeyStatus::no_effect, "the CPU has none", "it is not used"};
  EXPECT_THAT(judge(true, differs, "f: tf32").warning, testing::EndsWith("the CPU has none"));
  EXPECT_THAT(judge(true, differs, "f: tf32", /*on_gpu=*/true).warning, testing::EndsWith("it is not used"));
  EXPECT_THROW(judge("yes", kIdle, "f: idle"), ConfigError) << "another kind of value";
}

TEST(KeyRules, notes_are_what_people_write_for_people) {
  for (const char* key : {"_comment", "//", "#1", "note", "description"}) EXPECT_TRUE(is_note(key)) << key;
  for (const char* key : {"stage", "no_te", "commentary"}) EXPECT_FALSE(is_note(key)) << key;
}

}  // namespace
}  // namespace nought::key_rules_test
