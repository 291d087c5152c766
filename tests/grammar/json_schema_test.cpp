#include "nought/grammar/json_schema.h"

#include "grammar/json_samples.h"
#include "support/message_of.h"
#include "support/sweep.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::json_schema_test {
namespace {

using test::message_of;
using test::states_of_schema;
using testing::HasSubstr;

bool takes(GrammarStates& states, std::string_view text) {
  const GrammarStates::State at = states.next(states.start(), text);
  return at != GrammarStates::kDead && states.ends(at);
}

TEST(JsonSchema, whatever_is_written_satisfies_it) {
  test::Random random(5);
  for (int i = 0; i < test::sweep(40, 500); ++i) {
    const OrderedJson schema = test::random_root(random);
    GrammarStates states = states_of_schema(schema);
    for (int sample = 0; sample < 5; ++sample) {
      const std::string word = test::random_word(states, random, 40);
      const OrderedJson value = OrderedJson::parse(word, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << word << " of " << schema;
      ASSERT_TRUE(test::satisfies(value, schema, schema)) << word << " of " << schema;
    }
  }
}

TEST(JsonSchema, takes_what_satisfies_it_and_nothing_else) {
  struct Case {
    const char *schema, *texts, *others;  // a list of texts, each a JSON string
  };
  for (
      const Case& each : std::vector<Case>{
          {R"({"type": "integer", "minimum": -12, "maximum": 105})", R"(["-12","-9","0","7","99","105"])",
           R"(["-13","106","1000","-0","01","1.0",""])"},
          {R"({"type": "integer"})", R"(["0","-1","123456789012345678"])", R"(["1234567890123456789","-"])"},
          {R"({"type": "number"})", R"(["0","-1.5","2e10","1E-5"])", R"(["1.","1e999",".5","+1"])"},
          {R"({"type": "string", "maxLength": 2})", R"(["\"\"","\"ä€\"","\"\\\"\\u00e4\""])",
           R"(["\"abc\"","\"\\ud800\"","\"\n\"","x"])"},
          {R"({"type": "string", "format": "date"})", R"(["\"2026-11-27\""])",
           R"(["\"2026-02-30\"","\"2026-13-01\"","\"x\""])"},
          {R"({"type": "string", "format": "date-time"})",
           R"(["\"2026-11-27T23:59:01.5Z\"","\"2026-01-31T00:00:00+01:00\""])",
           R"(["\"2026-11-27 23:59:01Z\"","\"2026-11-27T24:00:00Z\""])"},
          {R"({"type": "string", "format": "uuid"})", R"(["\"01234567-89ab-cdef-0123-456789abcdef\""])",
           R"(["\"0\""])"},
          {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"]})",
           R"(["{\"b\":null}","{\"a\": null, \"b\": null}","{\n  \"a\": null,\n  \"b\": null\n}"])",
           R"(["{}","{\"a\":null}","{\"b\":null,}","{\"b\":null,\"c\":1}","{,\"b\":null}","{\"b\":null,\"b\":null}"])"},
          {R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
           R"(["{}","{\"a\":null}","{\"b\":1}","{\"a\":null,\"ab\":2,\"\":3}"])",
           R"(["{\"a\":1}","{\"b\":null}","{\"b\":1,\"a\":2}","{\"\\u0061\":1}"])"},
          {R"({"type": "object", "required": ["z"]})", R"(["{\"z\":[]}","{\"z\":1,\"y\":2}"])",
           R"(["{}","{\"y\":1}"])"},
          {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1, "maxItems": 3})",
           R"(["[1]","[1,2]","[ 1, 2, 3 ]"])", R"(["[]","[2]","[1,2,3,3]","[1,3]"])"},
          {R"({"type": "array", "minItems": 2})", R"(["[1,{}]","[[],[],[]]"])", R"(["[1]","[]"])"},
          {R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"const": 2}}, "required": ["y"]}],
                "$defs": {"a": {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"]}}})",
           R"(["{\"x\":1,\"y\":2}"])", R"(["{\"x\":1}","{\"y\":2}"])"},
          {R"({"type": "array", "items": {"$ref": "#"}})", R"(["[]","[[],[[]]]"])", R"(["[1]"])"},
          {R"({"type": "string", "enum": ["ü", "b\"", 3]})", R"(["\"ü\"","\"b\\\"\""])", R"(["3","\"c\""])"},
          {R"({})", R"(["{\"a\":[1,\"x\",null,true]}","1.5"])", R"(["nul","[1"])"}}) {
    GrammarStates states = states_of_schema(OrderedJson::parse(each.schema));
    for (const OrderedJson& text : OrderedJson::parse(each.texts))
      EXPECT_TRUE(takes(states, text.get<std::string>())) << text << " of " << each.schema;
    for (const OrderedJson& text : OrderedJson::parse(each.others))
      EXPECT_FALSE(takes(states, text.get<std::string>())) << text << " of " << each.schema;
  }
}

TEST(JsonSchema, other_keywords_are_refused_by_name) {
  for (const auto& [schema, message] : std::vector<std::pair<const char*, const char*>>{
           {R"({"type": "array", "uniqueItems": true})", "the keyword \"uniqueItems\" is not supported"},
           {R"({"type": "number", "minimum": 1})", "the keyword \"minimum\" is not supported"},
           {R"({"type": "object", "properties": {"a": {"not": {}}}})", "/properties/a: the keyword \"not\""},
           {R"({"type": "object", "patternProperties": {}})", "patternProperties"},
           {R"({"type": "string", "format": "email"})", "\"format\": \"email\""},
           {R"({"type": "string", "pattern": "a(?=b)c"})", "kind of group"},
           {R"({"type": "string", "pattern": "[a"})", "no ] for a ["},
           {R"({"type": "string", "pattern": "(((){9999}){9999}){9999}"})", "repeats more than"},
           {R"({"type": "text"})", "type: expected object"},
           {R"({"$ref": "#/$defs/none"})", "is not in the schema"},
           {R"({"$ref": "#"})", "nothing finite"},
           {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "itself before it takes any text"},
           {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "nothing finite"},
           {R"({"type": "string", "minLength": 90000})", "more than 262144 nodes"},
           {R"({"type": "object", "properties": {}, "additionalProperties": false, "required": ["a"]})",
            "nothing finite"}})
    EXPECT_THAT(message_of<ConfigError>([&, text = schema] { states_of_schema(OrderedJson::parse(text)); }),
                HasSubstr(message))
        << schema;
}

}  // namespace
}  // namespace nought::json_schema_test
