#include "nought/data/dataset.h"

#include <numeric>

#include "support/file_dataset.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/data/token_file.h"

namespace nought::dataset_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TokenDataset counting(int64_t tokens, int64_t seq_length, int64_t vocab_size = 1 << 20) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  const auto array = std::make_shared<TokenArray>(vocab_size);
  array->append(ids);
  return TokenDataset(array, {0, tokens}, seq_length);
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> sample(const TokenDataset& dataset, int64_t index) {
  std::vector<int32_t> inputs(static_cast<size_t>(dataset.seq_length())), targets = inputs;
  dataset.sample(index, inputs, targets);
  return {inputs, targets};
}

TEST(TokenDataset, targets_are_the_inputs_shifted_and_none_is_a_target_twice) {
  const TokenDataset dataset = counting(17, 4);
  ASSERT_EQ(dataset.num_samples(), 4);
  int32_t next = 1;
  for (int64_t i = 0; i < 4; ++i) {
    const auto [inputs, targets] = sample(dataset, i);
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(targets[t], next++);
      EXPECT_EQ(inputs[t], targets[t] - 1);
    }
  }
  EXPECT_EQ(counting(16, 4).num_samples(), 3);  // the last window lacks one token
  EXPECT_EQ(counting(0, 4).num_samples(), 0);
  EXPECT_EQ(counting(1, 1).num_samples(), 0);
}

TEST(TokenDataset, tokens_are_kept_in_the_narrowest_type) {
  for (auto [vocab_size, bytes] : {std::pair<int64_t, int64_t>{256, 1}, {257, 2}, {65536, 2}, {65537, 4}}) {
    TokenArray array(vocab_size);
    array.append(std::vector<int32_t>{0, static_cast<int32_t>(vocab_size - 1)});
    EXPECT_EQ(array.bytes(), 2 * bytes) << vocab_size;
    std::vector<int32_t> back(2);
    array.read(0, back);
    EXPECT_THAT(back, ElementsAre(0, static_cast<int32_t>(vocab_size - 1)));
  }
}

TEST(TokenDataset, documents_follow_each_other_with_a_separator) {
  TempFolder folder;
  const std::vector<std::filesystem::path> files{folder.write("1", "ab"), folder.write("2", ""),
                                                 folder.write("3", "c")};
  const TokenDataset dataset = test::dataset_of(files, *make_tokenizer("bytes"), 4);
  EXPECT_EQ(dataset.num_tokens(), 5);  // an empty file is no document
  EXPECT_THAT(sample(dataset, 0).first, ElementsAre('a', 'b', 0, 'c'));
  EXPECT_THAT(sample(dataset, 0).second, ElementsAre('b', 0, 'c', 0));
}

TEST(TokenDataset, tells_where_documents_begin_in_a_sample) {
  TempFolder folder;
  const std::vector<std::filesystem::path> files{folder.write("1", "ab"), folder.write("2", "cde"),
                                                 folder.write("3", "f")};
  const TokenDataset dataset = test::dataset_of(files, *make_tokenizer("bytes"), 4);  // ab0 cde0 f0
  EXPECT_THAT(dataset.document_starts(0), ElementsAre(0, 3));
  EXPECT_THAT(dataset.document_starts(1), ElementsAre(0, 3));
}

TEST(TokenDataset, separate_documents_predict_nothing_of_each_other) {
  TempFolder folder;
  const DataSource source{{folder.write("1", "ab"), folder.write("2", "cde"), folder.write("3", "f")}, 0};
  const TokenDataset dataset = TokenDataset::from_sources(std::span(&source, 1), *make_tokenizer("bytes"),
                                                          {.seq_length = 4, .separate_documents = true});
  EXPECT_THAT(sample(dataset, 0).second, ElementsAre('b', 0, kIgnoredTarget, 'd'));
  EXPECT_THAT(sample(dataset, 1).second, ElementsAre('e', 0, kIgnoredTarget, 0));
  EXPECT_EQ(dataset.num_targets(0), 3);
}

TEST(TokenDataset, of_conversations_only_what_assistants_say_is_a_target) {
  TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const CorpusOptions corpus{.chat = chat_source(ChatFormat::chatml, *tokenizer)};
  const std::string line = R"({"prompt": "Hi", "completion": "Ho"})"
                           "\n";
  const DataSource source{{folder.write("1.txt", "text"), folder.write("2.jsonl", line + line)}, 0};
  const TokenDataset dataset =
      TokenDataset::from_sources(std::span(&source, 1), *tokenizer, {.seq_length = 4, .corpus = corpus});
  const ChatTemplate::Tokens talk = ChatTemplate(ChatFormat::chatml, *tokenizer)
                                        .conversation(std::vector<ChatMessage>{{"user", "Hi"}, {"assistant", "Ho"}});
  std::vector<int32_t> ids{'t', 'e', 'x', 't', 0};
  std::vector<uint8_t> counts(ids.size(), 1);
  for (int i = 0; i < 2; ++i) {
    ids.insert(ids.end(), talk.ids.begin(), talk.ids.end());
    counts.insert(counts.end(), talk.targets.begin(), talk.targets.end());
  }
  ASSERT_EQ(dataset.num_tokens(), static_cast<int64_t>(ids.size()));
  for (int64_t i = 0; i < dataset.num_samples(); ++i) {
    const auto [inputs, targets] = sample(dataset, i);
    for (size_t k = 0; k < 4; ++k) {
      const size_t at = static_cast<size_t>(i) * 4 + k;
      EXPECT_EQ(inputs[k], ids[at]);
      EXPECT_EQ(targets[k], counts[at + 1] ? ids[at + 1] : kIgnoredTarget) << at;
    }
  }
  EXPECT_FALSE(dataset.all_targets_count());
}

