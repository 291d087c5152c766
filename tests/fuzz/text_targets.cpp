// The readers of text that strangers wrote: documents, plain and compressed, and the filters of web text.
#include "memory_file.h"
#include "targets.h"

#include "nought/corpus/documents.h"
#include "nought/corpus/filter.h"
#include "nought/corpus/language.h"
#include "nought/corpus/minhash.h"
#include "nought/corpus/personal_data.h"
#include "nought/corpus/simplify.h"
#include "nought/text/unicode.h"

namespace nought::fuzz {

namespace {

void check_text(const std::string& text) {
  if (!is_valid_utf8(text)) give_up("documents", "a text that is no UTF-8");
}

void look_at(const Document& document) {
  static const Filters filters = read_filters("gopher,gopher-repetition,c4,fineweb");
  static const MinHash minhash({});
  check_text(document.text);
  for (const auto& filter : filters) {
    FilteredText text(document.text);
    filter->apply(text);
    check_text(text.str());
  }
  check_text(simplify(document.text));
  check_text(redact(document.text).text);
  check_text(document.line_with(document.text, "text"));
  minhash.signature(document.text);
  language_of(document.text);
}

}  // namespace

void read_documents(std::span<const std::byte> bytes) {
  const MemoryFile file(bytes);
  for (const char* separator : {"", "\n\n"})
    accept_or_refuse([&] {
      DocumentReader reader({file.path()}, {.separator = separator, .batch_bytes = 64, .max_document_bytes = 1 << 20});
      while (const auto batch = reader.next()) {
        for_each_document(*batch, look_at);
        for_each_record(*batch, [](const std::string& text, const Json&) { check_text(text); });
      }
    });
}

}  // namespace nought::fuzz
