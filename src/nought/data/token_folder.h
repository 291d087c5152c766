// The folders that `nought tokenize` writes: token files 00000.tokens and so on, and an index.json. The index names the
// files and says what they were made from. By it an interrupted run continues with the same bytes.
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
    v("tokens", tokens, "how many tokens it holds");
    v("documents", documents, "how many documents begin in it");
    v("targets", targets, "how many of its tokens are targets of training");
    v("input_bytes", input_bytes, "how many bytes of the input became its tokens");
  }
};

/// How far the input has become token files.
struct TokenFolderState {
  int64_t input = 0;   // index of the input file
  int64_t offset = 0;  // byte of that file
  int64_t line = 0;    // line of that file, from 0
  std::string hash;    // a hash of all input bytes before that place

  template <class V>
  void visit(V& v) {
    v("input", input, "index of the input file that comes next");
    v("offset", offset, "byte within it");
    v("line", line, "line within it, from 0");
    v("hash", hash, "a hash of all input bytes before that place");
  }
};

struct TokenFolderIndex {
  std::string format = kTokenFolderFormat.str();
  bool complete = false;  // false: part of the input has not become tokens yet
  std::string tokenizer;  // its name, for people
  std::string settings;   // all that the bytes depend on besides the input: the same string gives the same files
  std::vector<std::string> inputs;
  std::vector<TokenFolderFile> files;
  TokenFolderState done;

  template <class V>
  void visit(V& v) {
    v("format", format, "name and version of this format; without it, version 1");
    v("complete", complete, "false while input is left");
    v("tokenizer", tokenizer, "as it was named");
    v("settings", settings, "what else the tokens depend on");
    v("inputs", inputs, "the text files, in their order");
    v("files", files, "the token files, in their order");
    v("done", done, "how far the input has become token files");
  }
};

/// Reads a folder's index; empty if it has none. IoError and ConfigError name the file.
std::optional<TokenFolderIndex> read_token_index(const std::filesystem::path& folder);
/// Writes a folder's index. IoError.
void write_token_index(const std::filesystem::path& folder, const TokenFolderIndex& index);

/// Files to train on, each once, and those below a folder that are no text.
struct DataFiles {
  std::vector<std::filesystem::path> files, left_out;
};
/// The files that any of the patterns matches, by path. A folder of token files stands for its files, any
/// other folder for the text files below it. ConfigError if a folder of token files is not complete.
DataFiles find_data_files(std::span<const std::string> patterns);
/// The files alone.
std::vector<std::filesystem::path> expand_data_files(std::span<const std::string> patterns);
/// "5 of 12 files below books are no text and are left out: a.png, b.pdf and 3 more"; "" if none is.
std::string describe_left_out(const DataFiles& found);

}  // namespace nought
