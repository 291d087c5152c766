#include "nought/serve/answer_constraint.h"

#include <algorithm>

#include "nought/grammar/gbnf_grammar.h"
#include "nought/grammar/json_schema.h"
#include "nought/grammar/regex_grammar.h"

namespace nought {

namespace {

using Expression = Grammar::Expression;

constexpr size_t kMostKept = 16;

/// Runs f, and names the field where what it holds is refused.
template <class F>
auto naming(const std::string& field, const F& f) {
  try {
    return f();
  } catch (const ApiError&) {
    throw;
  } catch (const ConfigError& error) {
    throw ApiError(400, fmt::format("{}: {}", field, error.what()), field);
  }
}

/// How a form writes calls: `begin`, the calls with `between` them, and `end`.
struct CallForm {
  std::string begin, before_name, before_arguments, after, between, end;
};
CallForm call_form(ToolForm form) {
  using namespace reply_marker;
  switch (form) {
    case ToolForm::hermes:
      return {"",
              fmt::format("{}\n{{\"name\": \"", kHermesCall),
              "\", \"arguments\": ",
              fmt::format("}}\n{}", kHermesCallEnd),
              "\n",
              ""};
    case ToolForm::mistral:
      return {fmt::format("{}[", kMistralCalls), "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"};
    case ToolForm::deepseek_v3:
      return {std::string(kDeepSeekCalls),
              fmt::format("{}function{}", kDeepSeekCall, kDeepSeekSeparator),
              "\n```json\n",
              fmt::format("\n```{}", kDeepSeekCallEnd),
              "\n",
              std::string(kDeepSeekCallsEnd)};
    default:
      return {"", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""};
  }
}

class Maker {
 public:
  Maker(const AnswerConstraint& constraint, const ReplyParser::Options& reply)
      : constraint_(constraint), reply_(reply) {}

  Grammar make() {
    const Grammar::Rule start = grammar_.declare();
    grammar_.define(start, after_thinking(answer()));
    naming(field(), [&] { return grammar_.finish(start), 0; });
    return std::move(grammar_);
  }

 private:
  std::string field() const {
    if (constraint_.format != AnswerConstraint::Format::free) return constraint_.field;
    return constraint_.must_call ? "tool_choice" : "tools";
  }
  Expression text(const std::string& bytes) { return grammar_.text(bytes); }

  Expression answer() {
    if (constraint_.must_call) return calls();
    if (constraint_.format == AnswerConstraint::Format::free) return free_text_and_calls();
    const Expression content = formatted();
    return reply_.tools == ToolForm::none ? content : grammar_.choice({content, calls()});
  }

  Expression formatted() {
    const OrderedJson& value = constraint_.value;
    return naming(constraint_.field, [&]() -> Expression {
      const auto plain = [&](const Grammar::CodePoints& ranges) { return grammar_.characters(ranges); };
      switch (constraint_.format) {
        case AnswerConstraint::Format::schema:
          return json_schema_expression(grammar_, value);
        case AnswerConstraint::Format::regex:
          return regex_expression(grammar_, value.get<std::string>(), /*whole=*/true, plain);
        case AnswerConstraint::Format::gbnf:
          return gbnf_expression(grammar_, value.get<std::string>());
        case AnswerConstraint::Format::choice: {
          std::vector<Expression> ways;
          for (const OrderedJson& each : value) ways.push_back(text(each.get<std::string>()));
          return grammar_.choice(std::move(ways));
        }
        default:
          return json_object_expression(grammar_);
      }
    });
  }

  /// One call of any of the tools.
  Expression call(const CallForm& form) {
    std::vector<Expression> ways;
    for (const AnswerConstraint::Tool& tool : constraint_.tools) {
      // Without `strict` a schema that is not supported leaves the arguments free, but where a call is asked for.
      const bool follows = tool.strict || constraint_.must_call;
      const Expression arguments =
          follows && !tool.parameters.is_null()
              ? naming(tool.field, [&] { return json_schema_expression(grammar_, tool.parameters); })
              : json_object_expression(grammar_);
      ways.push_back(
          grammar_.sequence({text(form.before_name + tool.name + form.before_arguments), arguments, text(form.after)}));
    }
    const Grammar::Rule rule = grammar_.declare();
    grammar_.define(rule, grammar_.choice(std::move(ways)));
    return grammar_.call(rule);
  }
  Expression calls() {
    const CallForm form = call_form(reply_.tools);
    const Expression each = call(form);
    const Expression more =
        grammar_.repeat(grammar_.sequence({text(form.between), each}), 0, constraint_.parallel ? -1 : 0);
    return grammar_.sequence({text(form.begin), each, more, text(form.end)});
  }
  /// Text up to the marker of calls, and calls.
  Expression free_text_and_calls() {
    const CallForm form = call_form(reply_.tools);
    if (reply_.tools == ToolForm::llama3_json)
      throw ApiError(400, "tools: strict is not supported with tool_choice \"auto\" where calls have no marker",
                     "tools");
    const std::string begin = form.begin.empty() ? std::string(reply_marker::kHermesCall) : form.begin;
    const Expression all = calls();
    // The marker has been read where a call begins behind text.
    const Expression text_before = grammar_.without(begin);
    return grammar_.choice({text_before, grammar_.sequence({text_before, all})});
  }

