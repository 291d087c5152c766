#include "nought/corpus/dedup.h"

#include <cmath>
#include <random>
#include <set>

#include "corpus/corpus_files.h"
#include "support/golden.h"
#include "support/temp_folder.h"

#include "nought/base/error.h"
#include "nought/corpus/disk_sort.h"

namespace nought::dedup_test {

using test::record;
using testing::ElementsAre;
using testing::HasSubstr;

const DedupObserver kNobody = [](const char*, int64_t) {};

struct Dedup : testing::Test {
  DedupOptions options(DedupKind kind, const std::string& output = "out") const {
    DedupOptions options;
    options.inputs = {folder / "in.jsonl"};
    options.kind = kind;
    options.output.folder = folder / output;
    return options;
  }
  /// The ids of what stays of these documents.
  std::vector<std::string> kept(const std::vector<std::string>& records, const DedupOptions& options) const {
    std::string all;
    for (const std::string& each : records) all += each;
    folder.write("in.jsonl", all);
    dedup(options, kNobody);
    return test::values_of(options.output.folder, "id");
  }
  const test::TempFolder folder;
};

TEST_F(Dedup, exact_keeps_the_first_of_equal_texts) {
  const std::vector<std::string> records{record("a", "x y"), record("b", "x z"), record("c", "x y"),
                                         record("d", "x y ")};
  EXPECT_THAT(kept(records, options(DedupKind::exact)), ElementsAre("a", "b", "d"));
}

TEST_F(Dedup, lines_go_when_they_occurred_before) {
  kept({record("a", "one\ntwo\n\none"), record("b", "  two \nthree\n"), record("c", "one\n two\n")},
       options(DedupKind::lines));
  EXPECT_THAT(test::values_of(folder / "out", "text"), ElementsAre("one\ntwo\n\n", "three\n"));
  EXPECT_THAT(test::values_of(folder / "out", "id"), ElementsAre("a", "b"));
}

TEST_F(Dedup, stretches_of_words_go_when_they_occurred_before) {
  DedupOptions substring = options(DedupKind::substring);
  substring.substring_words = 3;
  kept({record("a", "a b c d e f"), record("b", "x b  c\nd e y"), record("c", "p a b q c d r"), record("d", "b c d")},
       substring);
  EXPECT_THAT(test::values_of(folder / "out", "text"), ElementsAre("a b c d e f", "x  y", "p a b q c d r"));
}

std::string words(std::mt19937& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "w" + std::string(1, static_cast<char>('a' + random() % 26)) + "q" +
            std::string(1, static_cast<char>('a' + random() % 26)) +
            std::string(1, static_cast<char>('a' + random() % 26)) + " ";
  return text;
}

TEST_F(Dedup, minhash_finds_the_golden_pairs_by_their_similarity) {
  const Json golden = read_json_file(test::golden_folder("scale/data_cleaning.json"))["near_duplicates"];
  std::string all;
  for (const Json& each : golden["documents"]) all += each.dump() + "\n";
  folder.write("in.jsonl", all);
  dedup(options(DedupKind::minhash), kNobody);
  const std::vector<std::string> ids = test::values_of(folder / "out", "id");
  const std::set<std::string> stay(ids.begin(), ids.end());
  int alike = 0;
  for (const Json& each : golden["pairs"]) {
    EXPECT_TRUE(stay.contains(each["pair"][0].get<std::string>()));  // the first stays
    if (each["jaccard_5_word_grams"] < 0.9) continue;
    EXPECT_FALSE(stay.contains(each["pair"][1].get<std::string>())) << each;
    ++alike;
  }
  EXPECT_EQ(alike, 10);
}

TEST_F(Dedup, pairs_are_found_as_often_as_bands_and_rows_say) {
  // Texts of 104 words, 100 n-grams, of which the copy has `same`: J = same / (200 - same).
  std::mt19937 random(7);
  for (const int same : {70, 80, 84, 89, 95}) {
    constexpr int kPairs = 400;
    std::vector<std::string> records;
    for (int i = 0; i < kPairs; ++i) {
      const std::string common = words(random, same + 4);
      records.push_back(record("a" + std::to_string(i), common + words(random, 100 - same)));
      records.push_back(record("b" + std::to_string(i), common + words(random, 100 - same)));
    }
    DedupOptions all = options(DedupKind::minhash, "out" + std::to_string(same));
    all.minhash.similarity = 0;
    const double found = 2.0 * kPairs - static_cast<double>(kept(records, all).size());
    const double index = same / (200.0 - same), expected = 1 - std::pow(1 - std::pow(index, 8), 14);
    const double deviation = std::sqrt(expected * (1 - expected) / kPairs);
    EXPECT_NEAR(found / kPairs, expected, 3 * deviation + 0.005) << index;
  }
}

TEST_F(Dedup, the_longest_of_a_group_may_stay) {
  std::mt19937 random(3);
  const std::string text = words(random, 200);
  const std::vector<std::string> records{record("a", text), record("b", text + "more"),
                                         record("c", "other words here")};
  DedupOptions longest = options(DedupKind::minhash);
  longest.keep_longest = true;
  EXPECT_THAT(kept(records, longest), ElementsAre("b", "c"));
  EXPECT_THAT(kept(records, options(DedupKind::minhash, "first")), ElementsAre("a", "c"));
}

std::vector<std::string> many_records() {
  std::mt19937 random(5);
  std::vector<std::string> records, texts;
  for (int i = 0; i < 400; ++i) {
    std::string text = words(random, 30 + static_cast<int>(random() % 60)) + "\nline " + std::to_string(random() % 50);
    if (i > 10 && i % 3 == 0) text = texts[random() % texts.size()] + (i % 2 ? " tail" : "");
    texts.push_back(text);
    records.push_back(record(std::to_string(i), text));
  }
  return records;
}

TEST_F(Dedup, the_result_depends_neither_on_threads_nor_on_memory_nor_on_interruptions) {
  const std::vector<std::string> records = many_records();
  for (const DedupKind kind : {DedupKind::exact, DedupKind::minhash, DedupKind::lines, DedupKind::substring}) {
    const std::string name = std::to_string(static_cast<int>(kind));
    DedupOptions whole = options(kind, "whole" + name);
    whole.output.shard_bytes = 20'000;
    whole.substring_words = 20;
    ASSERT_LT(kept(records, whole).size(), kind == DedupKind::lines ? 401u : 390u);

    DedupOptions other = whole;
    other.output.folder = folder / ("other" + name);
    other.threads = 3;
    other.memory = int64_t{1} << 20;  // below what the hashes of stretches take
    other.documents.batch_bytes = 3000;
    struct Killed {};
    int runs = 0;
    for (bool done = false; !done; ++runs) {
      int calls = 0;
      try {
        dedup(other, [&](const char* phase, int64_t) {
          if (std::string(phase) == "writing" && ++calls == 20) throw Killed();
        });
        done = true;
      } catch (const Killed&) {
      }
      ASSERT_LT(runs, 20);
    }
    EXPECT_GT(runs, 1);
    EXPECT_EQ(test::values_of(other.output.folder, "id"), test::values_of(whole.output.folder, "id")) << name;
    EXPECT_EQ(test::values_of(other.output.folder, "text"), test::values_of(whole.output.folder, "text")) << name;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(other.output.folder), {}),
              1 + static_cast<std::ptrdiff_t>(test::shards_of(other.output.folder).size()));  // nothing is left behind
  }
}

TEST(DiskSort, sorts_what_memory_does_not_hold) {
  const test::TempFolder folder;
  std::mt19937_64 random(1);
  for (const size_t count : {size_t{0}, size_t{5}, size_t{1000}, size_t{1001}}) {
    DiskSort<uint64_t> sort(folder.path(), "run", 800);
    std::vector<uint64_t> values, sorted;
    for (size_t i = 0; i < count; ++i) values.push_back(random() % 500);
    for (const uint64_t value : values) sort.add(value);
    sort.for_each([&](uint64_t value) { sorted.push_back(value); });
    std::sort(values.begin(), values.end());
    EXPECT_EQ(sorted, values);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MinHash, options_that_cannot_be_are_refused) {
  EXPECT_THAT(test::message_of<ConfigError>([] { MinHash({.bits = 16}); }), HasSubstr("--bits 16"));
  EXPECT_THAT(test::message_of<ConfigError>([] { MinHash({.similarity = 2}); }), HasSubstr("--similarity 2"));
  EXPECT_EQ(MinHash({}).size(), 112u);
  EXPECT_TRUE(MinHash({}).signature(" ?! ").empty());
}

}  // namespace nought::dedup_test