TEST(TokenDataset, a_document_longer_than_a_block_is_read_whole) {
  TempFolder folder;
  std::string text(2'500'000, 'x');
  text[1 << 20] = 'y';
  const std::vector<std::filesystem::path> files{folder.write("1", text)};
  const TokenDataset dataset = test::dataset_of(files, *make_tokenizer("bytes"), 1 << 20);
  EXPECT_EQ(dataset.num_tokens(), 2'500'001);
  EXPECT_EQ(sample(dataset, 1).first[0], 'y');
}

TEST(TokenDataset, the_tail_is_kept_out_of_training) {
  const TokenDataset dataset = counting(41, 4);  // 10 samples
  const auto [train, tail] = dataset.split_tail(0.3);
  EXPECT_EQ(train.num_samples(), 7);
  EXPECT_EQ(tail.num_samples(), 3);
  EXPECT_EQ(sample(train, 6).second.back(), 28);
  EXPECT_EQ(sample(tail, 0).second.front(), 29);
  EXPECT_EQ(sample(tail, 2).second.back(), 40);
  const auto [all, none] = dataset.split_tail(0);
  EXPECT_EQ(all.num_samples(), 10);
  EXPECT_EQ(none.num_samples(), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { dataset.split_tail(1); }), HasSubstr("[0, 1)"));
  EXPECT_THAT(message_of<ConfigError>([&] { dataset.split_tail(0.01); }), HasSubstr("less than one"));
}

TEST(TokenDataset, too_few_samples_for_a_batch_are_an_error_with_the_numbers) {
  const TokenDataset dataset = counting(41, 4);
  dataset.require_batch(10);
  EXPECT_THAT(message_of<ConfigError>([&] { dataset.require_batch(11); }),
              HasSubstr("41 tokens, 10 samples of 4; one batch needs 11 samples, that is 45 tokens"));
  EXPECT_THAT(message_of<ConfigError>([&] { counting(4, 0); }), HasSubstr("seq_length"));
}

TEST(TokenDataset, the_fingerprint_sees_every_token) {
  const auto print = [](std::vector<int32_t> ids) {
    const auto array = std::make_shared<TokenArray>(256);
    array->append(ids);
    return TokenDataset(array, {0, array->size()}, 2).fingerprint();
  };
  EXPECT_EQ(print({1, 2, 3}), print({1, 2, 3}));
  EXPECT_NE(print({1, 2, 3}), print({1, 2, 4}));
  EXPECT_NE(print({1, 2, 3}), print({2, 1, 3}));
  EXPECT_NE(print({1, 2, 3}), print({1, 2, 3, 0}));
}

TEST(TokenDataset, masked_tokens_are_ignored_targets) {
  TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  TokenFileWriter writer(256, tokenizer->fingerprint());
  writer.add(std::vector<int32_t>{1, 2, 3, 4, 5}, std::vector<uint8_t>{0, 0, 1, 1, 0});
  writer.write(folder / "a.tokens");
  const std::vector<std::filesystem::path> files{folder / "a.tokens"};
  const TokenDataset dataset = test::dataset_of(files, *tokenizer, 4);
  std::vector<int32_t> inputs(4), targets(4);
  dataset.sample(0, inputs, targets);
  EXPECT_THAT(inputs, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(targets, ElementsAre(-100, 3, 4, -100));
  EXPECT_FALSE(dataset.all_targets_count());
  EXPECT_EQ(dataset.num_targets(0), 2);
}

TEST(TokenDataset, refuses_token_files_of_another_tokenizer) {
  TempFolder folder;
  TokenFileWriter writer(1000, 99);
  writer.add(std::vector<int32_t>{1, 2});
  writer.write(folder / "a.tokens");
  const std::vector<std::filesystem::path> files{folder / "a.tokens"};
  EXPECT_THAT(message_of<ConfigError>([&] { test::dataset_of(files, *make_tokenizer("bytes"), 1); }),
              HasSubstr("was written with another tokenizer, of 1000 tokens"));
}

}  // namespace
}  // namespace nought::dataset_test
