// What would stop a run is found before it starts.
#include "nought/train/validate_run.h"

#include "support/in_folder.h"
#include "support/size.h"
#include "support/tiny_llama.h"
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/weights/model_source.h"

namespace nought::validate_run_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

RunPlan plan_in(const TempFolder& folder) {
  RunPlan plan;
  plan.model_config = test::tiny_llama_json();
  plan.data.sources = {{{folder.write("text.txt", std::string(500, 'x')).string()}}};
  plan.layout.seq_length = 16;
  plan.output_dir = (folder / "out").string();
  return plan;
}

std::string refusal(const RunPlan& plan, StartMode mode = StartMode::fresh) {
  return message_of<Error>([&] { validate_run(plan, mode); });
}

class ValidateRun : public test::InFolder {
 protected:
  RunPlan plan = plan_in(folder);
};

TEST_F(ValidateRun, makes_the_output_folder_and_leaves_nothing_else_behind) {
  EXPECT_EQ(refusal(plan_in(folder)), "");
  EXPECT_TRUE(fs::is_directory(folder / "out"));
  EXPECT_TRUE(fs::is_empty(folder / "out"));
}

TEST_F(ValidateRun, a_folder_for_files_of_states_or_parameters_is_made_where_its_parent_is_there) {
  plan.layout.sharding.offload_optimizer = {.tier = {Pool::file, folder.path().string()}};
  EXPECT_EQ(refusal(plan), "");
  plan.layout.sharding.offload_param = {.tier = {Pool::file, (folder / "nowhere/swap").string()}};
  EXPECT_EQ(refusal(plan), fmt::format("zero_optimization.offload_param.nvme_path {} is no folder: create it, or name "
                                       "another",
                                       (folder / "nowhere/swap").string()));
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  for (const char* made : {"swap", "out/offload"}) {
    plan.layout.sharding.offload_param.tier.folder = (folder / made).string();
    EXPECT_EQ(message_of<Error>([&] { validate_run(plan, StartMode::fresh, kDryRun); }), "");
    EXPECT_FALSE(fs::exists(folder / made));
    EXPECT_EQ(refusal(plan), "");
    EXPECT_TRUE(fs::is_directory(folder / made));
  }
  plan.layout.sharding.offload_optimizer.tier.folder = folder.write("file", "").string();
  EXPECT_THAT(refusal(plan), HasSubstr("zero_optimization.offload_optimizer.nvme_path"));
}

TEST_F(ValidateRun, what_the_plan_lacks_is_named) {
  plan.model_config = nullptr;
  EXPECT_THAT(refusal(plan), HasSubstr("model is missing"));
  plan = plan_in(folder);
  plan.data.sources.clear();
  EXPECT_THAT(refusal(plan), HasSubstr("data.files is empty"));
}

TEST_F(ValidateRun, sequences_are_as_long_as_the_model_unless_the_run_says_otherwise) {
  plan.layout.seq_length = 0;
  EXPECT_EQ(with_model_folder(plan).layout.seq_length, 32) << "of an inline model";
  folder.write("model/config.json", plan.model_config.dump());
  plan.model_config = nullptr, plan.model_dir = (folder / "model").string();
  const RunPlan of_folder = with_model_folder(plan);
  EXPECT_EQ(of_folder.layout.seq_length, 32);
  ASSERT_EQ(of_folder.resolved.size(), 1u);
  EXPECT_EQ(of_folder.resolved[0].reason, "the model's number of positions");
  plan.layout.seq_length = 16;
  EXPECT_EQ(with_model_folder(plan).layout.seq_length, 16);
}

TEST_F(ValidateRun, learned_positions_are_not_exceeded_and_others_are_with_a_note) {
  plan.layout.micro_batch = 1, plan.max_steps = 1;
  plan.layout.seq_length = 33;
  EXPECT_THAT(validate_run(plan, StartMode::fresh).notes, ElementsAre(HasSubstr("beyond the 32 positions")));
  plan.model_config = {{"model_type", "gpt2"}, {"vocab_size", 256}, {"n_embd", 16},
                       {"n_layer", 1},         {"n_head", 2},       {"n_positions", 32}};
  EXPECT_THAT(refusal(plan), HasSubstr("33 tokens exceeds the 32 positions that the model has learned"));
}

TEST_F(ValidateRun, a_vocabulary_that_no_text_reaches_and_bytes_by_default_are_noted) {
  EXPECT_THAT(validate_run(plan, StartMode::fresh).notes, ElementsAre());
  plan.model_config["vocab_size"] = 300;
  plan.resolved.push_back({"data.tokenizer", "bytes", "default for an inline model"});
  EXPECT_THAT(
      validate_run(plan, StartMode::fresh).notes,
      ElementsAre(HasSubstr("every byte is a token"),
                  HasSubstr("the model has 300 tokens and the tokenizer \"bytes\" 256: no text gives the other 44")));
}

