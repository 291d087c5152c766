#include "nought/config/run_paths.h"

#include <filesystem>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/run_config.h"

namespace nought::run_paths_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using testing::ElementsAre;
using testing::IsEmpty;

/// The paths of a run after anchor_paths(), and its warnings.
struct Anchored {
  Json run;
  std::vector<std::string> warnings;
};

Anchored anchored(Json run, const fs::path& file) {
  Anchored result{std::move(run), {}};
  anchor_paths(result.run, file.string(), result.warnings);
  return result;
}

TEST(RunPaths, model_data_and_deepspeed_are_relative_to_the_file) {
  const TempFolder folder;
  for (const char* name :
       {"model/config.json", "words/tokenizer.json", "text/a.txt", "more.jsonl", "held.txt", "ds.json"})
    folder.write(name, "{}");
  const auto at = [&](const char* name) { return (folder / name).string(); };
  const Anchored result = anchored({{"model", "model"},
                                    {"data",
                                     {{"files", {"text/**/*.txt", "*.jsonl"}},
                                      {"sources", {{{"files", {"more.jsonl"}}, {"weight", 1}}}},
                                      {"validation_files", {"held.txt"}},
                                      {"tokenizer", "words"}}},
                                    {"alignment", {{"ref_model", "model"}, {"reward_funcs", {{{"path", "model"}}}}}},
                                    {"training", {{"output_dir", "out"}}},
                                    {"deepspeed", "./ds.json"}},
                                   folder / "run.json");
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_EQ(result.run, (Json{{"model", at("model")},
                              {"data",
                               {{"files", {at("text/**/*.txt"), at("*.jsonl")}},
                                {"sources", {{{"files", {at("more.jsonl")}}, {"weight", 1}}}},
                                {"validation_files", {at("held.txt")}},
                                {"tokenizer", at("words")}}},
                              {"alignment", {{"ref_model", at("model")}, {"reward_funcs", {{{"path", at("model")}}}}}},
                              {"training", {{"output_dir", "out"}}},
                              {"deepspeed", at("ds.json")}}));
}

TEST(RunPaths, what_is_no_relative_path_stays) {
  const TempFolder folder;
  const Json run{{"model", {{"model_type", "llama"}}},
                 {"data", {{"files", {"/usr/include/c++/**"}}, {"tokenizer", "bytes"}}},
                 {"deepspeed", {{"seed", 1}}}};
  EXPECT_EQ(anchored(run, folder / "run.json").run, run);
  const Json names{{"model", "Org/Name"}, {"data", {{"tokenizer", "Org/Name"}}}};
  EXPECT_EQ(anchored(names, folder / "run.json").run, names) << "a model of a hub, perhaps";
  EXPECT_EQ(anchored({{"deepspeed", "ds.json"}}, folder / "run.json").run["deepspeed"], (folder / "ds.json").string())
      << "the message names where it was expected";
}

TEST(RunPaths, what_is_only_below_the_current_directory_is_taken_from_there_and_said) {
  const TempFolder folder;
  const fs::path before = fs::current_path();
  folder.write("here/ds.json", "{}");
  folder.write("runs/run.json", "{}");
  fs::current_path(folder.path());
  const Anchored result = anchored({{"deepspeed", "here/ds.json"}}, "runs/run.json");
  const Anchored beside = anchored({{"deepspeed", "here/ds.json"}}, "run.json");
  fs::current_path(before);
  EXPECT_EQ(result.run["deepspeed"], "here/ds.json");
  EXPECT_THAT(result.warnings, ElementsAre("runs/run.json: here/ds.json is taken from the current directory; write it "
                                           "relative to the file"));
  EXPECT_THAT(beside.warnings, IsEmpty());
}

TEST(RunPaths, an_override_is_relative_to_the_current_directory) {
  const TempFolder folder;
  folder.write("model/config.json", "{}");
  const std::string run = folder.write("run.json", R"({"model": "model"})").string();
  EXPECT_EQ(load_run_config(run, {}).model, (folder / "model").string());
  const std::vector<std::string> overrides{"model=model", "data.files=[\"a.txt\"]"};
  const RunConfig config = load_run_config(run, overrides);
  EXPECT_EQ(config.model, "model");
  EXPECT_THAT(config.data.files, ElementsAre("a.txt"));
}

}  // namespace
}  // namespace nought::run_paths_test
