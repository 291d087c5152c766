// Adapters in the commands: read beside their model, described, merged, and refused in one line.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/kernels/kernels.h"

namespace nought::adapters_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::golden_folder;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Ended run(const std::string& arguments) { return test::run_program(test::known_path("nought") + " " + arguments); }

const std::string kFolder = golden_folder("lora/llama");
const std::string kBase = kFolder + "/base", kAdapter = kFolder + "/adapter";

/// The largest difference of the logits of the golden batch from those of peft.
double difference_of_logits(const TempFolder& folder, const std::string& arguments) {
  const std::string out = (folder / "out.safetensors").string();
  const Ended ended = run(fmt::format("probe {} --input {}/golden.safetensors --output {}", arguments, kFolder, out));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  if (ended.exit_code != 0) return INFINITY;
  const Context context = Context::reference();
  return test::difference(SafetensorsFile(out).load("logits", *context.memory),
                          SafetensorsFile(kFolder + "/golden.safetensors").load("logits", *context.memory))
      .max_abs;
}

TEST(Adapters, a_model_with_one_an_adapter_alone_and_a_merged_model_are_the_same) {
  const TempFolder folder;
  EXPECT_LE(difference_of_logits(folder, kBase + " --adapter " + kAdapter), 5e-5);
  EXPECT_LE(difference_of_logits(folder, fmt::format("{0} --adapter {1}=0.25 --adapter {1}=0.75", kBase, kAdapter)),
            1e-4);
  EXPECT_GT(difference_of_logits(folder, kBase + " --adapter " + kAdapter + "=0.5"), 1e-2);
  EXPECT_LE(difference_of_logits(folder, kAdapter + " --grads --ranks 2 --set deepspeed.zero_optimization.stage=3"),
            5e-5);
  const std::string merged = (folder / "merged").string();
  ASSERT_EQ(run("convert " + kAdapter + " " + merged + " --merge").exit_code, 0);
  EXPECT_LE(difference_of_logits(folder, merged), 1e-4);
}

/// What codes stand for is added to; they are not made again.
TEST(Adapters, merged_with_a_model_in_codes_they_are_a_dense_model) {
  const TempFolder folder;
  const std::string base = golden_folder("lora/nf4/base"), adapter = golden_folder("lora/nf4/adapter"),
                    merged = (folder / "merged").string(), file = (folder / "merged.gguf").string();
  const Ended ended = run("convert " + adapter + " " + merged + " --merge");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the merged weights are dense"));
  EXPECT_THAT(run("info " + merged).out, Not(HasSubstr("nf4")));
  const std::string out = (folder / "out.safetensors").string();
  ASSERT_EQ(
      run(fmt::format("probe {} --input {}/golden.safetensors --output {}", merged, golden_folder("lora/nf4"), out))
          .exit_code,
      0);
  const Context context = Context::reference();
  EXPECT_LE(test::difference(
                SafetensorsFile(out).load("logits", *context.memory),
                SafetensorsFile(golden_folder("lora/nf4") + "/golden.safetensors").load("logits", *context.memory))
                .max_abs,
            1e-4);
  EXPECT_THAT(run("convert " + adapter + " " + merged + "2 --merge --outtype nf4").err,
              HasSubstr("codes round away most of what an adapter adds: write the merged model in 16 bits"));
  const Ended anew = run("convert " + adapter + " " + file + " --merge --outtype q8_0");
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("codes of q8_0 round away a part of what the adapter adds"));
}

TEST(Adapters, commands_that_generate_and_describe_take_them) {
  const Ended text = run("generate " + kAdapter + " --ids 1,2,3 --max-new-tokens 2");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(run("info " + kAdapter).out, AllOf(HasSubstr("adapter " + kAdapter), HasSubstr("of the model " + kFolder),
                                                 HasSubstr("down_proj x 2, rank 3, scale 2.66667")));
}

TEST(Adapters, what_is_wrong_is_one_line) {
  const auto error = [](const std::string& arguments) {
    const Ended ended = run(arguments);
    EXPECT_NE(ended.exit_code, 0) << arguments;
    return ended.err;
  };
  EXPECT_THAT(error("generate " + kBase + " --adapter /nowhere --ids 1"),
              HasSubstr("--adapter /nowhere: expected an adapter's folder, with adapter_config.json"));
  EXPECT_THAT(error("generate " + golden_folder("open/llama") + " --adapter " + kAdapter + " --ids 1"),
              HasSubstr("was trained on " + kBase));
  EXPECT_THAT(error("generate " + kAdapter + " --base " + golden_folder("open/llama") + " --ids 1"),
              HasSubstr("has shape"));
  EXPECT_THAT(error("info " + kBase + " --base " + kBase), HasSubstr("is a model itself"));
  EXPECT_THAT(error("convert " + kBase + " /tmp/never --merge"), HasSubstr("is no adapter, and --adapter names none"));
  EXPECT_THAT(error("convert " + golden_folder("lora/experts/adapter") + " /tmp/never.gguf"),
              HasSubstr("trains lm_head.weight as a whole: a GGUF adapter has products of low rank alone; --merge"));
}

}  // namespace
}  // namespace nought::adapters_test
