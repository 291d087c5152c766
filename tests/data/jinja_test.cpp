// What jinja2 renders is rendered to the byte; what is malformed, unknown or too much is refused with one line.
#include "nought/chat/jinja.h"

#include <filesystem>

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::jinja_test {
namespace {

namespace fs = std::filesystem;
using jinja::from_utf8;
using jinja::Items;
using jinja::kData;
using jinja::Program;
using jinja::Rendered;
using jinja::Value;
using test::message_of;
using testing::HasSubstr;

const fs::path kChats = fs::path(test::golden_root()) / "chat";

/// The day of tests/golden/chat/make.py.
std::tm golden_day() {
  std::tm day{};
  day.tm_year = 124, day.tm_mon = 6, day.tm_mday = 26, day.tm_hour = 12, day.tm_wday = 5, day.tm_yday = 207;
  return day;
}

std::string render(const std::string& source, const char* variables = "{}") {
  const Value given = jinja::value_of(OrderedJson::parse(variables), kData);
  return Program("test", source).render(given, golden_day()).str();
}

std::string refusal(const std::string& source, const char* variables = "{}") {
  const std::string message = message_of<ConfigError>([&] { render(source, variables); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

/// What apply_chat_template() gives a template.
Value variables_of(const OrderedJson& conversation) {
  Items given{.kind = Items::kMap};
  given.set(from_utf8("bos_token"), from_utf8("<s>"));
  given.set(from_utf8("eos_token"), from_utf8("</s>"));
  OrderedJson rest = {{"messages", conversation["messages"]},
                      {"add_generation_prompt", conversation.value("asks", false)},
                      {"tools", nullptr},
                      {"documents", nullptr}};
  rest.update(conversation.value("variables", OrderedJson::object()));
  for (const auto& [key, value] : rest.items()) given.set(from_utf8(key), jinja::value_of(value, kData));
  return given;
}

/// The characters that are targets: [[begin, end], ...].
OrderedJson targets_of(const Rendered& text) {
  OrderedJson spans = OrderedJson::array();
  size_t character = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text.str()[i] & 0xC0) == 0x80) continue;
    if ((text.flags(i) & jinja::kTarget) != 0) {
      if (spans.empty() || spans.back()[1] != character) spans.push_back({character, character});
      spans.back()[1] = character + 1;
    }
    ++character;
  }
  return spans;
}

TEST(Jinja, strings_beside_each_other_are_one) {
  EXPECT_EQ(render(R"({{ "a" 'b'
    "c" | upper ~ "d" }}{{ {"x" "y": 1}["x" "y"] }})"),
            "ABCd1");
  EXPECT_THAT(refusal(R"({{ raise_exception("one " "sentence") }})"), HasSubstr("one sentence"));
}

TEST(Jinja, templates_render_as_transformers_renders_them) {
  const auto golden = OrderedJson::parse(test::read_bytes(kChats / "golden.json"));
  const auto conversations = OrderedJson::parse(test::read_bytes(kChats / "conversations.json"));
  EXPECT_GE(golden.size(), 25u);
  for (const auto& [name, texts] : golden.items()) {
    const Program program(name, test::read_bytes(kChats / (name + ".jinja")));
    for (const OrderedJson& conversation : conversations) {
      SCOPED_TRACE(name + " of " + conversation["name"].get<std::string>());
      const OrderedJson& expected = texts[conversation["name"].get<std::string>()];
      Rendered text;
      const std::string refused =
          message_of<ConfigError>([&] { text = program.render(variables_of(conversation), golden_day()); });
      EXPECT_EQ(!refused.empty(), expected.is_null()) << refused;
      if (!refused.empty() || expected.is_null()) continue;
      EXPECT_EQ(text.str(), expected["text"]);
      if (expected.contains("targets")) {
        EXPECT_TRUE(program.marks_targets());
        EXPECT_EQ(targets_of(text), expected["targets"]);
      }
    }
  }
}

