#include "nought/base/visit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace visit_test {
enum class Color { red, dark_blue };
}
template <>

struct EnumNames<visit_test::Color> {
  static constexpr std::array<std::pair<visit_test::Color, std::string_view>, 2> value{
      {{visit_test::Color::red, "red"}, {visit_test::Color::dark_blue, "dark_blue"}}};
};
}  // namespace nought

namespace nought::visit_test {
namespace {

using testing::HasSubstr;

struct Inner {
  Setting<double> rate{0.5};
  Auto<int64_t> batch;
  template <class V>
  void visit(V& v) {
    v("rate", rate, "how fast");
    v("batch", batch, "how many");
  }
};

struct Outer {
  Setting<int> count{3};
  Setting<bool> flag{false};
  Setting<Color> color{Color::red};
  std::optional<std::string> name;
  std::vector<std::string> files;
  Auto<std::vector<double>> betas;
  Json raw;
  uint8_t small = 0;
  int64_t large = 0;
  Inner inner;
  template <class V>
  void visit(V& v) {
    v("count", count, "a count");
    v("flag", flag, "a flag");
    v("color", color, "a color");
    v("name", name, "a name");
    v("files", files, "some files");
    v("betas", betas, "two betas");
    v("raw", raw, "anything");
    v("small", small, "a byte");
    v("large", large, "a long one");
    v("inner", inner, "more");
  }
};

Outer read(const char* text) { return from_json<Outer>(parse_json(text, "f.json"), Origins("f.json")); }

std::string error_of(const char* text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Visit, absent_and_null_keys_leave_the_default_and_count_as_not_given) {
  const Outer outer = read(R"({"count": null, "name": null, "inner": {"batch": null}})");
  EXPECT_EQ(outer.count.value, 3);
  EXPECT_FALSE(outer.count.given);
  EXPECT_FALSE(outer.name);
  EXPECT_FALSE(outer.inner.batch.given());
  EXPECT_FALSE(outer.inner.batch.automatic());
}

TEST(Visit, values_are_read_and_count_as_given_even_when_equal_to_the_default) {
  const Outer outer = read(R"({"count": 3, "flag": true, "color": "dark_blue", "name": "x", "files": ["a", "b"],
    "betas": [0.9, 0.95], "raw": {"k": [1]}, "small": 255, "large": 9223372036854775807,
    "inner": {"rate": 1, "batch": "auto"}})");
  EXPECT_TRUE(outer.count.given);
  EXPECT_TRUE(outer.flag.value);
  EXPECT_EQ(outer.color.value, Color::dark_blue);
  EXPECT_EQ(outer.name, "x");
  EXPECT_EQ(outer.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(outer.betas.value, (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(outer.raw["k"][0], 1);
  EXPECT_EQ(outer.small, 255);
  EXPECT_EQ(outer.large, INT64_MAX);
  EXPECT_EQ(outer.inner.rate.value, 1.0);
  EXPECT_TRUE(outer.inner.batch.automatic());
}

TEST(Visit, an_integer_may_be_written_as_a_whole_float) {
  EXPECT_EQ(read(R"({"large": 5e8})").large, 500000000);
  EXPECT_EQ(read(R"({"inner": {"batch": 4.0}})").inner.batch.value, 4);
}

TEST(Visit, an_unknown_key_is_an_error_with_its_path_and_the_nearest_name_at_every_level) {
  EXPECT_EQ(error_of(R"({"colour": "red"})"), "f.json: colour: unknown key (did you mean \"color\"?)");
  EXPECT_EQ(error_of(R"({"inner": {"rte": 1}})"), "f.json: inner.rte: unknown key (did you mean \"rate\"?)");
  EXPECT_EQ(error_of(R"({"inner": {"something": 1}})"), "f.json: inner.something: unknown key");
}

TEST(Visit, a_value_of_the_wrong_type_says_what_was_found_and_what_was_expected) {
  EXPECT_EQ(error_of(R"({"count": "many"})"), "f.json: count: expected an integer, found the string \"many\"");
  EXPECT_EQ(error_of(R"({"count": 1.5})"), "f.json: count: expected an integer, found the number 1.5");
  EXPECT_EQ(error_of(R"({"count": true})"), "f.json: count: expected an integer, found true");
  EXPECT_EQ(error_of(R"({"flag": 1})"), "f.json: flag: expected true or false, found the number 1");
  EXPECT_EQ(error_of(R"({"inner": {"rate": "1"}})"), "f.json: inner.rate: expected a number, found the string \"1\"");
  EXPECT_EQ(error_of(R"({"inner": 3})"), "f.json: inner: expected an object, found the number 3");
  EXPECT_EQ(error_of(R"({"files": "a"})"), "f.json: files: expected a list (each a string), found the string \"a\"");
  EXPECT_EQ(error_of(R"({"files": ["a", 2]})"), "f.json: files[1]: expected a string, found the number 2");
  EXPECT_EQ(error_of(R"({"inner": {"batch": "many"}})"),
            "f.json: inner.batch: expected an integer or \"auto\", found the string \"many\"");
  EXPECT_EQ(error_of(R"([])"), "f.json: expected an object, found the list []");
}

TEST(Visit, a_number_out_of_range_is_an_error) {
  EXPECT_EQ(error_of(R"({"small": 256})"), "f.json: small: 256 is out of range");
  EXPECT_EQ(error_of(R"({"small": -1})"), "f.json: small: -1 is out of range");
  EXPECT_EQ(error_of(R"({"large": 9223372036854775808})"), "f.json: large: 9223372036854775808 is out of range");
  EXPECT_THAT(error_of(R"({"large": 1e30})"), HasSubstr("expected an integer"));
}

TEST(Visit, a_misspelt_choice_lists_the_choices_and_the_nearest) {
  EXPECT_EQ(
      error_of(R"({"color": "dark_blu"})"),
      "f.json: color: expected one of red, dark_blue, found the string \"dark_blu\" (did you mean \"dark_blue\"?)");
}

TEST(Visit, json_to_struct_to_json_gives_back_what_was_given) {
  const Json json = parse_json(R"({"count": 3, "flag": false, "color": "dark_blue", "name": "x", "files": ["a"],
    "betas": "auto", "raw": [1, {"k": null}], "small": 7, "large": -5, "inner": {"rate": 0.1, "batch": 8}})",
                               "f.json");
  EXPECT_EQ(to_json(from_json<Outer>(json, Origins("f.json"))), json);
}

TEST(Visit, every_key_is_listed_with_path_type_default_and_help) {
  const std::vector<KeyInfo> keys = list_keys<Outer>();
  ASSERT_EQ(keys.size(), 11u);
  EXPECT_EQ(keys[0].path, "count");
  EXPECT_EQ(keys[0].type, "an integer");
  EXPECT_EQ(keys[0].fallback, "3");
  EXPECT_EQ(keys[2].type, "one of red, dark_blue");
  EXPECT_EQ(keys[9].help, "how fast");
  EXPECT_EQ(keys[10].path, "inner.batch");
}

}  // namespace
}  // namespace nought::visit_test
