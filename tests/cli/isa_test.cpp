// Runs on mixed and on small CPUs, which a cap of instruction sets stands for.
#include "nought/kernels/isa.h"

#include <filesystem>

#include "support/known_paths.h"
#include "support/metrics_lines.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::isa_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run of four steps in `folder`, with training.bf16 = "auto".
std::string write_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of {}\n", i % 11, i % 37);
  folder.write("text.txt", text);
  const nlohmann::json run{
      {"model",
       {{"model_type", "llama"},
        {"vocab_size", 256},
        {"hidden_size", 32},
        {"intermediate_size", 64},
        {"num_hidden_layers", 1},
        {"num_attention_heads", 2},
        {"max_position_embeddings", 64}}},
      {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 32}}},
      {"training",
       {{"max_steps", 4},
        {"per_device_train_batch_size", 2},
        {"bf16", "auto"},
        {"logging_steps", 1},
        {"save_steps", 2},
        {"output_dir", (folder / "out").string()}}}};
  folder.write("run.json", run.dump());
  return (folder / "run.json").string();
}

std::string losses_of(const TempFolder& folder) {
  std::string losses;
  for (const nlohmann::json& line : test::metrics_lines(folder / "out/metrics.jsonl", "loss"))
    losses += line["loss"].dump() + " ";
  return losses;
}

const std::string kProgram = test::known_path("nought");
const bool kHasUnits = fastest_isa() >= Isa::avx512_bf16;

TEST(MixedCpus, ranks_use_what_all_have_and_say_so) {
  TempFolder folder;
  const std::string run = write_run(folder);
  const auto train = [&](const char* isa) {
    return fmt::format("-np 1 env NOUGHT_ISA={} {} train {} --overwrite", isa, kProgram, run);
  };
  const auto mpirun = [&](const std::string& ranks) {
    return run_program("mpirun --allow-run-as-root --oversubscribe --bind-to none " + ranks);
  };
  const Ended mixed = mpirun(train("amx") + " : " + train("avx2"));
  ASSERT_EQ(mixed.exit_code, 0) << mixed.err;
  const std::string losses = losses_of(folder);
  if (cpu_isa() > Isa::avx2) {
    EXPECT_THAT(mixed.out, HasSubstr("note: ranks differ in their instruction sets: rank 1 on "));
    EXPECT_THAT(mixed.out, HasSubstr("; all use avx2, so that replicas stay equal to the bit"));
  }
  EXPECT_THAT(mixed.out, HasSubstr("parameters in f32"));
  const Ended small = mpirun(train("avx2") + " : " + train("avx2"));
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.out, Not(HasSubstr("ranks differ")));
  EXPECT_EQ(losses_of(folder), losses);
}

TEST(AutomaticBf16, is_what_the_cpu_has_and_stays_what_the_checkpoint_is_in) {
  TempFolder folder;
  const std::string run = write_run(folder);
  const auto train = [&](const char* isa, const std::string& more) {
    return run_program(fmt::format("env NOUGHT_ISA={} {} train {} {}", isa, kProgram, run, more));
  };
  const std::string best = kHasUnits ? "bf16" : "f32";
  const Ended check = run_program(fmt::format("env NOUGHT_ISA=amx {} check {}", kProgram, run));
  EXPECT_THAT(check.out, ::testing::ContainsRegex("dtype +" + best + " +training.bf16: auto <- this CPU has "));
  ASSERT_EQ(train("amx", "--set training.max_steps=2").exit_code, 0);
  const Ended resumed = train("avx2", "--resume");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("parameters in " + best));
  EXPECT_THAT(resumed.out, Not(HasSubstr("not as if it had never stopped")));
  const Ended fresh = train("avx2", "--overwrite");
  EXPECT_THAT(fresh.out, HasSubstr("parameters in f32"));
  EXPECT_THAT(fresh.out, Not(HasSubstr("bf16 units")));
}

TEST(AutomaticBf16, an_explicit_wish_without_units_is_honoured_with_both_rates) {
  TempFolder folder;
  const std::string run = write_run(folder);
  const Ended ended = run_program(fmt::format(
      "env NOUGHT_ISA=avx2 {} train {} --set training.bf16=true --set training.max_steps=1", kProgram, run));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("parameters in bf16"));
  EXPECT_THAT(ended.out, ::testing::ContainsRegex("bf16 units.*: .* ran at .*FLOP/s in bf16 and .*FLOP/s in fp32"));
}

}  // namespace
}  // namespace nought::isa_test
