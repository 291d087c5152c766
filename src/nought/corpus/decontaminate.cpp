#include "nought/corpus/decontaminate.h"

#include <algorithm>
#include <unordered_map>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/corpus_folder.h"
#include "nought/corpus/simplify.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The strings of a JSON value, those of its lists and objects too to some depth, with spaces between them.
void collect_strings(const Json& value, std::string& all, int depth = 32) {
  if (value.is_string()) {
    (all += value.get_ref<const std::string&>()) += ' ';
  } else if (value.is_structured() && depth > 0) {
    for (const Json& each : value) collect_strings(each, all, depth - 1);
  }
}

std::string name_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.substr(0, name.find('.', 1));
}

/// Calls f(hash) for each n-gram of the words of simplified text, until it returns false.
template <class F>
void for_each_gram(const std::vector<std::string_view>& words, size_t n, F&& f) {
  for (size_t i = 0; i + n <= words.size(); ++i) {
    const char* begin = words[i].data();
    const char* end = words[i + n - 1].data() + words[i + n - 1].size();
    if (!f(XXH3_64bits(begin, static_cast<size_t>(end - begin)))) return;
  }
}

}  // namespace

struct BenchmarkFilter::Grams {
  std::unordered_map<uint64_t, size_t> benchmark_of;  // the first that has the n-gram
};

BenchmarkFilter::~BenchmarkFilter() = default;

BenchmarkFilter::BenchmarkFilter(const std::vector<fs::path>& files, int64_t ngram, const DocumentOptions& options)
    : ngram_(ngram), identity_(identity_of(files)), grams_(std::make_unique<Grams>()) {
  require<ConfigError>(ngram >= 1 && ngram <= 1000, "--ngram {}: expected 1 to 1000 words", ngram);
  for (size_t i = 0; i < files.size(); ++i) {
    benchmarks_.push_back({name_of(files[i])});
    DocumentReader reader({files[i]}, options);
    while (const auto batch = reader.next())
      for_each_record(*batch, [&](const std::string& text, const Json& record) {
        std::string all = text;
        if (all.empty()) collect_strings(record, all);
        add(all, i);
      });
    const Benchmark& benchmark = benchmarks_.back();
    require<ConfigError>(benchmark.items > benchmark.too_short,
                         "{}: none of its {} items has {} words: --ngram is too large", files[i].string(),
                         benchmark.items, ngram);
  }
}

void BenchmarkFilter::add(std::string_view item, size_t benchmark) {
  const std::string simple = simplify(item);
  std::vector<std::string_view> words;
  split_at_spaces(simple, words);
  ++benchmarks_[benchmark].items;
  benchmarks_[benchmark].too_short += words.size() < static_cast<size_t>(ngram_);
  for_each_gram(words, static_cast<size_t>(ngram_), [&](uint64_t hash) {
    grams_->benchmark_of.emplace(hash, benchmark);
    return true;
  });
}

std::string_view BenchmarkFilter::apply(FilteredText& text) const {
  const std::string simple = simplify(text.str());
  std::vector<std::string_view> words;
  split_at_spaces(simple, words);
  std::string_view reason;
  for_each_gram(words, static_cast<size_t>(ngram_), [&](uint64_t hash) {
    const auto found = grams_->benchmark_of.find(hash);
    if (found != grams_->benchmark_of.end()) reason = benchmarks_[found->second].name;
    return reason.empty();
  });
  return reason;
}

Json BenchmarkFilter::settings() const { return {{"ngram", ngram_}, {"against", identity_}}; }

}  // namespace nought
