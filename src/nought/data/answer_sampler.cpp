#include "nought/data/answer_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr int64_t kRound = 64;  // rows have a multiple of so many tokens

std::vector<SourceShare> shares_of(const AnswerData& data, const AnswerSamplerOptions& options) {
  const int64_t batch = options.layout.train_batch();
  require<ConfigError>(!options.shuffle || data.num_pairs() >= batch,
                       "the data has {} pairs of answers, and one batch needs {}: add data, or lower the batch size",
                       data.num_pairs(), batch);
  return data.shares();
}

}  // namespace

AnswerSampler::AnswerSampler(std::shared_ptr<const AnswerData> data, const AnswerSamplerOptions& options)
    : data_(std::move(data)),
      options_(options),
      packing_(options.layout, options.whole_accumulation),
      order_(shares_of(*data_, options), options.seed, options.shuffle) {
  row_tokens_ = std::min(ceil_div(longest_row(), kRound) * kRound, std::max(options_.most_tokens, int64_t{1}));
}

/// The longest row of the steps of an epoch, as far as looking at them takes no time.
int64_t AnswerSampler::longest_row() const {
  constexpr int64_t kLook = 256;
  int64_t longest = 0;
  std::vector<AnswerSides> packed{data_->trained()};
  if (data_->has_labels()) packed.push_back({.first = false});
  for (int64_t pair = 0; pair < num_samples(); ++pair)
    for (const AnswerSides sides : packed) longest = std::max(longest, data_->tokens_of_pair(pair, sides));
  const int64_t steps = std::max<int64_t>(num_samples() / pairs_per_step(), 1);
  for (int64_t step = 0; step < std::min(steps, kLook); ++step) {
    for (const AnswerSides sides : packed) {
      int64_t most = 0;
      pack(pairs_of_step(step), sides, options_.most_tokens, most);
      longest = std::max(longest, most);
    }
  }
  return longest;
}

std::vector<int64_t> AnswerSampler::pairs_of_step(int64_t step) const { return order_.of_step(step, pairs_per_step()); }

AnswerPacking::Parts AnswerSampler::pack(std::span<const int64_t> pairs, AnswerSides sides, int64_t tokens,
                                         int64_t& most) const {
  std::vector<int64_t> lengths;
  for (const int64_t pair : pairs) lengths.push_back(data_->tokens_of_pair(pair, sides));
  return packing_.pack(lengths, tokens, most);
}

std::vector<Batch> AnswerSampler::batches(int64_t step, Memory& memory) const {
  return batches_of(pairs_of_step(step), data_->trained(), memory);
}

std::vector<Batch> AnswerSampler::batches_of(std::span<const int64_t> pairs, AnswerSides sides, Memory& memory) const {
  require(std::ssize(pairs) <= pairs_per_step(), "{} pairs in a step of {}", pairs.size(), pairs_per_step());
  int64_t most = 0;
  const AnswerPacking::Parts parts = pack(pairs, sides, row_tokens_, most);
  AnswerBatchOptions options = options_.batch;
  options.length = row_tokens_;
  if (options.likelihood != 0) {
    int64_t tokens = 0;
    for (const int64_t pair : pairs)
      tokens += likelihood_tokens(data_->answer(2 * pair), options.likelihood_of_prompts);
    options.likelihood *= static_cast<double>(pairs.size()) / static_cast<double>(std::max<int64_t>(tokens, 1));
  }
  const BatchLayout layout = packing_.layout_of(parts);
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < layout.accumulation; ++micro) {
    std::vector<JudgedAnswer> answers;
    for (const int64_t place : parts[static_cast<size_t>(layout.part(micro))])
      for (const int64_t side : {0, 1}) {
        if (!(side == 0 ? sides.first : sides.second)) continue;
        const int64_t index = 2 * pairs[static_cast<size_t>(place)] + side;
        JudgedAnswer answer = data_->answer(index);
        answer.number = 2 * place + side;
        if (!reference_.empty()) answer.reference = reference_[static_cast<size_t>(index)];
        answers.push_back(answer);
      }
    batches.push_back(batch_of_answers(memory, answers, options));
  }
  return batches;
}

double AnswerSampler::weight_of_step(int64_t /*step*/) const { return static_cast<double>(pairs_per_step()); }

double AnswerSampler::weight_of_step(int64_t step, int first, int ranks) const {
  int64_t most = 0;
  const AnswerPacking::Parts parts = pack(pairs_of_step(step), data_->trained(), row_tokens_, most);
  return static_cast<double>(std::max<size_t>(packing_.places_of(parts, first, ranks).size(), 1));
}

int64_t AnswerSampler::tokens_of_step(int64_t step) const {
  int64_t tokens = 0;
  for (const int64_t pair : pairs_of_step(step)) tokens += data_->tokens_of_pair(pair, data_->trained());
  return tokens;
}

int64_t AnswerSampler::steps_for(double epochs) const {
  return steps_for_epochs(epochs, num_samples(), pairs_per_step());
}

}  // namespace nought
