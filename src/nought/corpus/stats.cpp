#include "nought/corpus/stats.h"

#include <algorithm>
#include <bit>
#include <map>

#include "nought/corpus/characters.h"
#include "nought/corpus/language.h"
#include "nought/data/ordered_map.h"

namespace nought {

namespace {

/// A histogram of lengths whose bins are 1/32 of a power of two wide.
class LengthHistogram {
 public:
  void add(int64_t length) { ++counts_[bin_of(static_cast<uint64_t>(length))]; }
  void add(const LengthHistogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }
  /// The greatest length of the bin in which this part of all ends.
  int64_t quantile(double part) const {
    int64_t all = 0, seen = 0;
    for (const int64_t count : counts_) all += count;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (static_cast<double>(seen) >= part * static_cast<double>(all) && seen > 0) return end_of(i) - 1;
    }
    return 0;
  }

 private:
  static size_t bin_of(uint64_t length) {
    if (length < kSteps) return static_cast<size_t>(length);
    const auto shift = static_cast<unsigned>(std::bit_width(length)) - 6;
    return static_cast<size_t>(shift) * kSteps + static_cast<size_t>(length >> shift);
  }
  static int64_t end_of(size_t bin) {
    if (bin < 2 * kSteps) return static_cast<int64_t>(bin) + 1;
    const size_t shift = bin / kSteps - 1;
    return static_cast<int64_t>((bin - shift * kSteps + 1) << shift);
  }
  static constexpr size_t kSteps = 32;
  std::array<int64_t, kSteps * 48> counts_{};
};

struct CountedBatch {
  CorpusPart all;
  std::map<std::string, CorpusPart> languages;
  LengthHistogram lengths;
};

void add_to(CorpusPart& part, const CorpusPart& more) {
  part.documents += more.documents;
  part.bytes += more.bytes;
  part.words += more.words;
  part.tokens += more.tokens;
}

CountedBatch count_batch(const DocumentBatch& batch, const Tokenizer* tokenizer) {
  CountedBatch counted;
  std::vector<std::string_view> words;
  for_each_document(batch, [&](const Document& document) {
    words.clear();
    split_at_spaces(document.text, words);
    CorpusPart part{.name = language_of(document.text).code,
                    .documents = 1,
                    .bytes = static_cast<int64_t>(document.text.size()),
                    .words = static_cast<int64_t>(words.size())};
    if (tokenizer) part.tokens = static_cast<int64_t>(tokenizer->encode(document.text).size());
    counted.lengths.add(tokenizer ? part.tokens : part.words);
    add_to(counted.all, part);
    add_to(counted.languages[part.name], part);
  });
  return counted;
}

}  // namespace

CorpusStats corpus_stats(const std::vector<std::filesystem::path>& files, const DocumentOptions& options,
                         const Tokenizer* tokenizer, int threads, const std::function<void(int64_t)>& observe) {
  CorpusStats stats;
  stats.all.name = "all";
  for (const auto& file : files) stats.sources.push_back({file.string()});
  std::map<std::string, CorpusPart> languages;
  LengthHistogram lengths;
  DocumentReader reader(files, options);
  ordered_map(
      threads, [&] { return reader.next(); }, [&](const DocumentBatch& batch) { return count_batch(batch, tokenizer); },
      [&](const DocumentBatch& batch, const CountedBatch& counted) {
        add_to(stats.all, counted.all);
        add_to(stats.sources[batch.begin.file], counted.all);
        lengths.add(counted.lengths);
        for (const auto& [name, part] : counted.languages) add_to(languages[name], part);
        observe(reader.file_bytes());
      });
  for (auto& [name, part] : languages) {
    part.name = name;
    stats.languages.push_back(part);
  }
  std::stable_sort(stats.languages.begin(), stats.languages.end(),
                   [](const CorpusPart& a, const CorpusPart& b) { return a.documents > b.documents; });
  for (const double part : {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0})
    stats.lengths.push_back({part, lengths.quantile(part)});
  return stats;
}

}  // namespace nought
