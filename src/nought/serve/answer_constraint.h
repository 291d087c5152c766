// AnswerConstraint: what the text of an answer must be, by the request: JSON, a pattern, calls of tools.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/grammar/token_constraint.h"
#include "nought/serve/json_fields.h"
#include "nought/serve/reply_parser.h"
#include "nought/serve/served_model.h"

namespace nought {

struct AnswerConstraint {
  enum class Format : uint8_t { free, object, schema, regex, choice, gbnf };
  struct Tool {
    std::string name = {};
    OrderedJson parameters = {};  // the schema of its arguments; null: any object
    bool strict = false;
    std::string field = {};  // of the request, for refusals
  };
  Format format = Format::free;
  OrderedJson value = {};  // the schema, the pattern, the grammar, or the list of texts
  std::string field = {};  // of the request, for refusals
  std::vector<Tool> tools = {};
  bool must_call = false, parallel = true;

  /// Whether anything is not left to the model.
  bool constrains() const;
  /// The grammar of the answer's text, written in the form that `reply` reads. ApiError names the field whose schema,
  /// pattern or grammar is not supported.
  Grammar grammar(const ReplyParser::Options& reply) const;
};

/// "tools", "tool_choice" and "parallel_tool_calls" of a chat. Sets what `reply` says of tools.
void read_tools(JsonFields& fields, const ServedModel& model, AnswerConstraint& constraint,
                ReplyParser::Options& reply);
/// "response_format" of a chat.
void read_response_format(JsonFields& fields, AnswerConstraint& constraint);
/// vLLM's "guided_json", "guided_regex", "guided_choice" and "guided_grammar", also as "structured_outputs", and
/// llama-server's "grammar".
void read_guided(JsonFields& fields, AnswerConstraint& constraint);

/// Makes masks of constraints, and keeps those of the last ones. What it returns is for the engine's thread.
class AnswerMasks {
 public:
  explicit AnswerMasks(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::shared_ptr<TokenMasks> of(const AnswerConstraint& constraint, const ReplyParser::Options& reply);

 private:
  const Tokenizer& tokenizer_;
  std::shared_ptr<const TokenBytes> tokens_;                             // made for the first that asks
  std::list<std::pair<std::string, std::shared_ptr<TokenMasks>>> last_;  // by what they are made of, the latest first
};

}  // namespace nought