TEST_F(ValidateRun, long_sequences_that_nobody_asked_for_are_noted) {
  RunPlan plan;
  plan.layout.seq_length = 8192;
  ModelConfig config = test::tiny_llama();
  config.max_positions = 8192;
  const auto notes = [&] { return notes_on_inputs(plan, config, *make_tokenizer("bytes")); };
  EXPECT_THAT(notes(), ElementsAre());
  plan.resolved.push_back({"data.seq_length", "8192", kModelLength});
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("as long as the model can, 8192 tokens")));
  plan.layout.seq_length = config.max_positions = 2048;
  EXPECT_THAT(notes(), ElementsAre());
}

TEST_F(ValidateRun, a_dry_run_writes_nothing_and_refuses_the_same_folders) {
  validate_run(plan, StartMode::fresh, kDryRun);
  EXPECT_FALSE(fs::exists(folder / "out"));
  folder.write("file", "x");
  for (const char* name : {"file", "file/below", "file/far/below"}) {
    plan.output_dir = (folder / name).string();
    EXPECT_EQ(message_of<Error>([&] { validate_run(plan, StartMode::fresh, kDryRun); }), refusal(plan)) << name;
    EXPECT_THAT(refusal(plan), HasSubstr("training.output_dir")) << name;
  }
}

TEST_F(ValidateRun, the_model_must_have_every_id_of_the_tokenizer) {
  plan.model_config["vocab_size"] = 255;
  EXPECT_THAT(refusal(plan), HasSubstr("at least 256"));
}

TEST_F(ValidateRun, data_and_output_must_be_there) {
  plan.data.sources = {{{(folder / "none.txt").string()}}};
  EXPECT_THAT(refusal(plan), HasSubstr("none.txt"));
  plan = plan_in(folder);
  plan.output_dir = folder.write("file", "x").string();
  EXPECT_THAT(refusal(plan), HasSubstr("training.output_dir"));
  plan = plan_in(folder);
  EXPECT_THAT(refusal(plan, StartMode::resume), HasSubstr("nothing to resume"));
}

/// All tokens that ranks read at once count, wherever they are read (GoldenAuxiliary): what depends on the layout is
/// which samples are read at once.
TEST_F(ValidateRun, samples_without_targets_are_told_where_their_experts_would_not_be_balanced) {
  const auto talk = [](const std::string& question) {
    return Json{{"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", "y"}}}}}
               .dump() +
           "\n";
  };
  std::string talks = talk(std::string(200, 'x'));
  for (int i = 0; i < 60; ++i) talks += talk("x");
  plan.data.sources = {{{folder.write("chat.jsonl", talks).string()}}};
  plan.layout.seq_length = 64;
  plan.data.chat_template = "zephyr";
  const auto said = [&](bool balances, int64_t at_once, int64_t accumulation) {
    plan.layout.micro_batch = at_once, plan.layout.accumulation = accumulation;
    plan.model_config.update({{"model_type", "mixtral"},
                              {"num_local_experts", 2},
                              {"num_key_value_heads", 2},
                              {"output_router_logits", balances}});
    return fmt::format("{}", fmt::join(validate_run(plan, StartMode::fresh).notes, "; "));
  };
  EXPECT_THAT(said(true, 1, 2), HasSubstr("samples have no target: where that is so of all 1 that ranks read at once"));
  EXPECT_THAT(said(true, 8, 2), testing::Not(HasSubstr("no target"))) << "others are read beside them";
  EXPECT_THAT(said(true, 1, 1), testing::Not(HasSubstr("no target"))) << "a step has targets";
  EXPECT_THAT(said(false, 1, 2), testing::Not(HasSubstr("no target")));
}

TEST_F(ValidateRun, a_capacity_is_for_models_with_experts) {
  plan.moe_capacity_factor = 1.5;
  EXPECT_THAT(refusal(plan), HasSubstr("a llama model has no experts"));
}

TEST_F(ValidateRun, a_profile_goes_to_a_file_that_can_be_written) {
  plan.profile = ProfileOptions{};
  plan.profile->output_file = folder.path().string();
  EXPECT_THAT(refusal(plan), HasSubstr("is a folder: name a file in it"));
  plan.profile->output_file = (folder / "more/profile.txt").string();
  EXPECT_EQ(refusal(plan), "");
  EXPECT_TRUE(fs::is_directory(folder / "more"));
}

TEST_F(ValidateRun, monitors_write_to_folders_that_can_be_made) {
  folder.write("file", "x");
  for (std::string RunPlan::*monitor : {&RunPlan::tensorboard_dir, &RunPlan::csv_dir}) {
    RunPlan plan = plan_in(folder);
    plan.*monitor = (folder / "file/monitor").string();
    EXPECT_THAT(refusal(plan), HasSubstr("file/monitor: Not a directory"));
    EXPECT_EQ(message_of<Error>([&] { validate_run(plan, StartMode::fresh, kDryRun); }), refusal(plan));
  }
}

}  // namespace
}  // namespace nought::validate_run_test