TEST(Jinja, what_comes_from_the_variables_is_told_from_what_the_program_wrote) {
  const auto marked = [](const std::string& source) {
    const Value data = jinja::value_of(OrderedJson::parse(R"({"m": {"x": " <|end|>b "}})"), kData);
    std::string shown;
    bool was_data = false;
    const Rendered text = Program("test", source).render(data, golden_day());
    for (size_t i = 0; i < text.size(); ++i) {
      const bool is_data = (text.flags(i) & kData) != 0;
      if (is_data != was_data) shown += is_data ? "{" : "}";
      shown += text.str()[i];
      was_data = is_data;
    }
    return was_data ? shown + "}" : shown;
  };
  EXPECT_EQ(marked("a{{ m.x }}<|end|>"), "a{ <|end|>b }<|end|>");
  EXPECT_EQ(marked("{{ ('<' ~ m.x.strip() + '>')[2:] }}"), "{|end|>b}>");
  EXPECT_EQ(marked("{{ m.x.split('|')[1] ~ '.' ~ m.x|upper|trim }}"), "{end}.{<|END|>B}");
  EXPECT_EQ(marked("{{ m.x.replace('<|end|>', '<|x|>') }}"), "{ }<|x|>{b }");
  EXPECT_EQ(marked("{{ [m.x, 'c']|join('-') }}"), "{ <|end|>b }-c");
  EXPECT_EQ(marked("{{ m|tojson }} {{ m }}"), "{{\"x\": \" <|end|>b \"}} {{'x': ' <|end|>b '}}");
  EXPECT_EQ(marked("{% macro f(t) %}[{{ t }}]{% endmacro %}{% set s %}{{ f(m.x) }}{% endset %}{{ s[::-1] }}"),
            "]{ b>|dne|< }[");
}

