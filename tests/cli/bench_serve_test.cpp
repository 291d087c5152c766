// nought bench serve as a user runs it, against its own engine.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/json.h"

namespace nought::bench_serve_test {
namespace {

using test::Ended;
using ::testing::HasSubstr;

Ended bench_serve(const std::string& options) {
  return test::run_program(fmt::format("{} bench serve {}", test::known_path("nought"), options));
}

TEST(BenchServe, a_model_is_served_and_loaded_in_one_process) {
  const Ended ended = bench_serve(test::golden_root() +
                                  "/open/llama --clients 1,3 --requests 6 --prompt-tokens 48 --answer-tokens 8 "
                                  "--shared-prefix 24 --goodput ttft:60000 --json");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json report = Json::parse(ended.out);
  EXPECT_EQ(report["format"], "nought-bench-serve-1");
  ASSERT_EQ(report["loads"].size(), 2u);
  for (const Json& load : report["loads"]) {
    EXPECT_EQ(load["completed"], 6);
    EXPECT_EQ(load["good"], 6);
    EXPECT_EQ(load["answer_tokens"], 8);
    EXPECT_NEAR(load["prompt_tokens"].get<double>(), 48, 6);  // whole words of bytes
    EXPECT_GT(load["itl_seconds"]["p99"].get<double>(), 0);
  }
}

TEST(BenchServe, what_does_not_fit_is_said_in_a_line) {
  for (const auto& [options, line] : std::vector<std::pair<std::string, std::string>>{
           {"http://127.0.0.1:1", "nought: error: http://127.0.0.1:1/v1/models: connecting: "},
           {"http://127.0.0.1:1 --parallel 3", "--parallel is for a MODEL_DIR"},
           {"nowhere --model x", "--model is for a server at a URL"},
           {"nowhere --shared-prefix 600", "--shared-prefix 600: prompts have from 512 tokens on"},
           {"nowhere --clients 0", "--clients must be 1 to 4096, got 0"},
           {"nowhere --rate 0", "--rate must be above 0"}}) {
    const Ended ended = bench_serve(options);
    EXPECT_EQ(ended.exit_code, 1) << options;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(line));
  }
}

}  // namespace
}  // namespace nought::bench_serve_test