  Expression after_thinking(Expression answer) {
    if (reply_.reasoning == ReasoningForm::none) return answer;
    const Expression breaks = grammar_.repeat(text("\n"), 0, 2);
    const Expression thoughts = grammar_.sequence({grammar_.until(reply_marker::kThinkEnd), breaks});
    if (reply_.thinks || reply_.reasoning == ReasoningForm::deepseek_r1) return grammar_.sequence({thoughts, answer});
    return grammar_.sequence(
        {grammar_.optional(grammar_.sequence({text(std::string(reply_marker::kThink)), thoughts})), answer});
  }

  const AnswerConstraint& constraint_;
  const ReplyParser::Options& reply_;
  Grammar grammar_;
};

void read_tool(const OrderedJson& value, const std::string& name, AnswerConstraint& constraint) {
  JsonFields tool(value, name);
  if (tool.text("type") != "function") tool.wrong("type", "\"function\"");
  const OrderedJson* function = tool.find("function");
  if (!function) tool.wrong("function", "an object");
  tool.finish();
  JsonFields parts(*function, tool.param("function"));
  AnswerConstraint::Tool read{.name = parts.text("name").value_or(""), .field = parts.param("parameters")};
  const bool named = read.name.size() <= 128 && is_function_name(read.name);
  if (!named) parts.wrong("name", "at most 128 letters, digits and any of _-.:/");
  parts.text("description");
  if (const OrderedJson* parameters = parts.find("parameters")) {
    if (!parameters->is_object()) parts.wrong("parameters", "a schema");
    read.parameters = *parameters;
  }
  read.strict = parts.boolean("strict", false);
  parts.finish();
  constraint.tools.push_back(std::move(read));
}

}  // namespace

bool AnswerConstraint::constrains() const {
  return format != Format::free || must_call ||
         std::any_of(tools.begin(), tools.end(), [](const Tool& tool) { return tool.strict; });
}

Grammar AnswerConstraint::grammar(const ReplyParser::Options& reply) const { return Maker(*this, reply).make(); }

void read_tools(JsonFields& fields, const ServedModel& model, AnswerConstraint& constraint,
                ReplyParser::Options& reply) {
  constexpr int64_t kMostTools = 128;
  const OrderedJson* choice = fields.find("tool_choice");
  constraint.parallel = fields.boolean("parallel_tool_calls", true);
  const OrderedJson* tools = fields.find("tools");
  const bool any = tools && !(tools->is_array() && tools->empty());
  if (any && (!tools->is_array() || std::ssize(*tools) > kMostTools))
    fields.wrong("tools", fmt::format("a list of at most {}", kMostTools));
  for (size_t i = 0; any && i < tools->size(); ++i) read_tool((*tools)[i], fmt::format("tools[{}]", i), constraint);
  std::string only;
  if (choice && choice->is_object()) {
    JsonFields parts(*choice, "tool_choice");
    if (parts.text("type") != "function") parts.wrong("type", "\"function\"");
    const OrderedJson* function = parts.find("function");
    if (!function) parts.wrong("function", "an object");
    parts.finish();
    JsonFields named(*function, "tool_choice.function");
    only = named.text("name").value_or("");
    named.finish();
    const auto is_it = [&](const AnswerConstraint::Tool& tool) { return tool.name == only; };
    if (std::none_of(constraint.tools.begin(), constraint.tools.end(), is_it))
      named.wrong("name", "the name of one of the tools");
  } else if (choice && *choice != "none" && *choice != "auto" && *choice != "required") {
    fields.wrong("tool_choice", "\"none\", \"auto\", \"required\" or a function");
  }
  constraint.must_call = choice && (*choice == "required" || !only.empty());
  if (constraint.must_call && !any) fields.wrong("tool_choice", "tools beside it");
  if (!any || (choice && *choice == "none")) return constraint.tools.clear();
  if (model.tool_form == ToolForm::none)
    throw ApiError(400, "tools: how this model writes calls is not known: serve it with --tool-call-parser", "tools");
  reply.tools = model.tool_form;
  for (const AnswerConstraint::Tool& tool : constraint.tools) reply.tool_names.push_back(tool.name);
  if (only.empty()) return;
  std::erase_if(constraint.tools, [&](const AnswerConstraint::Tool& tool) { return tool.name != only; });
  constraint.parallel = false;
}

void read_response_format(JsonFields& fields, AnswerConstraint& constraint) {
  const OrderedJson* format = fields.find("response_format");
  if (!format) return;
  JsonFields parts(*format, "response_format");
  const std::string type = parts.text("type").value_or("");
  if (type != "text" && constraint.format != AnswerConstraint::Format::free)
    fields.wrong("response_format", "nothing beside " + constraint.field);
  if (type == "json_object") {
    constraint.format = AnswerConstraint::Format::object;
    constraint.field = "response_format";
  } else if (type == "json_schema") {
    const OrderedJson* given = parts.find("json_schema");
    if (!given) parts.wrong("json_schema", "an object");
    JsonFields schema(*given, "response_format.json_schema");
    schema.text("name");
    schema.text("description");
    schema.boolean("strict", true);  // an answer satisfies its schema in any case
    const OrderedJson* value = schema.find("schema");
    if (!value || !value->is_object()) schema.wrong("schema", "a schema");
    schema.finish();
    constraint.format = AnswerConstraint::Format::schema;
    constraint.value = *value;
    constraint.field = schema.param("schema");
  } else if (type != "text") {
    parts.wrong("type", "\"text\", \"json_object\" or \"json_schema\"");
  }
  parts.finish();
}

void read_guided(JsonFields& fields, AnswerConstraint& constraint) {
  using Format = AnswerConstraint::Format;
  const auto take = [&](JsonFields& from, const std::string& name, Format format) {
    const OrderedJson* value = from.find(name);
    if (!value || (format == Format::gbnf && *value == "")) return;  // llama-server's clients send an empty grammar
    if (constraint.format != Format::free) from.wrong(name, "nothing beside " + constraint.field);
    OrderedJson taken = *value;
    if (format == Format::schema && taken.is_string()) taken = parse_body(taken.get<std::string>());
    const auto is_text = [](const OrderedJson& each) { return each.is_string(); };
    if (format == Format::schema && !taken.is_object()) from.wrong(name, "a schema");
    if (format == Format::regex && !taken.is_string()) from.wrong(name, "a pattern");
    if (format == Format::gbnf && !taken.is_string()) from.wrong(name, "a grammar, as text");
    if (format == Format::choice &&
        !(taken.is_array() && !taken.empty() && std::all_of(taken.begin(), taken.end(), is_text)))
      from.wrong(name, "a list of texts");
    constraint.format = format;
    constraint.value = std::move(taken);
    constraint.field = from.param(name);
  };
  take(fields, "guided_json", Format::schema);
  take(fields, "guided_regex", Format::regex);
  take(fields, "guided_choice", Format::choice);
  take(fields, "guided_grammar", Format::gbnf);
  take(fields, "grammar", Format::gbnf);
  if (const OrderedJson* outputs = fields.find("structured_outputs")) {
    JsonFields parts(*outputs, "structured_outputs");
    take(parts, "json", Format::schema);
    take(parts, "regex", Format::regex);
    take(parts, "choice", Format::choice);
    take(parts, "grammar", Format::gbnf);
    parts.refuse({"structural_tag"});
    parts.finish();
  }
}

std::shared_ptr<TokenMasks> AnswerMasks::of(const AnswerConstraint& constraint, const ReplyParser::Options& reply) {
  OrderedJson key{static_cast<int>(constraint.format),
                  constraint.value,
                  constraint.must_call,
                  constraint.parallel,
                  static_cast<int>(reply.tools),
                  static_cast<int>(reply.reasoning),
                  reply.thinks};
  for (const AnswerConstraint::Tool& tool : constraint.tools)
    key.push_back(OrderedJson::array({tool.name, tool.parameters, tool.strict}));
  const std::string name = key.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  const auto found = std::find_if(last_.begin(), last_.end(), [&](const auto& each) { return each.first == name; });
  if (found != last_.end()) {
    last_.splice(last_.begin(), last_, found);
    return last_.front().second;
  }
  if (!tokens_) {
    std::vector<std::string> markers;
    for (const std::string_view each :
         {reply_marker::kHermesCall, reply_marker::kHermesCallEnd, reply_marker::kMistralCalls, reply_marker::kThink,
          reply_marker::kThinkEnd, reply_marker::kDeepSeekCalls, reply_marker::kDeepSeekCall,
          reply_marker::kDeepSeekSeparator, reply_marker::kDeepSeekCallEnd, reply_marker::kDeepSeekCallsEnd})
      markers.emplace_back(each);
    tokens_ = std::make_shared<const TokenBytes>(tokenizer_, markers);
  }
  last_.emplace_front(name, std::make_shared<TokenMasks>(constraint.grammar(reply), tokens_));
  if (last_.size() > kMostKept) last_.pop_back();
  return last_.front().second;
}

}  // namespace nought