TEST(Jinja, what_is_not_supported_is_refused_by_name_when_it_is_read) {
  const auto error = [](const std::string& source) {
    return message_of<ConfigError>([&] { Program("x.jinja", source); });
  };
  EXPECT_EQ(error("a\n{% include 'b' %}"), "the chat template x.jinja: line 2: the tag \"include\" is not supported");
  EXPECT_THAT(error("{{ a|tojsn }}"),
              HasSubstr("line 1: the filter \"tojsn\" is not supported (did you mean \"tojson\"?)"));
  EXPECT_THAT(error("{{ a is strange }}"), HasSubstr("the test \"strange\" is not supported"));
  EXPECT_THAT(error("{{ messages.append(1) }}"), HasSubstr("the method \"append\" is not supported"));
  EXPECT_THAT(error("{{ x.__class__.mro() }}"), HasSubstr("the method \"mro\" is not supported"));
  EXPECT_THAT(error("\n\n{{ lipsum() }}"), HasSubstr("line 3: the function \"lipsum\" is not supported"));
  EXPECT_THAT(error("{% for x in y recursive %}{% endfor %}"), HasSubstr("\"recursive\""));
  EXPECT_THAT(error("{{ f(*a) }}"), HasSubstr("expected an expression, found \"*\""));
  EXPECT_THAT(error("{% if a %}"), HasSubstr("expected the tag \"endif\""));
  EXPECT_THAT(error("{{ a"), HasSubstr("the tag is not closed"));
  EXPECT_THAT(error("{# a"), HasSubstr("the comment is not closed"));
  EXPECT_THAT(error("{{ 'a }}"), HasSubstr("the string is not closed"));
  EXPECT_THAT(error("{{ a ? b }}"), HasSubstr("expected \"}}\", found \"?\""));
  EXPECT_THAT(error("{{ 2 ** 3 }}"), HasSubstr("the operator \"**\" is not supported"));
  EXPECT_THAT(error("{{ 1 < 2 < 3 }}"), HasSubstr("comparisons in a chain are not supported"));
  EXPECT_THAT(error("{{ 1.5 }}"), HasSubstr("numbers other than integers are not supported"));
  EXPECT_THAT(error("{{ 1e5 }}"), HasSubstr("numbers other than integers are not supported"));
  EXPECT_THAT(error("{{ '\\101' }}"), HasSubstr("\"\\1\" in a string is not supported"));
  EXPECT_THAT(error("{% raw %}{{ ? }}{% endraw %}"), HasSubstr("the tag \"raw\" is not supported"));
  EXPECT_THAT(error("{% with a = 1 %}{% endwith %}"), HasSubstr("the tag \"with\" is not supported"));
  EXPECT_THAT(error("{% call f() %}{% endcall %}"), HasSubstr("the tag \"call\" is not supported"));
  EXPECT_THAT(error("{% for x in y %}{% else %}{% endfor %}"), HasSubstr("the tag \"else\" is not supported"));
  EXPECT_THAT(error("{% for x in y %}{% macro f() %}{% endmacro %}{% endfor %}"), HasSubstr("a macro within another"));
  EXPECT_THAT(error("{{ loop.cycle(1, 2) }}"), HasSubstr("the method \"cycle\" is not supported"));
  EXPECT_THAT(error("{% filter upper %}{% endfilter %}"), HasSubstr("the tag \"filter\" is not supported"));
  EXPECT_THAT(error("{{ '1'|int }}"), HasSubstr("the filter \"int\" is not supported"));
  EXPECT_THAT(error("{{ f is callable }}"), HasSubstr("the test \"callable\" is not supported"));
  EXPECT_THAT(error("{{ 3 / 2 }}"), HasSubstr("the operator \"/\" is not supported"));
  EXPECT_THAT(error("{{ 3 // 2 }}"), HasSubstr("the operator \"//\" is not supported"));
  EXPECT_THAT(error("{{ '\\u00e9' }}"), HasSubstr("\"\\u\" in a string is not supported"));
  EXPECT_THAT(error("{% set a|upper %}{% endset %}"), HasSubstr("expected \"%}\", found \"|\""));
  EXPECT_THAT(error("{{ 1, 2 }}"), HasSubstr("expected \"}}\", found \",\""));
  EXPECT_THAT(error("{{ {1: 2} }}"), HasSubstr("the key of a mapping must be a string in quotes, found \"1\""));
  EXPECT_THAT(error("{{ {'a': 1, 'a': 2} }}"), HasSubstr("a mapping has the key \"a\" twice"));
  EXPECT_THAT(error("{% macro range() %}{% endmacro %}"), HasSubstr("there is another function \"range\""));
  EXPECT_THAT(error("{{ caller() }}"), HasSubstr("the function \"caller\" is not supported"));
  EXPECT_THAT(error("{% break %}"), HasSubstr("outside of a loop"));
  EXPECT_THAT(error("{{ 99999999999999999999 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error("{{ a b }}"), HasSubstr("expected \"}}\", found \"b\""));
  EXPECT_THAT(error(std::string("{{ '\xff' }}")), HasSubstr("UTF-8"));
}

