// Writes a tokenizer beside weights, as transformers' AutoTokenizer opens it, with the chat template that the model was
// trained with.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace nought {

struct TokenizerExport {
  std::string tokenizer;                             // as make_tokenizer() takes it; "": none
  std::vector<std::string> add_special_tokens = {};  // the same
  std::string chat_template = {};                    // a Jinja program; "": the folder's own, if it has one
  std::vector<std::pair<std::string, std::string>> specials = {};  // its "eos_token" and others, and their texts
};

/// Copies the files of the tokenizer's folder to the folder `to`. The tokenizer "bytes" and one with added tokens are
/// written as a tokenizer.json. A chat template goes into tokenizer_config.json, with the specials that are not named
/// there. If there is no tokenizer in a folder, nothing is written. IoError.
void export_tokenizer(const TokenizerExport& tokenizer, const std::filesystem::path& to);

}  // namespace nought
