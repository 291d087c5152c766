// Text of benchmarks, which must not be trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/corpus/documents.h"
#include "nought/corpus/filter.h"

namespace nought {

/// The word n-grams of benchmarks, as a filter that leaves out documents with one of them. The reason is the name of
/// the benchmark's file without its endings. Texts are compared as simplify() makes them (GPT-3: 13 words; 2005.14165,
/// C).
class BenchmarkFilter final : public Filter {
 public:
  /// Items of a benchmark are the documents of its file; of a record without options.field, all strings together.
  /// ConfigError if a file has no item of `ngram` words. IoError.
  BenchmarkFilter(const std::vector<std::filesystem::path>& files, int64_t ngram, const DocumentOptions& options);
  ~BenchmarkFilter() override;

  std::string_view name() const override { return "decontaminate"; }
  std::string_view apply(FilteredText& text) const override;
  Json settings() const override;

  /// Items of a benchmark, and how many of them have fewer words than an n-gram, and so cannot be found.
  struct Benchmark {
    std::string name;
    int64_t items = 0, too_short = 0;
  };
  const std::vector<Benchmark>& benchmarks() const { return benchmarks_; }

 private:
  struct Grams;
  void add(std::string_view item, size_t benchmark);

  int64_t ngram_;
  std::string identity_;
  std::vector<Benchmark> benchmarks_;
  std::unique_ptr<Grams> grams_;
};

}  // namespace nought