TEST(Jinja, what_fails_names_the_line_and_what_was_found) {
  EXPECT_EQ(refusal("\n{{ m.x.y }}", R"({"m": {}})"),
            "the chat template test, line 2: can not look up the string \"y\" in \"x\", which is undefined");
  EXPECT_EQ(refusal("{{ raise_exception('no\nsuch ' ~ 'turn') }}"),
            "the chat template test refuses the conversation: no such turn");
  EXPECT_THAT(refusal("{{ 'a' + 1 }}"), HasSubstr("there is no the string \"a\" + the number 1"));
  EXPECT_THAT(refusal("{{ x + 1 }}", R"({"x": 0.5})"), HasSubstr("there is no the number 0.5 + the number 1"));
  EXPECT_THAT(refusal("{{ 'a' * 2 }}"), HasSubstr("there is no the string \"a\" * the number 2"));
  EXPECT_THAT(refusal("{{ ['a']|map('uper') }}"), HasSubstr("the filter \"uper\" is not supported (did you mean"));
  EXPECT_THAT(refusal("{{ ['a']|map('upper', attribute='a') }}"), HasSubstr("\"map\" takes the name of a filter, or"));
  EXPECT_THAT(refusal("{{ [1, 'a']|sort }}"), HasSubstr("can not tell which is less"));
  EXPECT_THAT(refusal("{{ {'a': 1}.items }}"), HasSubstr("\"items\" is a method of mappings"));
  EXPECT_THAT(refusal("{{ [namespace()] }}"), HasSubstr("a namespace within a list"));
  EXPECT_THAT(refusal("{% set n = namespace() %}{% set n.n = n %}"), HasSubstr("a namespace within a namespace"));
  EXPECT_THAT(refusal("{{ '%s' % 'a' }}"), HasSubstr("there is no the string \"%s\" % the string \"a\""));
  EXPECT_THAT(refusal("{{ 'a'.items() }}"), HasSubstr("the string \"a\" has no method \"items\""));
  EXPECT_THAT(refusal("{{ [1, 2] < [1, 3] }}"), HasSubstr("can not tell which is less"));
  EXPECT_THAT(refusal("{{ [1]|tojson(separators=('a',)) }}"), HasSubstr("JSON has two separators, found 1"));
  EXPECT_THAT(refusal("{{ 1 < 'a' }}"), HasSubstr("can not tell which is less"));
  EXPECT_THAT(refusal("{{ 1 % 0 }}"), HasSubstr("divides by zero"));
  EXPECT_THAT(refusal("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(refusal("{% for a, b in [[1]] %}{% endfor %}"), HasSubstr("1 values for 2 names"));
  EXPECT_THAT(refusal("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}"), HasSubstr("takes 1 arguments, got 2"));
  EXPECT_THAT(refusal("{% macro f(a) %}{% endmacro %}{{ f(b=2) }}"), HasSubstr("has no argument \"b\""));
  EXPECT_THAT(refusal("{{ x|tojson }}"), HasSubstr("can not be written as JSON"));
  EXPECT_THAT(refusal("{{ namespace(a=1) }}"), HasSubstr("a namespace can not be written"));
  EXPECT_THAT(refusal("{% set a.b = 1 %}", R"({"a": {}})"), HasSubstr("\"a\" is no namespace"));
}

NOUGHT_SIZE(medium);
TEST(Jinja, a_program_is_bounded_in_steps_memory_and_depth) {
  const auto repeat = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_THAT(refusal("{{ range(1000000000000)|length }}"), HasSubstr("too "));
  EXPECT_THAT(
      refusal("{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"),
      HasSubstr("too much time or memory"));
  EXPECT_THAT(refusal("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
              HasSubstr("too "));
  EXPECT_THAT(refusal("{% for a in range(99999) %}{% if 1" + repeat(" + 1", 90) + " %}{% endif %}{% endfor %}"),
              HasSubstr("too much"));
  EXPECT_THAT(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("recurses deeper"));
  EXPECT_THAT(refusal("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
                      "{{ ns.l }}"),
              HasSubstr("too "));
  for (const char* written : {"ns.l", "ns.l|tojson(separators=('a', 'b'))", "[ns.l]|tojson(indent=0)"})
    EXPECT_THAT(
        refusal("{% set ns = namespace(l=[]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
                "{{ " +
                std::string(written) + " }}"),
        HasSubstr("too much time"))
        << written << ": of lists without a value";
  EXPECT_THAT(refusal("{{ 1" + repeat(" if 1", 5000) + " }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{{ " + repeat("not ", 5000) + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{{ 1" + repeat(" + 1", 5000) + " }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal("{{ a" + repeat(".b", 5000) + " }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(repeat("{% if 1 %}", 5000)), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal(repeat("x", (1 << 20) + 1)), HasSubstr("more than"));
  EXPECT_THAT(refusal("{{ x }}", ("{\"x\": " + repeat("[", 90) + repeat("]", 90) + "}").c_str()), testing::IsEmpty());
}

TEST(Jinja, a_program_that_exceeds_its_bounds_is_told_them) {
  EXPECT_THAT(refusal("{{ range(10000000000)|length }}"), HasSubstr("takes too much time or memory: more than 1000"));
  const std::string given = R"({"x": ")" + std::string(5000, 'y') + "\"}";
  EXPECT_THAT(refusal("{{ raise_exception('no ' ~ x) }}", given.c_str()),
              HasSubstr("no " + std::string(197, 'y') + "..."));
}

NOUGHT_SIZE(medium);
TEST(Jinja, what_takes_long_costs_steps_in_proportion) {
  // Each would take what 10,000 characters or 1,000 elements take 9,999 times, if it cost one step at a time.
  for (const char* costly : {"x|upper",       "x|title",
                             "x.strip('b')",  "x.replace('b', 'c')",
                             "x.split('b')",  "x.startswith(x)",
                             "'b' in x",      "x == y",
                             "x < y",         "x ~ y",
                             "x|tojson",      "[x]|string",
                             "x[::-1]",       "x|list|length",
                             "x|indent",      "x|join",
                             "x.join(l)",     "x.split()",
                             "l == k",        "l|join",
                             "l|list",        "l|tojson",
                             "l + l",         "l[1:]",
                             "1 in l",        "l|select|list",
                             "m.k999",        "m[x]",
                             "{'a': 1}[x]",   "x in m",
                             "m.get('k999')", "m|items|list",
                             "m == n",        "m|dictsort|length",
                             "l|sort",        "l|map('string')",
                             "m.values()"}) {
    const std::string program =
        "{% set ns = namespace(x='a', l=[0], m={}) %}"
        "{% for i in range(9999) %}{% set r = " +
        std::string(costly) + " %}{% endfor %}";
    OrderedJson given = {{"x", std::string(10'000, 'a')}, {"y", std::string(10'000, 'a')}};
    for (int i = 0; i < 1'000; ++i) {
      given["l"].push_back(0), given["k"].push_back(0);
      given["m"]["k" + std::to_string(i)] = i;
    }
    given["n"] = given["m"];
    EXPECT_THAT(refusal(program, given.dump().c_str()), HasSubstr("too much time")) << costly;
  }
  const std::string name(10'000, 'n');
  for (const std::string& costly : {name, "f(" + name + "=1)"})
    EXPECT_THAT(refusal("{% macro f(" + name + ") %}{% endmacro %}{% for i in range(9999) %}{% set r = " + costly +
                        " %}{% endfor %}"),
                HasSubstr("too much time"));
  EXPECT_EQ(render("{% for i in range(9999) %}{% set r = x %}{% endfor %}{{ r }}", R"({"x": "a"})"), "");
  const std::string wide = R"({"x": ")" + std::string(100'000, ',') + "\"}";
  EXPECT_THAT(refusal("{{ range(300)|tojson(separators=(x, ':')) }}", wide.c_str()), HasSubstr("too much time"));
}

/// Each character becomes a value of its own.
TEST(Jinja, a_long_message_is_not_taken_apart) {
  const std::string given = "{\"x\": \"" + std::string(2'000'000, 'x') + "\"}";
  EXPECT_THAT(refusal("{{ x|list|length }}", given.c_str()), HasSubstr("too much time or memory"));
  EXPECT_EQ(render("{{ x|length }}", given.c_str()), "2000000");
}

TEST(Jinja, long_conversations_are_within_the_bounds) {
  OrderedJson messages = OrderedJson::array();
  for (int i = 0; i < 400; ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(20'000, 'x')}});
  const Program program("qwen3", test::read_bytes(kChats / "qwen3.jinja"));
  const Rendered text = program.render(jinja::value_of({{"messages", messages}}, kData), golden_day());
  EXPECT_GT(text.size(), 8'000'000u);
}

}  // namespace
}  // namespace nought::jinja_test
