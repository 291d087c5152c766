// The readers of forms that clients ask answers in: GBNF, regular expressions and JSON schemas.
#include "memory_file.h"
#include "targets.h"

#include "nought/base/json.h"
#include "nought/grammar/gbnf_grammar.h"
#include "nought/grammar/grammar_states.h"
#include "nought/grammar/json_schema.h"
#include "nought/grammar/regex_grammar.h"

namespace nought::fuzz {

namespace {

/// Writes the beginning of a word, each byte chosen by those before it. Wherever a word has come to, it ends or goes
/// on.
void write_word(Grammar grammar, Grammar::Expression expression) {
  constexpr int kLongest = 64;
  const Grammar::Rule root = grammar.declare();
  grammar.define(root, expression);
  grammar.finish(root);
  GrammarStates states(std::move(grammar));
  GrammarStates::State state = states.start();
  unsigned choice = 1;
  for (int length = 0; length < kLongest && !states.only_ends(state); ++length) {
    GrammarStates::State after = GrammarStates::kDead;
    choice = choice * 1664525U + 1013904223U;
    for (unsigned i = 0; i < 256 && after == GrammarStates::kDead; ++i)
      after = states.next(state, static_cast<uint8_t>((choice >> 16U) + i));
    if (after == GrammarStates::kDead) give_up("grammar", "a word that neither ends nor goes on");
    state = after;
  }
}

}  // namespace

void read_gbnf(std::span<const std::byte> bytes) {
  accept_or_refuse([&] {
    Grammar grammar;
    const Grammar::Expression words = gbnf_expression(grammar, text_of(bytes));
    write_word(std::move(grammar), words);
  });
}

void read_regex(std::span<const std::byte> bytes) {
  for (const bool whole : {true, false})
    accept_or_refuse([&] {
      Grammar grammar;
      const auto write = [&](const Grammar::CodePoints& ranges) { return grammar.characters(ranges); };
      const Grammar::Expression words = regex_expression(grammar, text_of(bytes), whole, write);
      write_word(std::move(grammar), words);
    });
}

void read_json_schema(std::span<const std::byte> bytes) {
  const auto schema = OrderedJson::parse(text_of(bytes), nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded()) return;
  accept_or_refuse([&] {
    Grammar grammar;
    const Grammar::Expression words = json_schema_expression(grammar, schema);
    write_word(std::move(grammar), words);
  });
}

}  // namespace nought::fuzz
