#include "nought/config/yaml.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::yaml_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(std::string_view text) {
  return test::message_of<ConfigError>([&] { parse_yaml(text, "a.yaml"); });
}

TEST(Yaml, maps_lists_and_scalars_become_json) {
  EXPECT_EQ(parse_yaml("a: 1\nb:\n  c: [x, 2.5, -3]\n  d: {e: null}\nf:\n- true\n- ~\n", "a.yaml"),
            (Json{{"a", 1}, {"b", {{"c", {"x", 2.5, -3}}, {"d", {{"e", nullptr}}}}}, {"f", {true, nullptr}}}));
  EXPECT_EQ(parse_yaml("", "a.yaml"), Json());
  EXPECT_EQ(parse_yaml("# nothing\n", "a.yaml"), Json());
}

TEST(Yaml, plain_scalars_follow_yaml_1_1_and_quoted_ones_are_text) {
  const Json json = parse_yaml(
      "yes_: yes\nno_: NO\noff_: off\nquoted: 'no'\ndouble_: \"1\"\nsmall: 1e-5\nempty:\nbig: +12\nip: 10.0.0.1\n",
      "a");
  EXPECT_EQ(json, (Json{{"yes_", true},
                        {"no_", false},
                        {"off_", false},
                        {"quoted", "no"},
                        {"double_", "1"},
                        {"small", 1e-5},
                        {"empty", nullptr},
                        {"big", 12},
                        {"ip", "10.0.0.1"}}));
}

TEST(Yaml, what_is_malformed_or_not_read_is_named_with_its_line) {
  EXPECT_EQ(error_of("a: 1\na: 2\n"), "a.yaml:2: a: the key is given twice");
  EXPECT_THAT(error_of("a: [1, 2\n"), StartsWith("a.yaml:"));
  EXPECT_THAT(error_of("a: &x 1\nb: *x\n"), StartsWith("a.yaml:2: an alias is not read"));
  EXPECT_THAT(error_of("a: !!python/object:os.system 1\n"), HasSubstr("a.yaml:1: a tag is not read"));
  EXPECT_THAT(error_of("a: 1\n---\nb: 2\n"), HasSubstr("a second document"));
  EXPECT_THAT(error_of(std::string(100, '[')), StartsWith("a.yaml:"));
  EXPECT_THAT(error_of("? [a]\n: 1\n"), HasSubstr("a key that is no scalar"));
}

}  // namespace
}  // namespace nought::yaml_test
