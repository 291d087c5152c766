#include "nought/data/sampler.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::sampler_test {
namespace {

using testing::HasSubstr;

TokenDataset samples(int64_t count, int64_t seq_length = 3) {
  std::vector<int32_t> ids(static_cast<size_t>(count * seq_length + 1));
  std::iota(ids.begin(), ids.end(), 0);
  const auto array = std::make_shared<TokenArray>(1 << 20);
  array->append(ids);
  return TokenDataset(array, {0, array->size()}, seq_length);
}

// The samples of one step in the order of micro-step, rank and row.
std::vector<int64_t> step_samples(const TokenDataset& data, BatchLayout layout, uint64_t seed, int64_t step) {
  std::vector<int64_t> order;
  for (int64_t micro_step = 0; micro_step < layout.accumulation; ++micro_step) {
    for (layout.rank = 0; layout.rank < layout.world_size; ++layout.rank) {
      const TrainSampler sampler(data, layout, seed);
      for (int64_t row = 0; row < layout.micro_batch; ++row) order.push_back(sampler.sample_at(step, micro_step, row));
    }
  }
  return order;
}

TEST(Permutation, is_one_to_one_for_every_size) {
  for (uint64_t size : {1u, 2u, 3u, 5u, 16u, 255u, 256u, 257u, 1000u, 4097u}) {
    const Permutation permutation(size, 7);
    std::vector<bool> seen(size, false);
    for (uint64_t i = 0; i < size; ++i) {
      ASSERT_LT(permutation(i), size);
      EXPECT_FALSE(seen[permutation(i)]) << size;
      seen[permutation(i)] = true;
    }
  }
}

TEST(Permutation, spreads_evenly_and_depends_on_its_key) {
  constexpr uint64_t kSize = 10;
  std::vector<int> first(kSize, 0), second_after_first(kSize, 0);
  for (uint64_t key = 0; key < 5000; ++key) {
    const Permutation permutation(kSize, key);
    ++first[permutation(0)];
    ++second_after_first[(permutation(1) + kSize - permutation(0)) % kSize];
  }
  for (int count : first) EXPECT_NEAR(count, 500, 120);  // over five standard deviations
  EXPECT_EQ(second_after_first[0], 0);
  for (uint64_t i = 1; i < kSize; ++i) EXPECT_NEAR(second_after_first[i], 556, 120);
}

TEST(Permutation, reaches_far_beyond_memory) {
  const uint64_t size = uint64_t{3} << 58;
  const Permutation permutation(size, 1);
  EXPECT_LT(permutation(0), size);
  EXPECT_NE(permutation(0), permutation(size - 1));
}

TEST(TrainSampler, an_epoch_holds_every_sample_once_wherever_batches_are_cut) {
  const TokenDataset data = samples(23);
  const BatchLayout layout{.micro_batch = 2, .accumulation = 2, .world_size = 1};
  std::vector<int64_t> order;
  for (int64_t step = 0; step < 23; ++step) {
    const auto part = step_samples(data, layout, 5, step);
    order.insert(order.end(), part.begin(), part.end());
  }
  ASSERT_EQ(order.size(), 92u);  // four epochs
  std::set<std::vector<int64_t>> orders;
  for (auto epoch = order.begin(); epoch != order.end(); epoch += 23) {
    orders.emplace(epoch, epoch + 23);
    std::vector<int64_t> sorted(epoch, epoch + 23);
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < 23; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 4u);  // each epoch has an order of its own
}

TEST(TrainSampler, a_step_sees_the_same_samples_in_every_layout) {
  const TokenDataset data = samples(100);
  for (int64_t step : {0, 1, 7, 40}) {
    const auto one = step_samples(data, {.micro_batch = 8, .accumulation = 1, .world_size = 1}, 3, step);
    for (const BatchLayout& layout : {BatchLayout{.micro_batch = 1, .accumulation = 8, .world_size = 1},
                                      BatchLayout{.micro_batch = 2, .accumulation = 1, .world_size = 4},
                                      BatchLayout{.micro_batch = 1, .accumulation = 2, .world_size = 4},
                                      BatchLayout{.micro_batch = 4, .accumulation = 1, .world_size = 2},
                                      BatchLayout{.micro_batch = 1, .accumulation = 1, .world_size = 8}}) {
      EXPECT_EQ(step_samples(data, layout, 3, step), one);
    }
  }
}

TEST(BatchLayout, neighbours_read_parts_in_a_row_of_each_micro_step_or_of_the_whole_step) {
  const auto parts = [](BatchLayout layout) {
    std::vector<int64_t> all;
    for (layout.rank = 0; layout.rank < layout.world_size; ++layout.rank)
      for (int64_t micro = 0; micro < layout.accumulation; ++micro) all.push_back(layout.part(micro));
    return all;
  };
  using Parts = std::vector<int64_t>;
  EXPECT_EQ(parts({.accumulation = 2, .world_size = 4}), (Parts{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(parts({.accumulation = 2, .world_size = 4, .together = 2}), (Parts{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(parts({.accumulation = 2, .world_size = 4, .together = 1}), (Parts{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(TrainSampler, rows_have_keys_of_their_own_in_every_step_whatever_the_layout) {
  const auto memory = Memory::create();
  const TokenDataset data = samples(16);
  const auto keys = [&](const BatchLayout& layout, uint64_t seed, int64_t step) {
    std::vector<uint64_t> all;
    for (int64_t micro = 0; micro < layout.accumulation; ++micro)
      for (int rank = 0; rank < layout.world_size; ++rank) {
        BatchLayout own = layout;
        own.rank = rank;
        const Batch batch = TrainSampler(data, own, seed).batch(step, micro, *memory);
        all.insert(all.end(), batch.row_keys.begin(), batch.row_keys.end());
      }
    return all;
  };
  const BatchLayout one{.micro_batch = 8};
  EXPECT_EQ(keys(one, 3, 5), keys({.micro_batch = 2, .accumulation = 2, .world_size = 2}, 3, 5));
  std::set<uint64_t> seen;
  for (int64_t step = 0; step < 4; ++step)
    for (const uint64_t key : keys(one, 3, step)) seen.insert(key);
  EXPECT_EQ(seen.size(), 32u) << "a sample that is read again has another one";
  EXPECT_NE(keys(one, 3, 0), keys(one, 4, 0));
  EXPECT_TRUE(EvaluationSampler(data, one).batch(0, *memory).row_keys.empty());
}

TEST(TrainSampler, a_step_number_is_all_that_a_resume_needs) {
  auto memory = Memory::create();
  const TokenDataset data = samples(50);
  const BatchLayout layout{.micro_batch = 2, .accumulation = 2, .world_size = 2, .rank = 1};
  const TrainSampler through(data, layout, 11);
  std::vector<std::vector<int32_t>> seen;
  for (int64_t step = 0; step < 20; ++step)
    seen.push_back(through.batch(step, 1, *memory).targets.to_vector<int32_t>());
  const TrainSampler resumed(data, layout, 11);
  for (int64_t step = 19; step >= 0; --step) {
    EXPECT_EQ(resumed.batch(step, 1, *memory).targets.to_vector<int32_t>(), seen[static_cast<size_t>(step)]);
  }
  EXPECT_NE(TrainSampler(data, layout, 12).batch(0, 1, *memory).targets.to_vector<int32_t>(), seen[0]);
}

TEST(TrainSampler, a_batch_holds_its_samples_row_by_row) {
  auto memory = Memory::create();
  const TokenDataset data = samples(10);
  const TrainSampler sampler(data, {.micro_batch = 3}, 1);
  const Batch batch = sampler.batch(2, 0, *memory);
  EXPECT_EQ(batch.input_ids.shape(), (Shape{3, 3}));
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t first = sampler.sample_at(2, 0, row) * 3;
    for (int64_t t = 0; t < 3; ++t) {
      EXPECT_EQ(batch.input_ids.data<int32_t>()[row * 3 + t], first + t);
      EXPECT_EQ(batch.targets.data<int32_t>()[row * 3 + t], first + t + 1);
    }
  }
  EXPECT_EQ(sampler.targets_per_step(), 9);
  EXPECT_EQ(sampler.steps_for(1), 4);
  EXPECT_EQ(sampler.steps_for(3), 10);
  EXPECT_EQ(TrainSampler(data, {.micro_batch = 3}, 1, false).sample_at(1, 0, 0), 3);
}

TEST(TrainSampler, too_little_data_and_impossible_layouts_are_refused) {
  EXPECT_THAT(test::message_of<ConfigError>([] { TrainSampler(samples(7), {.micro_batch = 2, .accumulation = 4}, 0); }),
              HasSubstr("one batch needs 8 samples"));
  EXPECT_THAT(test::message_of<ConfigError>([] { TrainSampler(samples(7), {.world_size = 2, .rank = 2}, 0); }),
              HasSubstr("rank 2 is not in [0, 2)"));
  EXPECT_THAT(test::message_of<ConfigError>([] { TrainSampler(samples(7), {.micro_batch = 0}, 0); }),
              HasSubstr("must be positive"));
}

// Sources of 10, 40 and 50 samples of 2 tokens; the tokens of source s are 's'.
TokenDataset mixture(const test::TempFolder& folder, std::vector<double> weights) {
  std::vector<DataSource> sources;
  for (size_t s = 0; s < 3; ++s) {
    const std::string letter(1, static_cast<char>('a' + s));
    std::string text;
    while (text.size() < std::array{20u, 80u, 100u}[s]) text += letter;
    sources.push_back({{folder.write(letter, text)}, weights.empty() ? 0 : weights[s]});
  }
  return TokenDataset::from_sources(sources, *make_tokenizer("bytes"), {.seq_length = 2});
}

// How often each sample of the dataset comes in `steps` steps of one sample.
std::vector<int> counts(const TokenDataset& data, int64_t steps) {
  std::vector<int> result(static_cast<size_t>(data.num_samples()), 0);
  const TrainSampler sampler(data, {}, 9);
  for (int64_t step = 0; step < steps; ++step) ++result[static_cast<size_t>(sampler.sample_at(step, 0, 0))];
  return result;
}

TEST(TrainSampler, mixes_sources_by_weight_and_shows_all_of_a_source_before_any_again) {
  const test::TempFolder folder;
  const TokenDataset data = mixture(folder, {5, 3, 2});
  ASSERT_EQ(data.num_samples(), 100);
  const std::vector<int> epoch = counts(data, 100);
  EXPECT_EQ(std::accumulate(epoch.begin(), epoch.begin() + 10, 0), 50);
  EXPECT_EQ(std::accumulate(epoch.begin() + 10, epoch.begin() + 50, 0), 30);
  EXPECT_EQ(std::accumulate(epoch.begin() + 50, epoch.end(), 0), 20);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(epoch[i], 5);
  const std::vector<int> four = counts(data, 400);  // 50, 120 = 3 x 40 and 80 draws
  for (size_t i = 10; i < 50; ++i) EXPECT_EQ(four[i], 3);
  for (size_t i = 50; i < 100; ++i) EXPECT_LE(four[i], 2);
}

TEST(TrainSampler, a_source_of_no_weight_is_left_out) {
  const test::TempFolder folder;
  const std::vector<int> epoch = counts(mixture(folder, {1, 0, 1}), 100);
  EXPECT_EQ(std::accumulate(epoch.begin() + 10, epoch.begin() + 50, 0), 0);
  EXPECT_EQ(std::accumulate(epoch.begin(), epoch.begin() + 10, 0), 50);
}

TEST(TrainSampler, sources_without_weights_are_seen_whole) {
  const test::TempFolder folder;
  for (const int count : counts(mixture(folder, {}), 100)) EXPECT_EQ(count, 1);
}

TEST(TrainSampler, a_mixture_is_the_same_in_every_layout_and_orders_are_mixed) {
  const test::TempFolder folder;
  const TokenDataset data = mixture(folder, {5, 3, 2});
  EXPECT_EQ(step_samples(data, {.micro_batch = 8}, 3, 5),
            step_samples(data, {.micro_batch = 2, .accumulation = 2, .world_size = 2}, 3, 5));
  const auto first = step_samples(data, {.micro_batch = 10}, 3, 0);
  EXPECT_GT(std::count_if(first.begin(), first.end(), [](int64_t i) { return i >= 10; }), 0);
  EXPECT_GT(std::count_if(first.begin(), first.end(), [](int64_t i) { return i < 10; }), 0);
}

TEST(TrainSampler, a_step_counts_the_targets_that_are_not_ignored_over_all_ranks) {
  const test::TempFolder folder;
  auto memory = Memory::create();
  std::vector<std::filesystem::path> files;
  for (const char* text : {"ab", "cde", "f", "ghij", "klm"}) files.push_back(folder.write(text, text));
  const DataSource source{files, 0};
  const TokenDataset data = TokenDataset::from_sources(std::span(&source, 1), *make_tokenizer("bytes"),
                                                       {.seq_length = 2, .separate_documents = true});
  for (int64_t step = 0; step < 5; ++step) {
    int64_t counted = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const TrainSampler sampler(data, {.micro_batch = 2, .world_size = 2, .rank = rank}, 3);
      EXPECT_EQ(sampler.targets_per_step(), 8);
      const Batch batch = sampler.batch(step, 0, *memory);
      for (const int32_t target : batch.targets.to_vector<int32_t>()) counted += target != kIgnoredTarget;
      EXPECT_EQ(batch.document_starts.size(), 2u);
      EXPECT_EQ(batch.document_starts[0][0], 0);
      if (rank == 1) {
        EXPECT_EQ(sampler.targets_in_step(step), counted);
      }
    }
  }
}

TEST(EvaluationSampler, ranks_share_every_sample_once_in_equally_many_batches) {
  auto memory = Memory::create();
  const TokenDataset data = samples(7);
  std::multiset<int32_t> targets;
  for (int rank = 0; rank < 2; ++rank) {
    const EvaluationSampler sampler(data, {.micro_batch = 2, .world_size = 2, .rank = rank});
    ASSERT_EQ(sampler.num_batches(), 2);
    EXPECT_EQ(sampler.num_targets(), 21);
    for (int64_t i = 0; i < 2; ++i) {
      for (int32_t target : sampler.batch(i, *memory).targets.to_vector<int32_t>()) targets.insert(target);
    }
  }
  EXPECT_EQ(targets.count(-100), 3u);
  for (int32_t token = 1; token <= 21; ++token) EXPECT_EQ(targets.count(token), 1u);
  EXPECT_EQ(EvaluationSampler(samples(0), {}).num_batches(), 0);
}

}  // namespace
}  // namespace nought::sampler_test
