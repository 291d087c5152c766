// clean(): keeps the documents of web text that pass rule sets, and says which rule took how many.
//
// A document passes, in this order: its address, Unicode's normal form, its language, the rule sets, personal data. The
// result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nought/corpus/corpus_folder.h"
#include "nought/corpus/filter.h"
#include "nought/corpus/url_blocklist.h"

namespace nought {

enum class PersonalData { keep, redact, drop };

struct CleanOptions {
  std::vector<std::filesystem::path> inputs;
  DocumentOptions documents;
  CorpusFolderOptions output;
  Filters filters;
  std::vector<std::string> languages;  // codes of those that stay; empty: all
  double language_score = 0.65;        // least part of the text in it
  PersonalData personal_data = PersonalData::keep;
  std::optional<UrlBlocklist> blocklist = {};
  std::string url_field = "url";
  bool normal_form = false;  // C, of Unicode
  int threads = 1;
  std::string settings;  // what the user gave, to tell runs apart
};

/// What a reason of a rule set took, with the beginnings of at most five documents.
struct CleanReason {
  std::string rule, reason;
  int64_t documents = 0, bytes = 0;
  std::vector<std::string> examples = {};

  template <class V>
  void visit(V& v) {
    v("rule", rule, "the rule set");
    v("reason", reason, "datatrove's word for it");
    v("documents", documents, "how many it took");
    v("bytes", bytes, "of their texts");
    v("examples", examples, "how some of them begin");
  }
};

struct CleanReport {
  int64_t documents = 0, bytes = 0, kept_documents = 0, kept_bytes = 0;  // texts have so many bytes
  int64_t changed_documents = 0, emails = 0, addresses = 0;  // kept ones that changed; what was replaced in them
  std::vector<CleanReason> rejected = {};                    // by rule and reason

  void add(const CleanReport& other);
  /// The entry of a reason, which is made if there is none.
  CleanReason& entry(const std::string& rule, const std::string& reason);

  template <class V>
  void visit(V& v) {
    v("documents", documents, "documents read");
    v("bytes", bytes, "of their texts");
    v("kept_documents", kept_documents, "documents that stayed");
    v("kept_bytes", kept_bytes, "of their texts, as they are now");
    v("changed_documents", changed_documents, "those that stayed with another text");
    v("redacted_emails", emails, "e-mail addresses replaced");
    v("redacted_addresses", addresses, "public IPv4 addresses replaced");
    v("rejected", rejected, "what each reason took");
  }
};

struct CleanProgress {
  int64_t file_bytes = 0, documents = 0;
};

/// Writes the folders, and returns what was counted, also by earlier runs of which this one is the rest. ConfigError
/// names file and line of a malformed record. IoError.
CleanReport clean(const CleanOptions& options, const std::function<void(const CleanProgress&)>& observe);

}  // namespace nought
