// nought quantize as a user runs it.
#include <filesystem>
#include <fstream>

#include "support/golden_root.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::quantize_command_test {
namespace {

using namespace ::testing;
using test::Ended;

class Quantize : public Test {
 protected:
  Ended run(const std::string& arguments) const {
    return test::run_program(fmt::format("{} {}", test::known_path("nought"), arguments));
  }
  Ended quantize(const std::string& options, const std::string& out = "out") const {
    return run(fmt::format("quantize {}/open/llama {} {}", test::golden_root(), at(out), options));
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void write_text() const {
    std::string text;
    for (int i = 0; i < 80; ++i) text += fmt::format("for (int i = {}; i < {}; ++i) sum += table[i];\n", i % 7, i);
    folder_.write("text.txt", text);
  }

  test::TempFolder folder_;
};

TEST_F(Quantize, what_is_written_costs_what_is_said_and_generates) {
  write_text();
  const Ended ended =
      quantize(fmt::format("--group-size 16 --calibration {0} --samples 8 --seq-length 32 --eval {0}", at("text.txt")));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("calibration: 8 samples of 32 tokens"), HasSubstr("block 2 of 2")));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("mlp.down_proj"), HasSubstr("bits per weight in codes"),
                               HasSubstr("KL divergence"), HasSubstr("out: gptq, ")));
  EXPECT_THAT(run("info " + at("out")).out, HasSubstr("gptq, 4 bits"));
  EXPECT_EQ(run(fmt::format("generate {} --ids 5,9 --max-new-tokens 4", at("out"))).exit_code, 0);
  const Ended again = quantize("--group-size 16");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force writes over it"));
}

TEST_F(Quantize, files_of_types_are_measured_as_well) {
  write_text();
  const Ended ended =
      quantize(fmt::format("--format gguf --type q8_0 --eval {} --seq-length 32", at("text.txt")), "out.gguf");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("KL divergence"), HasSubstr("out.gguf: gguf, ")));
}

TEST_F(Quantize, bad_options_are_one_line_and_nothing_is_written) {
  write_text();
  const std::pair<std::string, std::string> all[] = {
      {"--format exl2",
       "--format must be one of gptq, awq, compressed-tensors, int8, fp8, mxfp4, bitsandbytes, gguf; got exl2"},
      {"--bits 5", "--format gptq has 2, 3, 4 or 8 bits, got 5"},
      {"--bits 9", "--bits is 9, expected 2 to 8"},
      {"--format gguf", "--type \"\" is none of llama.cpp's"},
      {"--format gguf --type q4_k_m --bits 3", "--format gguf has --type in place of --bits"},
      {"--format bitsandbytes --type q4_0", "--type must be nf4 or fp4, got \"q4_0\""},
      {"--type nf4", "--type nf4 is for --format gguf or bitsandbytes"},
      {"--sym --asym", "--sym and --asym: give one of them"},
      {"--method magnitude", "--method must be gptq, awq, smoothquant or rtn, got magnitude"},
      {"--method awq", "--method awq goes by the inputs of a calibration text: --calibration FILE"},
      {"--method smoothquant", "--method smoothquant goes by the inputs"},
      {"--method smoothquant --smoothing-strength 2", "--smoothing-strength is 2, expected a number from 0 to 1"},
      {"--smoothing-strength 0.5", "--method rtn has no --smoothing-strength"},
      {"--format fp8 --bits 4", "--format fp8 has 8 bits, got 4"},
      {"--format fp8 --asym", "--format fp8 has no zero points"},
      {"--format fp8 --group-size -1", "expected its side"},
      {"--format mxfp4 --group-size 16", "--format mxfp4 has groups of 32, got --group-size 16"},
      {"--format int8 --group-size 64", "--format int8 has a scale for each row"},
      {"--method awq --damping 0.1", "--method awq has no --damping"},
      {"--method gptq", "--calibration FILE"},
      {"--method rtn --desc-act", "leave out --desc-act"},
      {"--damping 0.1", "leave out --damping"},
      {"--format gguf --type q8_0 --group-size 64", "has --type in place of --bits, --group-size"},
      {"--format gguf --type q8_0 --max-shard-size 1GB", "--max-shard-size is for folders"},
      {"--format awq --desc-act --calibration " + at("text.txt") + " --seq-length 8", "--desc-act"},
      {"--calibration " + at("none.txt"), "none.txt: no such file"},
      {"--calibration " + at("text.txt") + " --seq-length 100000", "100000"},
      {"--skip nothing_like_it", "--skip nothing_like_it: no matrix"},
      {"--group-size 0", "--group-size is 0"},
      {"--damping 2", "--damping is 2"}};
  for (const auto& [options, said] : all) {
    const Ended ended = quantize(options);
    EXPECT_EQ(ended.exit_code, 1) << options;
    EXPECT_THAT(ended.err, HasSubstr(said)) << options;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / "config.json")) << options;
  }
}

}  // namespace
}  // namespace nought::quantize_command_test
