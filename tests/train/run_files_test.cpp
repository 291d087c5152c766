#include "nought/checkpoint/run_files.h"

#include "support/in_folder.h"
#include "support/size.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::run_files_test {
namespace {

NOUGHT_FILE_SIZE(small);

using test::TempFolder;

RunPlan plan_in(const TempFolder& folder) {
  RunPlan plan;
  plan.data.sources = {{{(folder / "*.txt").string()}}};
  plan.config_files = {folder.write("run.json", "{}").string(), "the command line"};
  folder.write("a.txt", "some text"), folder.write("b.txt", "more text");
  return plan;
}

class RunFiles : public test::InFolder {};

TEST_F(RunFiles, are_those_of_the_data_and_of_the_configuration) {
  const Json files = hash_run_files(plan_in(folder));
  EXPECT_EQ(files.size(), 3u) << files;
  for (const char* name : {"a.txt", "b.txt", "run.json"}) EXPECT_TRUE(files.contains((folder / name).string())) << name;
  EXPECT_EQ(describe_changed_files(files, hash_run_files(plan_in(folder))), "");
}

TEST_F(RunFiles, what_changed_came_and_went_is_named) {
  const RunPlan plan = plan_in(folder);
  const Json then = hash_run_files(plan);
  folder.write("run.json", "{ }"), folder.write("c.txt", "new"), std::filesystem::remove(folder / "a.txt");
  const auto at = [&](const char* name) { return (folder / name).string(); };
  EXPECT_EQ(describe_changed_files(then, hash_run_files(plan)), "changed since the checkpoint: " + at("run.json") +
                                                                    "; not read before the checkpoint: " + at("c.txt") +
                                                                    "; not read any more: " + at("a.txt"));
  EXPECT_EQ(describe_changed_files(Json(), hash_run_files(plan)), "") << "an older checkpoint does not tell";
}

TEST_F(RunFiles, of_many_data_files_the_folder_is_named) {
  for (int i = 0; i < 250; ++i) folder.write("many/" + std::to_string(i) + ".txt", "text");
  RunPlan plan;
  plan.data.sources = {{{(folder / "many/*.txt").string()}}};
  const Json then = hash_run_files(plan);
  EXPECT_EQ(then.size(), 1u) << then;
  folder.write("many/77.txt", "other");
  EXPECT_EQ(describe_changed_files(then, hash_run_files(plan)),
            "changed since the checkpoint: " + (folder / "many/").string());
}

TEST_F(RunFiles, a_message_names_three) {
  Json then = Json::object(), now = Json::object();
  for (const char* name : {"a", "b", "c", "d", "e"}) then[name] = "0", now[name] = "1";
  EXPECT_EQ(describe_changed_files(then, now), "changed since the checkpoint: a, b, c and 2 more");
}

}  // namespace
}  // namespace nought::run_files_test
