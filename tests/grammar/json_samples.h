// Random schemas, random words of a grammar, and whether JSON satisfies a schema.
#pragma once

#include <algorithm>
#include <random>
#include <regex>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/base/json_fwd.h"
#include "nought/grammar/grammar_states.h"
#include "nought/grammar/json_schema.h"

namespace nought::test {

using Random = std::mt19937;
inline int below(Random& random, int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); }

inline GrammarStates states_of_schema(const OrderedJson& schema) {
  Grammar grammar;
  const Grammar::Rule start = grammar.declare();
  grammar.define(start, json_schema_expression(grammar, schema));
  grammar.finish(start);
  return GrammarStates(std::move(grammar));
}

/// A word: bytes at random, and from `soon` bytes on those that close what is open. "" if it gets too long.
inline std::string random_word(GrammarStates& states, Random& random, size_t soon) {
  std::string word;
  for (GrammarStates::State at = states.start(); word.size() < soon + 4000;) {
    if (states.only_ends(at) || (states.ends(at) && (word.size() >= soon || below(random, 2) == 0))) return word;
    std::string goes_on;
    for (int byte = 0; byte < 256; ++byte)
      if (states.next(at, static_cast<uint8_t>(byte)) != GrammarStates::kDead) goes_on += static_cast<char>(byte);
    EXPECT_FALSE(goes_on.empty()) << "no way on behind " << word;
    if (goes_on.empty()) return word;
    char byte = goes_on[static_cast<size_t>(below(random, static_cast<int>(goes_on.size())))];
    const char end = "}]\""[below(random, 3)];
    if (below(random, word.size() >= soon ? 4 : 2) > 0 && goes_on.find(end) != std::string::npos) byte = end;
    word += byte;
    at = states.next(at, static_cast<uint8_t>(byte));
  }
  return "";
}

inline size_t characters_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char each) { return (each & 0xC0) != 0x80; }));
}

/// Whether a value satisfies a schema with the keywords of random_schema().
inline bool satisfies(const OrderedJson& value, const OrderedJson& schema, const OrderedJson& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  const auto has = [&](const char* keyword) { return schema.contains(keyword); };
  if (has("$ref")) {
    const std::string to = schema["$ref"].get<std::string>();
    return satisfies(value, to == "#" ? root : root.at(OrderedJson::json_pointer(to.substr(1))), root);
  }
  for (const char* keyword : {"anyOf", "oneOf"})
    if (has(keyword) && std::none_of(schema[keyword].begin(), schema[keyword].end(),
                                     [&](const OrderedJson& each) { return satisfies(value, each, root); }))
      return false;
  if (has("allOf") && !std::all_of(schema["allOf"].begin(), schema["allOf"].end(),
                                   [&](const OrderedJson& each) { return satisfies(value, each, root); }))
    return false;
  if (has("const") && value != schema["const"]) return false;
  if (has("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return false;
  if (has("type")) {
    const OrderedJson types = schema["type"].is_array() ? schema["type"] : OrderedJson::array({schema["type"]});
    const std::string is = value.is_object()           ? "object"
                           : value.is_array()          ? "array"
                           : value.is_string()         ? "string"
                           : value.is_boolean()        ? "boolean"
                           : value.is_null()           ? "null"
                           : value.is_number_integer() ? "integer"
                                                       : "number";
    if (std::none_of(types.begin(), types.end(),
                     [&](const OrderedJson& type) { return type == is || (type == "number" && is == "integer"); }))
      return false;
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (characters_of(text) < schema.value("minLength", size_t{0}) ||
        characters_of(text) > schema.value("maxLength", size_t{1} << 30))
      return false;
    if (has("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) return false;
  }
  if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    if ((has("minimum") && number < schema["minimum"].get<double>()) ||
        (has("maximum") && number > schema["maximum"].get<double>()) ||
        (has("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()))
      return false;
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0}) || value.size() > schema.value("maxItems", size_t{1} << 30))
      return false;
    const size_t first = has("prefixItems") ? schema["prefixItems"].size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < first && !satisfies(value[i], schema["prefixItems"][i], root)) return false;
      if (i >= first && has("items") && !satisfies(value[i], schema["items"], root)) return false;
    }
  }
  if (!value.is_object()) return true;
  if (has("required"))
    for (const OrderedJson& name : schema["required"])
      if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [name, each] : value.items()) {
    if (has("properties") && schema["properties"].contains(name)) {
      if (!satisfies(each, schema["properties"][name], root)) return false;
    } else if (has("additionalProperties") && !satisfies(each, schema["additionalProperties"], root)) {
      return false;
    }
  }
  return true;
}

inline OrderedJson random_schema(Random& random, int depth) {
  const auto one = [&](std::initializer_list<OrderedJson> list) {
    return *(list.begin() + below(random, static_cast<int>(list.size())));
  };
  const auto inner = [&] { return random_schema(random, depth - 1); };
  switch (below(random, depth > 0 ? 14 : 8)) {
    case 0:
      return {{"type", "string"}, {"minLength", below(random, 3)}, {"maxLength", 3 + below(random, 5)}};
    case 1:
      return {{"type", "string"},
              {"pattern", one({"^[a-c]+$", "^\\d{2,4}", "^(x|y\\.)?z{2}$", "^[A-Z][^0-9]", "^\"q\\\\"})}};
    case 2:
      return {{"type", "integer"}, {"minimum", below(random, 400) - 200}, {"maximum", 200 + below(random, 90000)}};
    case 3:
      return {{"type", "integer"}, {"exclusiveMinimum", -below(random, 50)}};
    case 4:
      return {{"enum", {"a", 1, nullptr, "\"\\\n", {{"k", {1, 2}}}, true}}};
    case 5:
      return {{"const", one({"only", 7, false})}};
    case 6:
      return {{"type", one({"boolean", "null", "number", "string", "integer"})}};
    case 7:
      return {{"type", {"string", "null"}}, {"title", "T"}};
    case 8:
      return {
          {"type", "array"}, {"items", inner()}, {"minItems", below(random, 3)}, {"maxItems", 2 + below(random, 3)}};
    case 9:
      return {{"type", "array"}, {"prefixItems", {inner(), inner()}}, {"items", one({true, false})}};
    case 10:
      return {{"anyOf", {inner(), inner()}}};
    case 11:
      return {{"type", "object"}, {"additionalProperties", inner()}};
    default: {
      OrderedJson schema{{"type", "object"}, {"properties", OrderedJson::object()}, {"required", OrderedJson::array()}};
      for (const char* name : {"a", "ab", "\"odd\"", "naïve"})
        if (below(random, 3) > 0) {
          schema["properties"][name] = below(random, 8) == 0 ? OrderedJson{{"$ref", "#/$defs/tree"}} : inner();
          if (below(random, 2) == 0) schema["required"].push_back(name);
        }
      schema["additionalProperties"] = one({false, false, true, {{"type", "integer"}}});
      return schema;
    }
  }
}

/// A schema to whose definitions random_schema() may refer.
inline OrderedJson random_root(Random& random) {
  OrderedJson root{{"type", "object"}, {"properties", {{"x", random_schema(random, 3)}}}, {"required", {"x"}}};
  root["additionalProperties"] = false;
  root["$defs"]["tree"] = {
      {"type", "object"},
      {"properties",
       {{"v", {{"type", "integer"}}}, {"sub", {{"type", "array"}, {"items", {{"$ref", "#/$defs/tree"}}}}}}},
      {"required", {"v"}},
      {"additionalProperties", false}};
  return root;
}

}  // namespace nought::test
