#include "nought/text/json_view.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::json_view_test {
namespace {

using test::message_of;
using testing::StartsWith;

TEST(JsonView, reads_values_and_names_the_place_of_what_is_wrong) {
  const nlohmann::json json{{"model", {{"type", "BPE"}, {"size", 3}, {"list", {1, "x"}}, {"on", true}}}};
  const JsonView file(json, "a.json"), model = file["model"];
  EXPECT_EQ(model["type"].string(), "BPE");
  EXPECT_EQ(model["size"].integer(), 3);
  EXPECT_EQ(model["size"].number(), 3.0);
  EXPECT_TRUE(model["on"].boolean());
  EXPECT_EQ(model["list"].list()[1].string(), "x");
  EXPECT_EQ(model["list"].list()[1].place(), "a.json: model.list[1]");

  const auto expect_error = [](const char* start, const std::function<void()>& read) {
    EXPECT_THAT(message_of<ConfigError>(read), StartsWith(start));
  };
  expect_error("a.json: model.size: expected a string", [&] { model["size"].string(); });
  expect_error("a.json: model.type: expected an integer", [&] { model["type"].integer(); });
  expect_error("a.json: model.type: expected a number", [&] { model["type"].number(); });
  expect_error("a.json: model.size: expected true or false", [&] { model["size"].boolean(); });
  expect_error("a.json: model: expected a list", [&] { model.list(); });
  expect_error("a.json: model.list: expected an object", [&] { model["list"]["x"]; });
  expect_error("a.json: model.none: expected a string, found null", [&] { model["none"].string(); });
  expect_error("a.json: model: is 7", [&] { model.check(false, "is {}", 7); });
}

TEST(JsonView, what_is_absent_is_null_and_has_a_fallback) {
  const nlohmann::json json{{"here", "x"}, {"null", nullptr}};
  const JsonView view(json, "a.json");
  EXPECT_TRUE(view["none"].is_null());
  EXPECT_TRUE(view["null"].is_null());
  EXPECT_EQ(view["none"].string_or("y"), "y");
  EXPECT_EQ(view["here"].string_or("y"), "x");
  EXPECT_TRUE(view["none"].boolean_or(true));
  EXPECT_THROW(view["here"].boolean_or(true), ConfigError) << "a value of another type is no absence";
}

TEST(JsonView, refuses_what_is_switched_on) {
  const nlohmann::json json{{"off", false}, {"empty", ""}, {"null", nullptr}, {"on", true}, {"zero", 0}};
  const JsonView view(json, "a.json");
  EXPECT_NO_THROW(view.refuse({"off", "empty", "null", "none"}));
  EXPECT_THAT(message_of<ConfigError>([&] { view.refuse({"off", "on"}); }), StartsWith("a.json: on: is true"));
  EXPECT_THROW(view.refuse({"zero"}), ConfigError);
}

}  // namespace
}  // namespace nought::json_view_test
