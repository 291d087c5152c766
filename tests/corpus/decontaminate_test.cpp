#include "nought/corpus/decontaminate.h"

#include "corpus/corpus_files.h"
#include "support/temp_folder.h"

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/simplify.h"
#include "nought/corpus/stats.h"

namespace nought::decontaminate_test {

using testing::HasSubstr;

TEST(Decontaminate, documents_with_words_of_a_benchmark_are_named_by_it) {
  const test::TempFolder folder;
  const std::string item =
      R"({"question": "How many legs has a spider?", "choices": ["six", "eight legs"], "answer": 1})";
  const auto quiz = folder.write("quiz.v1.jsonl", item + "\n{\"question\": \"Short?\"}\n");
  const auto book = folder.write("book.txt", "it was a dark and stormy night in the town");
  const BenchmarkFilter filter({quiz, book}, 6, {});
  ASSERT_EQ(filter.benchmarks().size(), 2u);
  EXPECT_EQ(filter.benchmarks()[0].items, 2);
  EXPECT_EQ(filter.benchmarks()[0].too_short, 1);
  const auto reason = [&](const char* text) {
    FilteredText filtered(text);
    return filter.apply(filtered);
  };
  EXPECT_EQ(reason("They asked: how MANY legs, has a spider..."), "quiz");
  EXPECT_EQ(reason("It was a dark and stormy day"), "book");
  EXPECT_EQ(reason("It was a dark, stormy day; how many legs has it"), "");
  EXPECT_THAT(test::message_of<ConfigError>([&] { BenchmarkFilter({book}, 60, {}); }),
              HasSubstr("--ngram is too large"));
}

TEST(Simplify, leaves_what_copies_have_in_common) {
  EXPECT_EQ(simplify("  The 3.14 Caf\u00c9s,\n\"quoted\" \u2014 12,5!"), "the 0 cafes quoted 0");
  EXPECT_EQ(simplify("v1.2.3"), "v0 0");
  EXPECT_EQ(simplify("?!"), "");
}

TEST(CorpusStats, count_by_source_language_and_length) {
  const test::TempFolder folder;
  const auto english =
      folder.write("en.jsonl", test::record("1", "The quick brown fox jumps over the lazy dog again.") +
                                   test::record("2", "one two three"));
  const auto german = folder.write("de.txt", "Der schnelle braune Fuchs springt über den faulen Hund und schläft.");
  const auto tokenizer = make_tokenizer("bytes");
  const CorpusStats stats = corpus_stats({english, german}, {}, tokenizer.get(), 2, [](int64_t) {});
  EXPECT_EQ(stats.all.documents, 3);
  EXPECT_EQ(stats.all.words, 10 + 3 + 11);
  EXPECT_EQ(stats.all.tokens, stats.all.bytes);
  ASSERT_EQ(stats.sources.size(), 2u);
  EXPECT_EQ(stats.sources[1].documents, 1);
  EXPECT_TRUE(std::any_of(stats.languages.begin(), stats.languages.end(),
                          [](const CorpusPart& part) { return part.name == "de" && part.documents == 1; }));
  ASSERT_EQ(stats.lengths.back().part, 1.0);
  EXPECT_GE(stats.lengths.back().length, stats.sources[1].tokens);
  EXPECT_LE(static_cast<double>(stats.lengths.back().length), 1.04 * static_cast<double>(stats.sources[1].tokens));
}

}  // namespace nought::decontaminate_test
