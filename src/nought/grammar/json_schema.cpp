#include "nought/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/grammar/json_values.h"
#include "nought/grammar/regex_grammar.h"

namespace nought {

namespace {

using Expression = Grammar::Expression;
using Names = std::set<std::string, std::less<>>;

const Names kNotes{"title",   "description", "default",  "examples",  "$schema", "$id",        "$comment",
                   "$anchor", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};
const std::map<std::string, Names, std::less<>> kKeywords{
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
    {"number", {}},
    {"boolean", {}},
    {"null", {}}};
constexpr const char* kDate =
    "^[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-"
    "8]))";
constexpr const char* kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";

std::string text_of(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool is_of(const OrderedJson& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return value.is_null();
}

class SchemaReader {
 public:
  SchemaReader(Grammar& grammar, const OrderedJson& root) : grammar_(grammar), json_(grammar), root_(root) {}

  Expression value(const OrderedJson& schema, const std::string& at) {
    if (schema.is_boolean() && schema.get<bool>()) return json_.any();
    if (!schema.is_object()) fail(at, "expected a schema, an object or true");
    if (schema.contains("$ref")) return reference(schema, at);
    for (const char* keyword : {"anyOf", "oneOf"})
      if (schema.contains(keyword)) return alternatives(schema, keyword, at);
    if (schema.contains("allOf")) return all_of(schema, at);
    if (schema.contains("enum") || schema.contains("const")) return constants(schema, at);
    const std::vector<std::string> types = types_of(schema, at);
    Names known{"type"};
    for (const std::string& type : types) known.insert(kKeywords.at(type).begin(), kKeywords.at(type).end());
    check(schema, known, at);
    if (types.empty()) return json_.any();
    std::vector<Expression> ways;
    for (const std::string& type : types) ways.push_back(typed(schema, type, at));
    return ways.size() == 1 ? ways[0] : grammar_.choice(std::move(ways));
  }

 private:
  [[noreturn]] static void fail(const std::string& at, const std::string& what) {
    throw ConfigError(fmt::format("{}: {}", at.empty() ? "the schema" : at, what));
  }
  /// Refuses a keyword that is neither known here nor a note.
  static void check(const OrderedJson& schema, const Names& known, const std::string& at) {
    for (const auto& [keyword, value] : schema.items())
      if (!known.contains(keyword) && !kNotes.contains(keyword))
        fail(at, fmt::format("the keyword \"{}\" is not supported here", keyword));
  }
  static int64_t count(const OrderedJson& schema, const char* keyword, int64_t otherwise, const std::string& at) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) return otherwise;
    constexpr int64_t kMost = 100000;
    if (!found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > kMost)
      fail(at, fmt::format("{}: expected a number from 0 to {}", keyword, kMost));
    return found->get<int64_t>();
  }

  std::vector<std::string> types_of(const OrderedJson& schema, const std::string& at) const {
    std::vector<std::string> types;
    const auto found = schema.find("type");
    if (found == schema.end()) {
      for (const auto& [type, keywords] : kKeywords)
        for (const std::string& keyword : keywords)
          if (schema.contains(keyword)) return {type};
      return types;
    }
    for (const OrderedJson& each : found->is_array() ? *found : OrderedJson::array({*found})) {
      if (!each.is_string() || !kKeywords.contains(each.get<std::string>()))
        fail(at, fmt::format("type: expected object, array, string, integer, number, boolean or null, found {}",
                             text_of(each).substr(0, 80)));
      types.push_back(each.get<std::string>());
    }
    if (types.empty()) fail(at, "type: the list is empty");
    return types;
  }

  const OrderedJson& referred(const OrderedJson& schema, const std::string& at) const {
    if (!schema["$ref"].is_string()) fail(at, "$ref: expected a string");
    const std::string name = schema["$ref"].get<std::string>();
    const OrderedJson* found = name == "#" ? &root_ : nullptr;
    try {
      if (name.starts_with("#/")) found = &root_.at(OrderedJson::json_pointer(name.substr(1)));
    } catch (const OrderedJson::exception&) {
    }
    if (!found) fail(at, fmt::format("$ref: {} is not in the schema", name.substr(0, 80)));
    return *found;
  }

