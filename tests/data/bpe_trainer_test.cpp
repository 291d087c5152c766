#include "nought/text/bpe_trainer.h"

#include <map>

#include "support/golden_tokens.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/count_words.h"
#include "nought/text/tokenizer.h"

namespace nought::bpe_trainer_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const auto kNobody = [](int64_t) {};

/// The rule itself: count every pair anew, merge the most frequent, of equals the one with the smaller ids.
TrainedBpe train_slowly(const WordCounts& counts, const BpeTraining& training) {
  TrainedBpe bpe = train_bpe({}, {.vocab_size = training.vocab_size, .markers = training.markers}, kNobody);
  std::map<std::string, int32_t> ids;
  for (size_t id = 0; id < bpe.tokens.size(); ++id) ids[bpe.tokens[id]] = static_cast<int32_t>(id);
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  for (const auto& [text, count] : counts) {
    auto& word = words.emplace_back(std::vector<int32_t>(), count).first;
    for (const char c : text) word.push_back(ids.at(std::string(1, c)));
  }
  while (static_cast<int64_t>(bpe.tokens.size()) < training.vocab_size) {
    std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
    for (const auto& [symbols, count] : words)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += count;
    std::pair<int32_t, int32_t> best;
    int64_t most = training.min_count - 1;
    for (const auto& [pair, count] : pairs)
      if (count > most) best = pair, most = count;
    if (most < training.min_count) break;
    const std::string token =
        bpe.tokens[static_cast<size_t>(best.first)] + bpe.tokens[static_cast<size_t>(best.second)];
    const auto [known, fresh] = ids.emplace(token, static_cast<int32_t>(bpe.tokens.size()));
    if (fresh) bpe.tokens.push_back(token);
    bpe.merges.push_back(best);
    for (auto& [symbols, count] : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < symbols.size(); ++i) {
        const bool here = i + 1 < symbols.size() && symbols[i] == best.first && symbols[i + 1] == best.second;
        merged.push_back(here ? known->second : symbols[i]);
        i += here;
      }
      symbols = merged;
    }
  }
  return bpe;
}

std::string golden_text() {
  std::string all;
  for (const auto& each : test::golden_texts().at("r50k_base")) all += each.text + "\n";
  std::erase(all, '\0');  // which text files do not hold
  return all + std::string(40, 'a') + " aaa aaaa banana bananas " + std::string(7, '=');
}

WordCounts words_of(const TempFolder& folder, const std::string& text, WordPattern pattern = WordPattern::gpt2,
                    int threads = 1) {
  CorpusOptions options;
  options.portion_bytes = 300;
  return count_words({folder.write("text.txt", text)}, options, pattern, threads, kNobody);
}

TEST(BpeTrainer, finds_the_merges_that_counting_anew_each_time_finds) {
  const TempFolder folder;
  const WordCounts words = words_of(folder, golden_text());
  for (const int64_t size : {257, 258, 300, 500}) {
    const BpeTraining training{.vocab_size = size, .markers = {"<|endoftext|>"}};
    const TrainedBpe fast = train_bpe(words, training, kNobody), slow = train_slowly(words, training);
    EXPECT_EQ(fast.merges, slow.merges) << size;
    EXPECT_EQ(fast.tokens, slow.tokens) << size;
    EXPECT_EQ(static_cast<int64_t>(fast.tokens.size()), size);
  }
}

TEST(BpeTrainer, counts_the_words_of_the_pattern_on_any_number_of_threads) {
  const TempFolder folder;
  const WordCounts words = words_of(folder, "to be or not to be to\xff");
  EXPECT_EQ(words.at(" to"), 2);
  EXPECT_EQ(words.at(" be"), 2);
  EXPECT_EQ(words.at("to"), 1);
  EXPECT_EQ(words.size(), 5u);
  EXPECT_EQ(words_of(folder, golden_text()), words_of(folder, golden_text(), WordPattern::gpt2, 3));
}

TEST(BpeTrainer, what_it_writes_is_read_back_and_round_trips_any_bytes) {
  for (const auto& [pattern, name] : EnumNames<WordPattern>::value) {
    const TempFolder folder;
    const BpeTraining training{.vocab_size = 500, .markers = {"<|endoftext|>", "<|im_start|>"}};
    const TrainedBpe bpe = train_bpe(words_of(folder, golden_text(), pattern), training, kNobody);
    const auto tokenizer =
        make_tokenizer(folder.write("tokenizer.json", tokenizer_json_of(bpe, training, pattern).dump()).string());
    EXPECT_EQ(tokenizer->vocab_size(), 500);
    EXPECT_EQ(tokenizer->separator(), 0);
    EXPECT_EQ(tokenizer->find("<|im_start|>"), 1);
    std::string every_byte;
    for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
    size_t tokens = 0;
    for (const std::string& text : {golden_text(), every_byte}) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      EXPECT_EQ(tokenizer->decode(ids), text) << name;
      tokens += ids.size();
    }
    EXPECT_LT(tokens, golden_text().size()) << name;
  }
}

TEST(BpeTrainer, ids_are_markers_then_bytes_by_character_then_merges) {
  const TempFolder folder;
  const BpeTraining training{.vocab_size = 260, .markers = {"<|endoftext|>"}};
  const TrainedBpe bpe = train_bpe(words_of(folder, "low low low lower lowest"), training, kNobody);
  EXPECT_EQ(bpe.tokens[0], "<|endoftext|>");
  EXPECT_EQ(bpe.tokens[1], "!");
  EXPECT_EQ(bpe.tokens[256], "\xad");  // the last of GPT-2's stand-ins
  // "lo" and "ow" are as frequent: the smaller ids go first.
  EXPECT_THAT(std::vector(bpe.tokens.begin() + 257, bpe.tokens.end()), ElementsAre("lo", "low", " low"));
}

TEST(BpeTrainer, a_vocabulary_without_room_is_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { train_bpe({}, {.vocab_size = 256, .markers = {"x"}}, kNobody); }),
              HasSubstr("expected at least 257"));
}

}  // namespace
}  // namespace nought::bpe_trainer_test
