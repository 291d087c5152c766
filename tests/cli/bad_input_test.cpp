// Bad input ends in one line that names the place.
#include <filesystem>
#include <fstream>

#include "support/golden.h"
#include "support/program_runs.h"
#include <gtest/gtest.h>

#include "nought/io/safetensors_writer.h"
#include "nought/kernels/kernels.h"

namespace nought::bad_input_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::kProgram;
using test::run_program;
using test::TempFolder;
using test::train_command;
using test::write_run;

/// The command fails with one line on stderr that contains every one of the words.
void expect_one_line(const std::string& command, const std::vector<std::string>& words) {
  const Ended run = run_program(command);
  EXPECT_NE(run.exit_code, 0) << command;
  EXPECT_NE(run.exit_code, 124) << command << " hangs";
  EXPECT_LT(run.exit_code, 128) << command << " dies of a signal";
  EXPECT_EQ(run.error_lines(), 1) << run.err;
  for (const std::string& word : words) EXPECT_NE(run.err.find(word), std::string::npos) << word << " in: " << run.err;
}

TEST(BadInput, ends_in_one_line_that_names_the_place) {
  TempFolder folder;
  write_run(folder);
  const auto expect_train = [&](const std::string& more, const std::vector<std::string>& words) {
    expect_one_line(train_command(folder, more), words);
  };
  expect_train("--ranks 0", {"--ranks", "0"});
  expect_train("--ranks 2 --set training.learnig_rate=1", {"learnig_rate", "learning_rate"});
  expect_train("--set deepspeed.zero_optimisation.stage=1", {"zero_optimisation", "zero_optimization"});
  expect_train("--ranks 2 --set deepspeed.train_batch_size=30", {"30", "train_micro_batch_size_per_gpu 2", "= 4"});
  expect_train("--set deepspeed.zero_optimization.stage=4", {"stage", "4"});
  expect_train("--set data.files=[\\\"/nowhere/**\\\"]", {"/nowhere/**"});
  expect_train("--set training.output_dir=/proc/nought", {"/proc/nought"});
  expect_train("--resume", {"resume"});
  expect_train("--set model.num_attention_heads=5", {"48", "5 heads"});
  expect_train("--ranks 2 --set model.vocab_size=100", {"vocab", "256"});
  expect_train("--set training.max_steps=none", {"max_steps"});
  folder.write("empty.txt", "");
  expect_train(fmt::format("--set data.files=[\\\"{}\\\"]", (folder / "empty.txt").string()), {"data"});
  expect_one_line(kProgram + " train /nowhere/run.json", {"/nowhere/run.json"});
  expect_one_line(fmt::format("{} eval {} /nowhere/chats.jsonl", kProgram, test::golden_folder("open/llama")),
                  {"/nowhere/chats.jsonl: no such file"});
  expect_one_line("env RANK=1 WORLD_SIZE=4 " + train_command(folder, ""), {"RANK=1", "WORLD_SIZE=4", "--ranks 4"});
}

TEST(BadInput, damaged_models_and_batches_end_in_one_line) {
  TempFolder folder;
  const std::string golden = test::golden_folder("open/llama");
  const auto probe = [&](const std::string& model, const std::string& input) {
    return fmt::format("{} probe {} --input {} --output {} --ranks 2", kProgram, model, input,
                       (folder / "out.safetensors").string());
  };
  const auto copy_model = [&](const std::string& name) {
    fs::create_directories(folder / name);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden + "/" + file, folder / name / file, fs::copy_options::overwrite_existing);
    return (folder / name).string();
  };
  const std::string input = golden + "/golden.safetensors";

  const std::string missing = copy_model("missing");
  fs::remove(missing + "/model.safetensors");
  expect_one_line(probe(missing, input), {"model.safetensors"});
  const std::string truncated = copy_model("truncated");
  fs::resize_file(truncated + "/model.safetensors", 5000);
  expect_one_line(probe(truncated, input), {"model.safetensors"});
  const std::string garbage = copy_model("garbage");
  std::ofstream(garbage + "/model.safetensors") << std::string(4096, 'x');
  expect_one_line(probe(garbage, input), {"model.safetensors"});
  const std::string shape = copy_model("shape");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(shape + "/config.json"));
  config["intermediate_size"] = 128;
  std::ofstream(shape + "/config.json") << config.dump();
  expect_one_line(probe(shape, input), {"gate_proj", "128"});

  const Context context = Context::reference();
  const std::vector<int64_t> ids{1, 2, 256, 3};
  save_safetensors(folder / "batch.safetensors", {{"input_ids", Tensor::of<int64_t>(*context.memory, {1, 4}, ids)}});
  expect_one_line(probe(golden, (folder / "batch.safetensors").string()), {"input_ids", "256"});
  expect_one_line(probe(golden, "/nowhere.safetensors"), {"/nowhere.safetensors"});
}

}  // namespace
}  // namespace nought::bad_input_test
