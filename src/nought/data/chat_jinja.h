// The named chat notations as Jinja programs, which transformers and llama.cpp read from an exported model.
//
// The programs render what ChatTemplate writes, from the same table (chat_notation.h), with the variables that Hugging
// Face gives: messages, add_generation_prompt, eos_token, raise_exception.
#pragma once

#include <string>

#include "nought/data/formats.h"
#include "nought/data/tokenizer.h"

namespace nought {

/// The program of a notation. A marker at the start is written if the tokenizer has it, as ChatTemplate does.
std::string chat_jinja(ChatFormat format, const Tokenizer& tokenizer);

}  // namespace nought
