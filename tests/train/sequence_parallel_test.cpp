// Ranks that have slices of the tokens between products compute, to the bit, what ranks that have all tokens do.
#include <algorithm>
#include <map>

#include "support/sharing.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/engine.h"

namespace nought::sequence_parallel_test {
namespace {

using namespace test;

struct BatchGradients {
  double loss = 0;
  std::map<std::string, std::vector<float>> of;
  std::vector<std::string> added;  // parameters of whose gradients each rank forms a part
};

/// Those of a row of so many tokens.
BatchGradients batch_gradients(const std::string& family, int tensor, int64_t tokens, bool slices) {
  BatchGradients all;
  run_ranks(tensor, [&](Communicator& world) {
    Sharing rank(world, {.tensor = tensor}, small_model(family), {}, {}, slices);
    rank.model.load(InitialState(3));
    const Batch row = rows_of(*rank.context.memory, 0, 0, 0, kRows);
    const auto last = [&](const Tensor& values) {
      return values.flat(kSharingLength - tokens, kSharingLength).reshape({1, tokens});
    };
    const Batch batch{last(row.input_ids), last(row.targets)};
    const double loss = Engine(rank.model).accumulate(std::span(&batch, 1), 5).loss;
    for (size_t unit = 0; unit < rank.decoder.units().size(); ++unit) {
      const std::vector<Tensor> gradients = rank.model.gather_gradients(unit);
      if (world.rank() != tensor - 1) continue;
      const std::vector<Parameter>& parameters = rank.decoder.units()[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (!gradients[i]) continue;  // of what is not trained
        all.of[parameters[i].name] = gradients[i].to_vector<float>();
        if (parameters[i].partial_along.has(Axis::tensor)) all.added.push_back(parameters[i].name);
      }
    }
    rank.model.discard_gradients();
    if (world.rank() == tensor - 1) all.loss = loss;
  });
  return all;
}

class SequenceParallel : public ::testing::TestWithParam<const char*> {};

/// The gradients of what sees slices alone, such as norms, are added in another order.
TEST_P(SequenceParallel, any_number_of_tokens_gives_the_loss_and_the_gradients_of_ranks_that_have_all) {
  for (const int tensor : {2, 4})
    for (const int64_t tokens : {1, 3, 7, 12}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} tokens", tensor, tokens));
      const BatchGradients whole = batch_gradients(GetParam(), tensor, tokens, false),
                           sliced = batch_gradients(GetParam(), tensor, tokens, true);
      EXPECT_EQ(sliced.loss, whole.loss);
      EXPECT_GT(whole.loss, 0);
      ASSERT_EQ(sliced.of.size(), whole.of.size());
      EXPECT_GT(sliced.added.size(), whole.added.size());
      for (const auto& [name, got] : sliced.of) {
        const std::vector<float>& want = whole.of.at(name);
        if (std::ranges::count(sliced.added, name) == 0) {
          EXPECT_EQ(got, want) << name;
        } else {
          for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << name << "[" << i << "]";
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, SequenceParallel,
                         ::testing::Values("qwen3", "gpt2", "deepseek_v3", "gpt_oss", "olmo2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace nought::sequence_parallel_test
