// DataConfig: the section "data" of RUN.json as it was written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/visit.h"
#include "nought/data/formats.h"

namespace nought {

/// One source of a mixture of data.
struct SourceConfig {
  std::vector<std::string> files;
  Setting<double> weight;

  template <class V>
  void visit(V& v) {
    v("files", files, "as data.files");
    v("weight", weight,
      "its share of training, relative to the other weights; without weights: as much as each source holds");
  }
};

struct DataConfig {
  std::vector<std::string> files;
  Setting<std::vector<SourceConfig>> sources;
  Setting<std::vector<std::string>> validation_files;
  Auto<CorpusFormat> format;
  Setting<std::string> field{"text"};
  Auto<std::string> chat_template;
  Setting<std::string> tokenizer;
  Setting<std::vector<std::string>> add_special_tokens;
  Setting<bool> parse_special_tokens{false};
  Setting<int64_t> seq_length;
  Setting<double> validation_fraction{0.0};
  Setting<bool> separate_documents{false};

  template <class V>
  void visit(V& v) {
    v("files", files,
      "text, JSON with texts or conversations, token files and folders of `nought tokenize`: paths, folders for the "
      "text files below them, or globs where ** crosses folders");
    v("sources", sources, "a mixture, in place of files: a list of {files, weight}");
    v("validation_files", validation_files, "files to validate with, in place of validation_fraction");
    v("format", format,
      "what files hold: text, jsonl (each record an object with a text) or chat (each a conversation), on a line each "
      "or "
      "in one JSON list; default: by the first record of each file, whatever it is called");
    v("field", field, "the key that holds the text in the lines of a jsonl file");
    v("chat_template", chat_template,
      "how conversations are written: a Jinja file, or chatml, llama2, llama3, mistral, zephyr, gemma, phi3, phi4, "
      "phi4-mini, deepseek or deepseek3; default: the template of the tokenizer's folder, or by the tokenizer's "
      "markers");
    v("tokenizer", tokenizer,
      "bytes, or a path: a Hugging Face folder, tokenizer.json, vocab.json, vocab.txt, a .tiktoken or a .model file; "
      "default: the model's folder, and bytes for an inline model");
    v("add_special_tokens", add_special_tokens,
      "special tokens that a tokenizer.json (or bytes) gets beside its own, such as the markers of chat_template; "
      "exports have them; see training.resize_vocab");
    v("parse_special_tokens", parse_special_tokens,
      "whether what text spells like a special token, as <|endoftext|>, becomes that token, as Hugging Face's "
      "tokenizers do; false: it stays ordinary text, so that data cannot forge markers; messages are always text");
    v("seq_length", seq_length, "tokens per sequence; default: the model's number of positions");
    v("validation_fraction", validation_fraction,
      "fraction of the tokens that is kept for validation, from the end of each source");
    v("separate_documents", separate_documents,
      "documents in one sequence do not attend to each other, and the positions of each begin at 0");
  }
};

}  // namespace nought
