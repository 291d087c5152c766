// What the path of a model may be is the same for every command.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/metrics_lines.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::model_paths_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::golden_folder;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;

Ended run(const std::string& arguments) { return run_program(test::known_path("nought") + " " + arguments); }

std::string train(const TempFolder& folder, const std::string& model, const std::string& output) {
  const nlohmann::json run_file{{"model", model},
                                {"data",
                                 {{"files", {folder.write("text.txt", std::string(400, 'x')).string()}},
                                  {"tokenizer", "bytes"},
                                  {"seq_length", 16}}},
                                {"training",
                                 {{"max_steps", 1},
                                  {"per_device_train_batch_size", 2},
                                  {"learning_rate", 1e-3},
                                  {"output_dir", (folder / output).string()}}}};
  return "train " + folder.write("run.json", run_file.dump()).string();
}

double first_loss(const fs::path& output) {
  const auto steps = test::metrics_lines(output / "metrics.jsonl", "loss");
  return steps.empty() ? -1 : steps.front().at("loss").get<double>();
}

TEST(ModelPaths, weights_a_checkpoint_and_the_output_of_a_run_are_one_model_to_every_command) {
  TempFolder folder;
  const std::string golden = golden_folder("open/llama");
  ASSERT_EQ(run(train(folder, golden, "out")).exit_code, 0);
  fs::create_directory(folder / "bare");
  fs::copy(folder / "out/checkpoint-1", folder / "bare/checkpoint-1");  // a run that was killed before its end

  int runs = 0;
  const auto outputs = [&](const std::string& path) {
    const Ended generated = run("generate " + path + " --ids 1,2,3 --temperature 0 --max-new-tokens 8");
    EXPECT_EQ(generated.exit_code, 0) << generated.err;
    const Ended evaluated = run(fmt::format("eval {} --data {} --json", path, (folder / "text.txt").string()));
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
    const Ended probed = run(fmt::format("probe {} --input {}/golden.safetensors --output {}", path, golden,
                                         (folder / "probe.safetensors").string()));
    EXPECT_EQ(probed.exit_code, 0) << probed.err;
    const std::string next = fmt::format("next-{}", runs++);
    const Ended trained = run(train(folder, path, next));
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    const double loss = nlohmann::json::parse(evaluated.out).at("loss");
    return fmt::format("{} {} {} {}", generated.out, loss, probed.out, first_loss(folder / next));
  };
  const std::string expected = outputs((folder / "out").string());
  EXPECT_EQ(outputs((folder / "out/checkpoint-1").string()), expected);
  EXPECT_EQ(outputs((folder / "bare").string()), expected);
}

TEST(ModelPaths, every_command_refuses_what_is_no_model_in_the_same_words) {
  TempFolder folder;
  folder.write("empty/notes.txt", "x");
  const std::string golden = golden_folder("open/llama");
  for (const auto& [name, found] : {std::pair("none", "found nothing"), std::pair("empty/notes.txt", "found a file"),
                                    std::pair("empty", "found a folder without config.json and checkpoints")})
    for (const char* command : {"generate {0} --ids 1", "chat {0}", "eval {0} --data {1}/empty/notes.txt",
                                "probe {0} --input {2}/golden.safetensors --output {1}/probe.safetensors",
                                "convert {0} {1}/converted", "train {1}/run.json"}) {
      const std::string path = (folder / name).string();
      train(folder, path, "out");
      const Ended ended = run(fmt::format(fmt::runtime(command), path, folder.path().string(), golden));
      EXPECT_NE(ended.exit_code, 0) << command;
      EXPECT_EQ(ended.error_lines(), 1) << command << "\n" << ended.err;
      EXPECT_THAT(ended.err,
                  HasSubstr(fmt::format(
                      "{}: expected a Hugging Face folder, a GGUF file, a checkpoint or the output folder of a run, {}",
                      path, found)))
          << command;
    }
}

TEST(ModelPaths, a_run_does_not_remove_the_checkpoint_that_it_starts_from) {
  TempFolder folder;
  ASSERT_EQ(run(train(folder, golden_folder("open/llama"), "out")).exit_code, 0);
  const std::string checkpoint = (folder / "out/checkpoint-1").string();
  const Ended ended = run(train(folder, checkpoint, "out") + " --overwrite");
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_THAT(ended.err, HasSubstr("which --overwrite removes"));
  EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json"));
}

TEST(ModelPaths, a_folder_of_a_method_that_is_not_read_is_planned_with_notes_and_loading_it_is_refused_by_name) {
  TempFolder folder;
  nlohmann::json config =
      nlohmann::json::parse(test::read_bytes(fs::path(golden_folder("open/llama")) / "config.json"));
  config["quantization_config"] = {{"quant_method", "aqlm"}};
  config["architectures"] = {"LlamaForTokenClassification"};
  folder.write("model/config.json", config.dump());
  const std::string path = (folder / "model").string();
  const Ended planned = run("plan " + path);
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("note: quantization_config (\"aqlm\")"));
  EXPECT_THAT(planned.out, HasSubstr("note: LlamaForTokenClassification: its head for TokenClassification"));
  const Ended generated = run("generate " + path + " --ids 1");
  EXPECT_EQ(generated.exit_code, 1);
  EXPECT_THAT(generated.err, HasSubstr("quantization_config (\"aqlm\"): weights of this method are not read"));
}

}  // namespace
}  // namespace nought::model_paths_test
