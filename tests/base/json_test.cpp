#include "nought/base/json.h"

#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json_fwd.h"

namespace nought::json_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Json, infinity_is_read_as_python_writes_it) {
  const Json json = parse_json(R"({"a": Infinity, "b": [-Infinity,], "Infinity": "Infinity" /* Infinity */})", "f");
  EXPECT_EQ(json["a"], kJsonInfinity);
  EXPECT_EQ(json["b"][0], -kJsonInfinity);
  EXPECT_EQ(json["Infinity"], "Infinity");
  EXPECT_THROW(parse_json("[Infinite]", "f"), ConfigError);
}

TEST(Json, comments_and_trailing_commas_are_tolerated) {
  const Json json = parse_json(R"({
    // a line
    "a": [1, 2, /* inside */ 3, ],  # hjson's
    "b": {"c": "x // not a comment, ]", "d": "\", }",},
  })",
                               "RUN.json");
  EXPECT_EQ(json, (Json{{"a", {1, 2, 3}}, {"b", {{"c", "x // not a comment, ]"}, {"d", "\", }"}}}}));
}

TEST(Json, a_syntax_error_names_file_line_and_column_in_one_line) {
  const std::string message =
      test::message_of<Error>([] { parse_json("{\n  // note\n  \"a\": 1,\n  \"b\" 2\n}", "RUN.json"); });
  EXPECT_THAT(message, StartsWith("RUN.json:4:7: syntax error"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(Json, truncated_empty_and_garbage_texts_are_errors_with_a_position) {
  EXPECT_THAT(test::message_of<Error>([] { parse_json("", "f"); }), StartsWith("f:1:1: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("{\"a\": ", "f"); }), StartsWith("f:1:7: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("{} x", "f"); }), StartsWith("f:1:4: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("{\"a\": 1 /* open", "f"); }), StartsWith("f:1:9: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("[1,,2]", "f"); }), StartsWith("f:1:4: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("[,]", "f"); }), StartsWith("f:1:2: "));
  EXPECT_THAT(test::message_of<Error>([] { parse_json("\"\xff\"", "f"); }), StartsWith("f:1:"));
  EXPECT_EQ(test::message_of<Error>([] { parse_json("1e999", "f"); }), "f: number overflow parsing '1e999'");
}

/// A minute and more if reading looked through the list whenever one of its objects ends.
NOUGHT_SIZE(medium);
TEST(Json, a_list_of_very_many_objects_is_read_in_linear_time) {
  constexpr size_t kMany = 300'000;
  std::string text = "[";
  for (size_t i = 0; i < kMany; ++i) text += R"({"a":1},)";
  EXPECT_EQ(parse_json(text + "]", "many.json").size(), kMany);
}

TEST(Json, a_key_given_twice_is_an_error_that_names_its_path) {
  EXPECT_EQ(test::message_of<Error>([] { parse_json(R"({"a": {"b": [{"c": 1, "c": 2}]}})", "ds.json"); }),
            "ds.json: a.b.c: the key is given twice");
  EXPECT_NO_THROW(parse_json(R"({"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]})", "ds.json"));
}

TEST(Json, a_missing_file_is_named) {
  EXPECT_THAT(test::message_of<Error>([] { read_json_file("/nowhere/RUN.json"); }), StartsWith("/nowhere/RUN.json: "));
  EXPECT_THROW(read_json_file("/nowhere/RUN.json"), IoError);
  EXPECT_THROW(read_json_file("/"), IoError);
}

TEST(Json, a_value_of_any_depth_is_described_in_a_few_words) {
  EXPECT_EQ(describe_json({1, "a", nullptr}), R"(the list [1,"a",null])");
  EXPECT_EQ(describe_json(Json{{1, 2}, {3, 4}}), "a list");
  EXPECT_EQ(describe_json(Json(9, 1)), "a list");
  EXPECT_EQ(describe_json(parse_json(std::string(200'000, '[') + std::string(200'000, ']'), "a.json")), "a list");
}

TEST(Override, values_are_json_or_else_strings) {
  EXPECT_EQ(parse_override("a.b=1e-3").value, Json(1e-3));
  EXPECT_EQ(parse_override("a.b=true").value, Json(true));
  EXPECT_EQ(parse_override("a.b=[\"x\", 2]").value, (Json{"x", 2}));
  EXPECT_EQ(parse_override("a.b=cosine").value, Json("cosine"));
  EXPECT_EQ(parse_override("a.b=").value, Json(""));
  EXPECT_EQ(parse_override("a.b=x=y").value, Json("x=y"));
  EXPECT_EQ(parse_override("a.b=c").path, "a.b");
}

TEST(Override, a_malformed_one_is_an_error_that_shows_it) {
  EXPECT_THAT(test::message_of<Error>([] { parse_override("training.max_steps"); }),
              StartsWith("--set training.max_steps: expected"));
  EXPECT_THAT(test::message_of<Error>([] { parse_override("=3"); }), StartsWith("--set =3: expected"));
  EXPECT_EQ(test::message_of<Error>([] { parse_override("a=\xff"); }), "--set a: the value is not valid UTF-8");
  EXPECT_THAT(test::message_of<Error>([] { parse_override("a..b=3"); }), StartsWith("--set a..b=3: "));
}

TEST(Override, creates_objects_on_its_way_and_refuses_to_enter_anything_else) {
  Json root = parse_json(R"({"a": {"b": 1}, "model": "folder"})", "f");
  EXPECT_EQ(apply_override(root, parse_override("a.b=2")), "a.b");
  EXPECT_EQ(apply_override(root, parse_override("a.c.d=3")), "a.c");
  EXPECT_EQ(root, parse_json(R"({"a": {"b": 2, "c": {"d": 3}}, "model": "folder"})", "f"));
  EXPECT_EQ(test::message_of<Error>([&] { apply_override(root, parse_override("model.hidden_size=8")); }),
            "--set model.hidden_size: model is the string \"folder\", so it has no key \"hidden_size\"");
}

TEST(Origins, knows_the_files_and_not_the_command_line) {
  Origins origins("RUN.json");
  origins.add_file("deepspeed", "ds.json");
  origins.add_override("training.seed");
  EXPECT_EQ(origins.files(), (std::vector<std::string>{"RUN.json", "ds.json"}));
}

TEST(Origins, the_nearest_source_names_the_place) {
  Origins origins("RUN.json");
  EXPECT_EQ(origins.place("deepspeed.seed"), "RUN.json: deepspeed.seed");
  origins.add_file("deepspeed", "ds.json");
  origins.add_override("deepspeed.zero_optimization");
  EXPECT_EQ(origins.place(""), "RUN.json");
  EXPECT_EQ(origins.place("training.seed"), "RUN.json: training.seed");
  EXPECT_EQ(origins.place("deepspeed"), "ds.json");
  EXPECT_EQ(origins.place("deepspeed.fp16.enabled"), "ds.json: fp16.enabled");
  EXPECT_EQ(origins.place("deepspeed.zero_optimization.stage"), "--set deepspeed.zero_optimization.stage");
  EXPECT_TRUE(origins.is_override("deepspeed.zero_optimization.stage"));
  EXPECT_FALSE(origins.is_override("deepspeed.fp16"));
  origins.add_file("deepspeed", "other.json");
  EXPECT_EQ(origins.place("deepspeed.zero_optimization.stage"), "other.json: zero_optimization.stage");
}

}  // namespace
}  // namespace nought::json_test
