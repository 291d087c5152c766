#include "nought/models/config_reader.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"

namespace nought::config_reader_test {
namespace {

using nlohmann::json;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ConfigReader, reads_typed_values_and_null_is_absent) {
  const json object{{"i", 3}, {"d", 0.5}, {"b", true}, {"t", "x"}, {"ids", {1, 2}}, {"id", 7}, {"null", nullptr}};
  ConfigReader reader(object, "c.json");
  EXPECT_EQ(reader.integer("i"), 3);
  EXPECT_EQ(reader.number("d"), 0.5);
  EXPECT_EQ(reader.number("i"), 3.0);
  EXPECT_EQ(reader.boolean("b"), true);
  EXPECT_EQ(reader.text("t"), "x");
  EXPECT_THAT(reader.ids("ids"), ElementsAre(1, 2));
  EXPECT_THAT(reader.ids("id"), ElementsAre(7));
  EXPECT_THAT(reader.ids("none"), IsEmpty());
  const json many{{"ids", std::vector<int64_t>(50'000)}};  // in a time that grows with their number
  EXPECT_EQ(ConfigReader(many, "many").ids("ids").size(), 50'000u);
  EXPECT_EQ(reader.integer("null"), std::nullopt);
  EXPECT_TRUE(reader.has("null"));
  EXPECT_EQ(reader.size("none", 5, 10), 5);
}

TEST(ConfigReader, a_wrong_value_names_source_key_and_what_was_found) {
  const json object{{"x", "three"}, {"huge", uint64_t{1} << 63}, {"minus", -1}, {"ids", {1, "a"}}};
  ConfigReader reader(object, "c.json");
  for (const auto& read : std::vector<std::function<void()>>{[&] { reader.integer("x"); }, [&] { reader.number("x"); },
                                                             [&] { reader.boolean("x"); }, [&] { reader.ids("x"); }})
    EXPECT_THAT(message_of<ConfigError>(read), HasSubstr("c.json: x is \"three\""));
  EXPECT_THAT(message_of<ConfigError>([&] { reader.integer("huge"); }), HasSubstr("huge"));
  EXPECT_THAT(message_of<ConfigError>([&] { reader.size("minus", 1, 10); }),
              HasSubstr("minus is -1, expected 1 to 10"));
  EXPECT_THAT(message_of<ConfigError>([&] { reader.non_negative("minus", 0); }), HasSubstr("minus is -1"));
  EXPECT_THROW(reader.text("minus"), ConfigError);
  EXPECT_THROW(ConfigReader(json::array(), "c.json"), ConfigError);
}

TEST(ConfigReader, only_one_value_may_be_supported) {
  const json object{{"act", "relu"}};
  ConfigReader reader(object, "c.json");
  EXPECT_NO_THROW(reader.only("act", "relu", "why"));
  EXPECT_NO_THROW(reader.only("none", "relu", "why"));
  EXPECT_THAT(message_of<ConfigError>([&] { reader.only("act", "silu", "nobody has asked"); }),
              HasSubstr("only \"silu\" is supported: nobody has asked"));
}

TEST(ConfigReader, keys_that_nobody_asked_for_are_told_unless_they_are_misspelt) {
  const json object{{"hidden_size", 3}, {"note", 1}, {"known", 2}};
  ConfigReader reader(object, "c.json");
  reader.integer("hidden_size");
  reader.ignore({"known"});
  EXPECT_THAT(reader.unknown_keys(), ElementsAre("note"));
  const json misspelt{{"hiden_size", 3}};
  ConfigReader strict(misspelt, "c.json");
  strict.integer("hidden_size");
  EXPECT_THAT(message_of<ConfigError>([&] { strict.unknown_keys(); }), HasSubstr("did you mean \"hidden_size\"?"));
}

}  // namespace
}  // namespace nought::config_reader_test
