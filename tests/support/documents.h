// encode_document(): a text as a document of its own.
#pragma once

#include <string_view>
#include <vector>

#include "nought/text/tokenizer.h"

namespace nought::test {

inline void encode_document(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>& ids) {
  tokenizer.begin_document(ids);
  tokenizer.encode(text, ids);
  tokenizer.end_document(ids);
}

}  // namespace nought::test
