// CorpusFormat: what a file of data holds. Names alone, for configs and options.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "nought/base/visit.h"

namespace nought {

enum class CorpusFormat {
  text,        // a file is text
  jsonl,       // each line is a JSON object with the text of a document
  chat,        // each line is a JSON object with a conversation
  preference,  // each line is a JSON object with a chosen and a rejected answer
  unpaired,    // each line is a JSON object with an answer and a label
  scored,      // each line is a JSON object with a text or a conversation, and what a classifier should say of it
  prompts,     // each line is a JSON object with a prompt, and what rewards of its answers want to know
  completions  // each line is a JSON object with a prompt and its answer, or a conversation that ends with one
};

/// Whether records are texts that somebody judged or will judge, or answers that a model imitates.
constexpr bool is_of_answers(CorpusFormat format) {
  return format != CorpusFormat::text && format != CorpusFormat::jsonl && format != CorpusFormat::chat;
}

template <>
struct EnumNames<CorpusFormat> {
  static constexpr std::array<std::pair<CorpusFormat, std::string_view>, 8> value{
      {{CorpusFormat::text, "text"},
       {CorpusFormat::jsonl, "jsonl"},
       {CorpusFormat::chat, "chat"},
       {CorpusFormat::preference, "preference"},
       {CorpusFormat::unpaired, "unpaired"},
       {CorpusFormat::scored, "scored"},
       {CorpusFormat::prompts, "prompts"},
       {CorpusFormat::completions, "completions"}}};
};

}  // namespace nought