  Expression reference(const OrderedJson& schema, const std::string& at) {
    check(schema, {"$ref"}, at);
    const OrderedJson& target = referred(schema, at);
    const auto [found, is_new] = rules_.try_emplace(&target, -1);
    if (is_new) {
      const Grammar::Rule rule = found->second = grammar_.declare();
      grammar_.define(rule, value(target, schema["$ref"].get<std::string>()));
    }
    return grammar_.call(rules_.at(&target));
  }

  Expression alternatives(const OrderedJson& schema, const char* keyword, const std::string& at) {
    check(schema, {keyword}, at);
    const OrderedJson& list = schema[keyword];
    if (!list.is_array() || list.empty()) fail(at, fmt::format("{}: expected a list of schemas", keyword));
    std::vector<Expression> ways;
    for (size_t i = 0; i < list.size(); ++i) ways.push_back(value(list[i], fmt::format("{}/{}/{}", at, keyword, i)));
    return grammar_.choice(std::move(ways));
  }

  Expression all_of(const OrderedJson& schema, const std::string& at) {
    OrderedJson merged = schema;
    merged.erase("allOf");
    const OrderedJson& list = schema["allOf"];
    if (!list.is_array() || list.empty()) fail(at, "allOf: expected a list of schemas");
    if (list.size() == 1) {
      check(schema, {"allOf"}, at);
      return value(list[0], at + "/allOf/0");
    }
    check(merged, kKeywordsOfMerged, at);
    for (size_t i = 0; i < list.size(); ++i) merge(list[i], merged, fmt::format("{}/allOf/{}", at, i), 0);
    merged["type"] = "object";
    merged_.push_back(std::make_unique<OrderedJson>(std::move(merged)));
    return value(*merged_.back(), at);
  }
  /// Adds the properties of an object's schema.
  void merge(const OrderedJson& part, OrderedJson& into, const std::string& at, int depth) {
    if (!part.is_object() || depth > 64) fail(at, "allOf: expected schemas of objects");
    if (part.contains("$ref")) {
      check(part, {"$ref"}, at);
      return merge(referred(part, at), into, at, depth + 1);
    }
    check(part, kKeywordsOfMerged, at);
    if (part.contains("type") && part["type"] != "object") fail(at, "allOf: expected schemas of objects");
    if (part.contains("properties") && part["properties"].is_object())
      for (const auto& [name, schema] : part["properties"].items()) {
        if (into.contains("properties") && into["properties"].contains(name) && into["properties"][name] != schema)
          fail(at, fmt::format("allOf: two schemas of the property \"{}\" are not supported", name));
        into["properties"][name] = schema;
      }
    if (part.contains("required") && part["required"].is_array())
      for (const OrderedJson& name : part["required"]) into["required"].push_back(name);
    if (part.contains("additionalProperties") && part["additionalProperties"] != true)
      fail(at, "the keyword \"additionalProperties\" is not supported within allOf");
  }

  Expression constants(const OrderedJson& schema, const std::string& at) {
    check(schema, {"enum", "const", "type"}, at);
    const OrderedJson list =
        schema.contains("const") ? OrderedJson::array({schema["const"]}) : OrderedJson(schema["enum"]);
    if (!list.is_array() || list.empty()) fail(at, "enum: expected a list of values");
    const std::vector<std::string> types = types_of(schema, at);
    std::vector<Expression> ways;
    for (const OrderedJson& each : list)
      if (types.empty() || std::any_of(types.begin(), types.end(), [&](const auto& type) { return is_of(each, type); }))
        ways.push_back(grammar_.text(text_of(each)));
    return grammar_.choice(std::move(ways));
  }

  Expression shared(Expression expression) {
    const Grammar::Rule rule = grammar_.declare();
    grammar_.define(rule, expression);
    return grammar_.call(rule);
  }

