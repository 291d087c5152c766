// Every option of how tokens are drawn reaches the sampler, and no other one: each alone can make the draw certain.
#include "support/golden_root.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include <gtest/gtest.h>

namespace nought::sampling_options_test {
namespace {

using test::Ended;
using test::run_program;

/// The ids that follow, of a model whose tokens are bytes.
std::string generated(const std::string& options) {
  const Ended run = run_program(fmt::format("{} generate {}/open/llama --ids 5,9,200 --max-new-tokens 20 {}",
                                            test::known_path("nought"), test::golden_root(), options));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.out;
}

TEST(SamplingOptions, each_reaches_the_sampler) {
  const std::string greedy = generated("--temperature 0"), drawn = generated("--temperature 1.5 --seed 1");
  EXPECT_NE(drawn, greedy);
  EXPECT_NE(generated("--temperature 1.5 --seed 2"), drawn);
  EXPECT_EQ(generated("--temperature 1.5 --seed 1"), drawn);
  for (const char* certain : {"--temperature 1.5 --top-k 1", "--temperature 1.5 --top-p 1e-6",
                              "--temperature 1.5 --min-p 1", "--temperature 1e-6"})
    EXPECT_EQ(generated(std::string("--seed 1 ") + certain), greedy) << certain;
  EXPECT_NE(generated("--temperature 0 --repetition-penalty 100"), greedy);
}

}  // namespace
}  // namespace nought::sampling_options_test
