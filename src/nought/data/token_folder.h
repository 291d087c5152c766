// A folder that `nought tokenize` writes: token files 00000.tokens and on, and an index.json that names them and says
// what they were made from, so that an interrupted run continues with the same bytes.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/base/visit.h"
#include "nought/io/file_format.h"

namespace nought {

inline constexpr FileFormat kTokenFolderFormat{"nought-token-folder", 1};

/// One token file of a folder.
struct TokenFolderFile {
  std::string name;
  int64_t tokens = 0, documents = 0, targets = 0, input_bytes = 0;

  template <class V>
  void visit(V& v) {
    v("name", name, "the file, within the folder");
    v("tokens", tokens, "how many it holds");
    v("documents", documents, "how many it holds");
    v("targets", targets, "tokens that are no context only");
    v("input_bytes", input_bytes, "of the input that became its tokens");
  }
};

/// How far the input has become token files.
struct TokenFolderState {
  int64_t input = 0;   // index of the file
  int64_t offset = 0;  // within it, in bytes
  int64_t line = 0;    // within it, from 0
  std::string hash;    // of every input byte before that

  template <class V>
  void visit(V& v) {
    v("input", input, "index of the input file that comes next");
    v("offset", offset, "byte within it");
    v("line", line, "line within it, from 0");
    v("hash", hash, "of every input byte before that place");
  }
};

struct TokenFolderIndex {
  std::string format = kTokenFolderFormat.str();
  bool complete = false;
  std::string tokenizer;  // its name, for people
  std::string settings;   // whatever decides about the bytes: the same string gives the same files
  std::vector<std::string> inputs;
  std::vector<TokenFolderFile> files;
  TokenFolderState done;

  template <class V>
  void visit(V& v) {
    v("format", format, "name and version of this format; without it, version 1");
    v("complete", complete, "false while input is left");
    v("tokenizer", tokenizer, "as it was named");
    v("settings", settings, "what else decides about the tokens");
    v("inputs", inputs, "the text files, in their order");
    v("files", files, "the token files, in their order");
    v("done", done, "how far the input has become token files");
  }
};

/// None if the folder has no index. IoError and ConfigError name the file.
std::optional<TokenFolderIndex> read_token_index(const std::filesystem::path& folder);
/// IoError.
void write_token_index(const std::filesystem::path& folder, const TokenFolderIndex& index);

/// The files that the patterns name, as expand_globs gives them; a folder of token files stands for its files.
/// ConfigError if such a folder is not complete.
std::vector<std::filesystem::path> expand_data_files(std::span<const std::string> patterns);

}  // namespace nought
