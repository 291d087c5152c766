// dedup(): leaves out documents, or lines and stretches of words, that occurred before.
//
// Design goals: memory stays below a limit whatever the size of the input, so what is sorted lies on disk. The result
// depends neither on the number of threads nor on the order in which files are given: they are read sorted by path. A
// run that was killed while it wrote goes on behind the last whole shard.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nought/corpus/corpus_folder.h"
#include "nought/corpus/minhash.h"

namespace nought {

enum class DedupKind {
  exact,     // documents with the same text
  minhash,   // near duplicates, by MinHash
  lines,     // lines that occurred before, in any document
  substring  // stretches of words that occurred before
};

struct DedupOptions {
  std::vector<std::filesystem::path> inputs;  // sorted
  DocumentOptions documents;
  CorpusFolderOptions output;
  DedupKind kind = DedupKind::exact;
  MinHashOptions minhash;
  int64_t substring_words = 50;       // the least length of a stretch
  bool keep_longest = false;          // the longest of near duplicates stays, else the first
  int64_t memory = int64_t{2} << 30;  // bytes, at most
  int64_t threads = 1;
  std::string settings;  // what the user gave, to tell runs apart
};

struct DedupReport {
  int64_t documents = 0, bytes = 0;            // read; bytes of texts
  int64_t kept_documents = 0, kept_bytes = 0;  // what stays of them
  int64_t repeated = 0;                        // documents, lines or words that are left out
  int64_t clusters = 0, largest_cluster = 0;   // groups of (near) duplicates, and documents of the largest

  template <class V>
  void visit(V& v) {
    v("documents", documents, "documents read");
    v("bytes", bytes, "of their texts");
    v("kept_documents", kept_documents, "documents that stayed");
    v("kept_bytes", kept_bytes, "of their texts, as they are now");
    v("repeated", repeated, "documents, lines or words that are left out");
    v("clusters", clusters, "groups of documents that are (near) duplicates");
    v("largest_cluster", largest_cluster, "documents of the largest group");
  }
};

/// Called now and then with what is done and how many bytes of the files it has read.
using DedupObserver = std::function<void(const char* phase, int64_t file_bytes)>;

/// Writes the folder. ConfigError for a malformed record, and if the memory is too small for the number of documents.
/// IoError.
DedupReport dedup(const DedupOptions& options, const DedupObserver& observe);

}  // namespace nought