  Expression typed(const OrderedJson& schema, const std::string& type, const std::string& at) {
    // What has parts is a rule: where it is written in several places, its parts are not.
    if (type == "object") return shared(object(schema, at));
    if (type == "array") return shared(array(schema, at));
    if (type == "string") return string(schema, at);
    if (type == "integer") return integer(schema, at);
    if (type == "number") return json_.number();
    if (type == "boolean") return grammar_.choice({grammar_.text("true"), grammar_.text("false")});
    return grammar_.text("null");
  }

  Expression integer(const OrderedJson& schema, const std::string& at) const {
    std::optional<int64_t> least, most;
    const auto bound = [&](const char* keyword, bool lower, int64_t inside) {
      const auto found = schema.find(keyword);
      if (found == schema.end()) return;
      if (!found->is_number() || std::abs(found->get<double>()) > 9e17)
        fail(at, fmt::format("{}: expected a number up to 9e17", keyword));
      const double number = found->get<double>();
      const bool whole = std::floor(number) == number;
      int64_t limit = found->is_number_integer() ? found->get<int64_t>()
                                                 : static_cast<int64_t>(lower ? std::ceil(number) : std::floor(number));
      if (whole) limit += inside;
      std::optional<int64_t>& into = lower ? least : most;
      into = !into ? limit : lower ? std::max(*into, limit) : std::min(*into, limit);
    };
    bound("minimum", true, 0);
    bound("exclusiveMinimum", true, 1);
    bound("maximum", false, 0);
    bound("exclusiveMaximum", false, -1);
    return json_.integer(least, most);
  }

  Expression string(const OrderedJson& schema, const std::string& at) {
    const int64_t least = count(schema, "minLength", 0, at), most = count(schema, "maxLength", -1, at);
    const bool counted = schema.contains("minLength") || schema.contains("maxLength");
    const auto given = [&](const char* keyword) {
      if (!schema[keyword].is_string()) fail(at, fmt::format("{}: expected a string", keyword));
      return schema[keyword].get<std::string>();
    };
    std::string pattern;
    if (schema.contains("format")) {
      const std::string format = given("format");
      if (format == "date") pattern = std::string(kDate) + "$";
      if (format == "time") pattern = std::string("^") + kTime;
      if (format == "date-time") pattern = std::string(kDate) + "T" + kTime;
      if (format == "uuid") pattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
      if (pattern.empty()) fail(at, fmt::format("the keyword \"format\": \"{}\" is not supported", format));
    }
    if (schema.contains("pattern")) {
      if (!pattern.empty()) fail(at, "the keyword \"pattern\" is not supported beside format");
      pattern = given("pattern");
    }
    if (pattern.empty())
      return counted ? json_.quoted(grammar_.repeat(json_.any_character(), least, most)) : json_.any_string();
    if (counted) fail(at, "the keywords \"minLength\" and \"maxLength\" are not supported beside pattern and format");
    try {
      return json_.quoted(regex_expression(grammar_, pattern, /*whole=*/false, [&](const Grammar::CodePoints& ranges) {
        return json_.characters(ranges);
      }));
    } catch (const ConfigError& error) {
      fail(at, fmt::format("pattern: {}", error.what()));
    }
  }

