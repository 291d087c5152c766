#include "nought/corpus/clean.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/language.h"
#include "nought/corpus/personal_data.h"
#include "nought/data/ordered_map.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kExamples = 5;

/// What becomes of the documents of a batch.
struct CleanedBatch {
  std::string kept, rejected;  // JSON lines
  CleanReport report;
};

/// The beginning of a text, on one line.
std::string example_of(std::string_view text) {
  std::string_view beginning = text.substr(0, 120);
  beginning.remove_suffix(incomplete_utf8_tail(beginning));
  return one_line(beginning);
}

/// Which rule leaves a document out, and why; "" and "": it stays.
struct Verdict {
  std::string rule, reason;
};

class BatchCleaner {
 public:
  BatchCleaner(const CleanOptions& options, const DocumentBatch& batch) : options_(options), batch_(batch) {}

  CleanedBatch clean() {
    for_each_document(batch_, [this](const Document& document) { clean_document(document); });
    return std::move(out_);
  }

 private:
  void clean_document(const Document& document) {
    FilteredText text(document.text);
    const Verdict verdict = judge(document, text);
    const auto bytes = static_cast<int64_t>(document.text.size());
    ++out_.report.documents;
    out_.report.bytes += bytes;
    if (verdict.rule.empty()) return keep(document, text.str());
    CleanReason& reason = out_.report.entry(verdict.rule, verdict.reason);
    ++reason.documents;
    reason.bytes += bytes;
    if (reason.examples.size() < kExamples) reason.examples.push_back(example_of(document.text));
    if (options_.output.rejected) reject(document, verdict);
  }

  Verdict judge(const Document& document, FilteredText& text) {
    if (options_.blocklist && options_.blocklist->blocks(document.string_of(options_.url_field)))
      return {"url-blocklist", "blocked_url"};
    if (options_.normal_form) text.replace(normal_form_c(text.str()));
    if (!options_.languages.empty()) {
      const Language language = language_of(text.str());
      const auto& wanted = options_.languages;
      if (std::find(wanted.begin(), wanted.end(), language.code) == wanted.end()) return {"language", language.code};
      if (language.score < options_.language_score) return {"language", "low_score"};
    }
    for (const auto& filter : options_.filters)
      if (const std::string_view reason = filter->apply(text); !reason.empty())
        return {std::string(filter->name()), std::string(reason)};
    return judge_personal_data(text);
  }

  Verdict judge_personal_data(FilteredText& text) {
    if (options_.personal_data == PersonalData::keep) return {};
    Redacted redacted = redact(text.str());
    if (!redacted.any()) return {};
    if (options_.personal_data == PersonalData::drop) return {"pii", redacted.emails > 0 ? "email" : "ip_address"};
    out_.report.emails += redacted.emails;
    out_.report.addresses += redacted.addresses;
    text.replace(std::move(redacted.text));
    return {};
  }

  void keep(const Document& document, const std::string& text) {
    const bool changed = text != document.text;
    ++out_.report.kept_documents;
    out_.report.kept_bytes += static_cast<int64_t>(text.size());
    out_.report.changed_documents += changed;
    if (changed || document.record.empty())
      out_.kept += document.line_with(text, options_.documents.field);
    else
      (out_.kept += document.record) += '\n';
  }

  void reject(const Document& document, const Verdict& verdict) {
    std::string line = document.record.empty() ? document.line_with(document.text, options_.documents.field)
                                               : std::string(document.record);
    line.resize(line.rfind('}'));
    const Json rejected{{"rule", verdict.rule}, {"reason", verdict.reason}};
    out_.rejected += line + ",\"rejected\":" + rejected.dump() + "}\n";
  }

  const CleanOptions& options_;
  const DocumentBatch& batch_;
  CleanedBatch out_;
};

}  // namespace

void CleanReport::add(const CleanReport& other) {
  documents += other.documents;
  bytes += other.bytes;
  kept_documents += other.kept_documents;
  kept_bytes += other.kept_bytes;
  changed_documents += other.changed_documents;
  emails += other.emails;
  addresses += other.addresses;
  for (const CleanReason& more : other.rejected) {
    CleanReason& reason = entry(more.rule, more.reason);
    reason.documents += more.documents;
    reason.bytes += more.bytes;
    for (const std::string& example : more.examples)
      if (reason.examples.size() < kExamples) reason.examples.push_back(example);
  }
}

CleanReason& CleanReport::entry(const std::string& rule, const std::string& reason) {
  const auto before = [](const CleanReason& a, const std::pair<std::string, std::string>& b) {
    return std::pair(a.rule, a.reason) < b;
  };
  const auto at = std::lower_bound(rejected.begin(), rejected.end(), std::pair(rule, reason), before);
  if (at != rejected.end() && at->rule == rule && at->reason == reason) return *at;
  return *rejected.insert(at, {.rule = rule, .reason = reason});
}

CleanReport clean(const CleanOptions& options, const std::function<void(const CleanProgress&)>& observe) {
  CorpusFolder folder(options.output, options.settings + "\n" + identity_of(options.inputs));
  CleanReport report;
  if (!folder.state().report.is_null())
    report = from_json<CleanReport>(folder.state().report, Origins(options.output.folder.string()));
  if (folder.state().complete) return report;
  DocumentReader reader(options.inputs, options.documents, folder.state().place());
  ordered_map(
      options.threads, [&] { return reader.next(); },
      [&](const DocumentBatch& batch) { return BatchCleaner(options, batch).clean(); },
      [&](const DocumentBatch& batch, const CleanedBatch& cleaned) {
        folder.keep(cleaned.kept);
        folder.reject(cleaned.rejected);
        report.add(cleaned.report);
        if (folder.is_full()) folder.save(batch.end, to_json(report), /*complete=*/false);
        observe({reader.file_bytes(), report.documents});
      });
  folder.save({options.inputs.size(), 0, 0}, to_json(report), /*complete=*/true);
  return report;
}

}  // namespace nought
