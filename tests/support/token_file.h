// A file of tokens that are the bytes of a text.
#pragma once

#include <string>
#include <vector>

#include "support/documents.h"
#include "support/temp_folder.h"

#include "nought/data/token_file.h"
#include "nought/text/tokenizer.h"

namespace nought::test {

/// One document. kept: of three times so many tokens the first are targets, and the others are not; 0: all are.
inline std::string write_tokens(const TempFolder& folder, const std::string& name, const std::string& text,
                                size_t kept = 0) {
  const auto bytes = make_tokenizer("bytes");
  std::vector<int32_t> ids;
  encode_document(*bytes, text, ids);
  std::vector<uint8_t> targets;
  for (size_t i = 0; kept > 0 && i < ids.size(); ++i) targets.push_back(i / kept % 3 == 0);
  TokenFileWriter writer(bytes->vocab_size(), bytes->fingerprint());
  writer.add(ids, targets);
  writer.write(folder / name);
  return (folder / name).string();
}

}  // namespace nought::test