  Expression array(const OrderedJson& schema, const std::string& at) {
    const int64_t least = count(schema, "minItems", 0, at);
    int64_t most = count(schema, "maxItems", -1, at);
    std::vector<Expression> first;
    if (schema.contains("prefixItems")) {
      if (!schema["prefixItems"].is_array()) fail(at, "prefixItems: expected a list of schemas");
      for (const OrderedJson& each : schema["prefixItems"])
        first.push_back(value(each, fmt::format("{}/prefixItems/{}", at, first.size())));
    }
    const auto items = schema.find("items");
    const bool none = items == schema.end() ? !first.empty() && least <= std::ssize(first) : *items == false;
    if (none) most = most < 0 ? std::ssize(first) : std::min<int64_t>(most, std::ssize(first));
    const Expression each = none || items == schema.end() ? json_.any() : value(*items, at + "/items");
    if (most >= 0 && least > most) return grammar_.choice({});
    return json_.enclosed('[', from_item(first, each, 0, least, most), ']');
  }
  /// What stands from item number `at` on; as far as the number of items allows, that may be nothing.
  Expression from_item(const std::vector<Expression>& first, Expression each, int64_t at, int64_t least, int64_t most) {
    if (most >= 0 && at >= most) return grammar_.sequence({});
    const Expression item = at < std::ssize(first) ? first[static_cast<size_t>(at)] : each;
    const Expression here = at == 0 ? item : grammar_.sequence({json_.comma(), item});
    Expression all;
    if (at > 0 && at >= std::ssize(first)) {
      all = grammar_.repeat(here, std::max<int64_t>(least - at, 0), most < 0 ? -1 : most - at);
    } else {
      all = grammar_.sequence({here, from_item(first, each, at + 1, least, most)});
      if (at >= least) all = grammar_.optional(all);
    }
    return all;
  }

  Expression object(const OrderedJson& schema, const std::string& at) {
    std::vector<std::string> names;
    std::vector<Expression> members;
    std::vector<bool> needed;
    Names required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) fail(at, "required: expected a list of names");
      for (const OrderedJson& name : schema["required"]) {
        if (!name.is_string()) fail(at, "required: expected a list of names");
        required.insert(name.get<std::string>());
      }
    }
    const auto add = [&](const std::string& name, Expression of) {
      names.push_back(name);
      members.push_back(json_.member(grammar_.text(text_of(name)), of));
      needed.push_back(required.erase(name) > 0);
    };
    if (schema.contains("properties")) {
      if (!schema["properties"].is_object()) fail(at, "properties: expected an object of schemas");
      for (const auto& [name, property] : schema["properties"].items())
        add(name, value(property, fmt::format("{}/properties/{}", at, name)));
    }
    const auto more = schema.find("additionalProperties");
    const bool open = more == schema.end() ? !schema.contains("properties") : *more != false;
    const Expression other =
        more == schema.end() || more->is_boolean() ? json_.any() : value(*more, at + "/additionalProperties");
    if (more != schema.end() && !open && !required.empty()) return grammar_.choice({});  // it is not allowed
    while (!required.empty()) add(*required.begin(), other);
    const Expression extra = open ? json_.member(json_.other_string(names), other) : grammar_.choice({});
    return json_.enclosed('{', members_of(members, needed, extra), '}');
  }
  Expression members_of(const std::vector<Expression>& members, const std::vector<bool>& needed, Expression extra) {
    // By whether a member stands before: what follows from a member on is a rule, as two ways lead there.
    const Expression extras = grammar_.repeat(grammar_.sequence({json_.comma(), extra}), 0);
    Expression first = grammar_.optional(grammar_.sequence({extra, extras})), later = extras;
    for (size_t i = members.size(); i-- > 0;) {
      const Expression rest = shared(later);
      const Expression begins = grammar_.sequence({members[i], rest});
      const Expression follows = grammar_.sequence({json_.comma(), members[i], rest});
      first = needed[i] ? begins : grammar_.choice({begins, first});
      later = needed[i] ? follows : grammar_.choice({follows, rest});
    }
    return first;
  }

  inline static const Names kKeywordsOfMerged{"type", "properties", "required", "additionalProperties"};
  Grammar& grammar_;
  JsonValues json_;
  const OrderedJson& root_;
  std::map<const OrderedJson*, Grammar::Rule> rules_;
  std::vector<std::unique_ptr<OrderedJson>> merged_;
};

}  // namespace

Expression json_schema_expression(Grammar& grammar, const OrderedJson& schema) {
  return SchemaReader(grammar, schema).value(schema, "");
}

Expression json_object_expression(Grammar& grammar) { return JsonValues(grammar).any_object(); }

Expression json_space(Grammar& grammar) { return JsonValues(grammar).space(); }

}  // namespace nought
