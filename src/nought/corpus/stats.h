// What a corpus is made of: documents, words, tokens, languages, lengths, and the share of each file.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nought/corpus/documents.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// A part of a corpus: a file, or a language.
struct CorpusPart {
  std::string name;
  int64_t documents = 0, bytes = 0, words = 0, tokens = 0;

  template <class V>
  void visit(V& v) {
    v("name", name, "a file or a language");
    v("documents", documents, "its documents");
    v("bytes", bytes, "of their texts");
    v("words", words, "between spaces");
    v("tokens", tokens, "0 without a tokenizer");
  }
};

/// Lengths below which a part of the documents stays, at most 4% above the true ones.
struct LengthQuantile {
  double part = 0;
  int64_t length = 0;

  template <class V>
  void visit(V& v) {
    v("part", part, "of the documents");
    v("length", length, "in tokens; in words without a tokenizer");
  }
};

struct CorpusStats {
  CorpusPart all;
  std::vector<CorpusPart> sources, languages;  // languages: most documents first
  std::vector<LengthQuantile> lengths;

  template <class V>
  void visit(V& v) {
    v("all", all, "all documents");
    v("sources", sources, "each file");
    v("languages", languages, "as libcld2 finds them; un: unknown");
    v("lengths", lengths, "quantiles");
  }
};

/// Counts. The tokenizer may be null. Throws as for_each_document() does.
CorpusStats corpus_stats(const std::vector<std::filesystem::path>& files, const DocumentOptions& options,
                         const Tokenizer* tokenizer, int threads, const std::function<void(int64_t)>& observe);

}  // namespace nought
