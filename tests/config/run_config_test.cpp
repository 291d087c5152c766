#include "nought/config/run_config.h"

#include <filesystem>
#include <fstream>

#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::run_config_test {
namespace {

using test::kExampleRun;
using testing::HasSubstr;
using testing::StartsWith;

class RunConfigFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("nought_run_config_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }

  std::filesystem::path folder_;
};

std::string error_of(const char* text, const std::vector<std::string>& overrides = {}) {
  return test::message_of<Error>([&] { make_run_config(parse_json(text, "RUN.json"), "RUN.json", overrides); });
}

TEST_F(RunConfigFiles, a_run_file_is_read_and_writes_back_what_it_holds) {
  const RunConfig config = load_run_config(write("RUN.json", kExampleRun), {});
  EXPECT_EQ(config.training.max_steps.value, 30);
  EXPECT_EQ(config.training.lr_scheduler_type.value, ScheduleType::cosine);
  EXPECT_FALSE(config.training.weight_decay.given);
  EXPECT_EQ(config.model["hidden_size"], 256);
  EXPECT_EQ(to_json(config), parse_json(kExampleRun, "RUN.json"));
}

TEST(RunConfig, a_byte_0_which_would_end_a_path_is_refused_by_its_place) {
  EXPECT_THAT(error_of(R"({"training": {"output_dir": "out\u0000put"}})"),
              HasSubstr("RUN.json: training.output_dir: \"out put\" holds a byte 0"));
  EXPECT_THAT(error_of(R"({"data": {"files": ["a.txt", "b\u0000"]}})"), HasSubstr("data.files[1]: \"b \" holds"));
  EXPECT_THAT(error_of(R"({"deepspeed": "ds\u0000.json"})"), HasSubstr("deepspeed: \"ds .json\" holds"));
  EXPECT_THAT(error_of("{}", {R"(training.output_dir="a\u0000")"}), HasSubstr("holds a byte 0"));
  EXPECT_THAT(error_of(R"({"a\u0000": 1})"), HasSubstr("holds a byte 0"));
}

TEST(RunConfig, nesting_has_a_limit) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(error_of(("{\"model\": " + deep + "}").c_str()), HasSubstr("nests deeper than 64 levels"));
}

TEST_F(RunConfigFiles, deepspeed_may_be_a_path_whose_name_stands_in_messages) {
  const std::string ds = write("ds.json", R"({"zero_optimization": {"stage": 1}, /* hjson */ })");
  const RunConfig config = load_run_config(write("RUN.json", R"({"deepspeed": ")" + ds + R"("})"), {});
  EXPECT_EQ(config.deepspeed["zero_optimization"]["stage"], 1);
  EXPECT_EQ(config.origins.place("deepspeed.zero_optimization.stage"), ds + ": zero_optimization.stage");
}

TEST_F(RunConfigFiles, overrides_reach_into_a_deepspeed_file_and_may_replace_it) {
  const std::string ds = write("ds.json", R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}})");
  const std::string other = write("other.json", R"({"gradient_clipping": 2})");
  const std::string run = write("RUN.json", R"({"deepspeed": ")" + ds + R"("})");

  const std::vector<std::string> inside{"deepspeed.zero_optimization.stage=3", "deepspeed.fp16.enabled=false"};
  const RunConfig changed = load_run_config(run, inside);
  EXPECT_EQ(changed.deepspeed["zero_optimization"]["stage"], 3);
  EXPECT_EQ(changed.deepspeed["bf16"]["enabled"], "auto");
  EXPECT_EQ(changed.deepspeed["fp16"]["enabled"], false);
  EXPECT_TRUE(changed.origins.is_override("deepspeed.zero_optimization.stage"));

  const std::vector<std::string> replaced{"deepspeed=" + other, "deepspeed.seed=3"};
  const RunConfig second = load_run_config(run, replaced);
  EXPECT_EQ(second.deepspeed, (Json{{"gradient_clipping", 2}, {"seed", 3}}));
  EXPECT_EQ(second.origins.place("deepspeed.gradient_clipping"), other + ": gradient_clipping");
}

TEST_F(RunConfigFiles, a_missing_or_malformed_file_is_named_with_its_position) {
  EXPECT_THAT(test::message_of<Error>([&] { load_run_config("/nowhere/RUN.json", {}); }),
              StartsWith("/nowhere/RUN.json: "));
  const std::string run = write("RUN.json", "{\n \"training\": {\"seed\" 1}\n}");
  EXPECT_THAT(test::message_of<Error>([&] { load_run_config(run, {}); }), StartsWith(run + ":2:22: syntax error"));
  const std::string ds = write("ds.json", "{\"seed\": 1, \"seed\": 2}");
  const std::string outer = write("OUTER.json", R"({"deepspeed": ")" + ds + R"("})");
  EXPECT_EQ(test::message_of<Error>([&] { load_run_config(outer, {}); }), ds + ": seed: the key is given twice");
}

TEST(RunConfig, values_can_be_overridden_without_any_file) {
  const std::vector<std::string> overrides{"training.max_steps=5", "training.output_dir=there",
                                           "data.files=[\"a\", \"b\"]", "training.max_steps=6"};
  const RunConfig config = load_run_config("", overrides);
  EXPECT_EQ(config.training.max_steps.value, 6);
  EXPECT_EQ(config.training.output_dir.value, "there");
  EXPECT_EQ(config.data.files.size(), 2u);
}

TEST(RunConfig, unknown_keys_are_errors_with_the_nearest_name_at_every_level) {
  EXPECT_EQ(error_of(R"({"trainig": {}})"), "RUN.json: trainig: unknown key (did you mean \"training\"?)");
  EXPECT_EQ(error_of(R"({"training": {"learnig_rate": 1}})"),
            "RUN.json: training.learnig_rate: unknown key (did you mean \"learning_rate\"?)");
  EXPECT_EQ(error_of(R"({"data": {"file": []}})"), "RUN.json: data.file: unknown key (did you mean \"files\"?)");
}

TEST(RunConfig, what_is_missing_is_named_as_such) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"({"training": {"load_in_4bit": true}})",
       "RUN.json: training.load_in_4bit: a quantized base (QLoRA) is a section of the file"},
      {R"({"peft": {"r": 8}})", "RUN.json: peft: an adapter is a section of the file"},
      {R"({"data": {"packing": true}})", "RUN.json: data.packing: samples that keep whole documents together"},
      {R"({"training": {"dpo_beta": 0.1}})",
       "RUN.json: training.dpo_beta: training by preference is a section of the file"},
      {R"({"training": {"reward_model": "r"}})", "RUN.json: training.reward_model: training by reward is a section"},
      {R"({"alignment": {"method": "ppo", "ptx_coef": 27.8}})",
       "RUN.json: alignment.ptx_coef: a mix of pretraining text"},
      {R"({"alignment": {"method": "ppo", "total_episodes": 8}})",
       "alignment.total_episodes: episodes are answers here"}};
  for (const auto& [run, words] : cases) EXPECT_THAT(error_of(run), HasSubstr(words));
  EXPECT_THAT(test::message_of<IoError>([] { load_run_config("/usr", {}); }),
              HasSubstr("/usr: is a folder; expected a RUN.json, a file that says model, data and training"));
}

TEST(RunConfig, keys_of_adapters_in_other_places_are_told_where_they_belong) {
  EXPECT_THAT(error_of(R"({"training": {"lora_alpha": 16}})"),
              HasSubstr("RUN.json: training.lora_alpha: an adapter is a section of the file, with peft's keys"));
}

TEST(RunConfig, an_override_of_a_key_that_holds_text_is_text_whatever_it_looks_like) {
  const std::vector<std::string> overrides{"training.output_dir=123",
                                           "training.device_memory=1e9",
                                           "data.tokenizer=true",
                                           "training.optim_args=0x1",
                                           "model=007",
                                           "deepspeed.tensorboard.job_name=1.50",
                                           "training.max_steps=5",
                                           "deepspeed.flops_profiler.output_file=-4"};
  const RunConfig config = load_run_config("", overrides);
  EXPECT_EQ(config.training.output_dir.value, "123");
  EXPECT_EQ(config.training.device_memory.value, "1e9") << "as it was written";
  EXPECT_EQ(config.data.tokenizer.value, "true");
  EXPECT_EQ(config.model, "007");
  EXPECT_EQ(config.deepspeed.at("tensorboard").at("job_name"), "1.50");
  EXPECT_EQ(config.deepspeed.at("flops_profiler").at("output_file"), "-4");
  EXPECT_EQ(config.training.max_steps.value, 5);
  EXPECT_EQ(load_run_config("", std::vector<std::string>{"model=12"}).model, "12");
  EXPECT_EQ(load_run_config("", std::vector<std::string>{"training.output_dir=\"a b\""}).training.output_dir.value,
            "a b");
  EXPECT_FALSE(load_run_config("", std::vector<std::string>{"training.output_dir=null"}).training.output_dir.given);
  EXPECT_EQ(load_run_config("", std::vector<std::string>{"model={\"hidden_size\": 8}"}).model.at("hidden_size"), 8);
  EXPECT_EQ(load_run_config("", std::vector<std::string>{"model.hidden_size=8"}).model.at("hidden_size"), 8);
  EXPECT_EQ(error_of("{}", {"training.output_dir=[1]"}),
            "--set training.output_dir: expected a string, found the list [1]");
}

TEST(RunConfig, an_unknown_or_mistyped_override_is_named_as_such) {
  EXPECT_EQ(error_of("{}", {"training.max_step=5"}),
            "--set training.max_step: unknown key (did you mean \"max_steps\"?)");
  EXPECT_EQ(error_of("{}", {"trainin.max_steps=5"}), "--set trainin: unknown key (did you mean \"training\"?)");
  EXPECT_EQ(error_of("{}", {"training.max_steps=soon"}),
            "--set training.max_steps: expected an integer, found the string \"soon\"");
  EXPECT_THAT(error_of(R"({"model": "folder"})", {"model.hidden_size=8"}), StartsWith("--set model.hidden_size: "));
}

TEST(RunConfig, wrong_types_and_choices_are_errors_that_say_what_is_expected) {
  EXPECT_EQ(error_of(R"({"training": {"bf16": "yes"}})"),
            "RUN.json: training.bf16: expected true or false or \"auto\", found the string \"yes\"");
  EXPECT_EQ(error_of(R"({"training": {"lr_scheduler_type": "cosin"}})"),
            "RUN.json: training.lr_scheduler_type: expected one of linear, cosine, cosine_with_restarts, polynomial, "
            "inverse_sqrt, constant, constant_with_warmup, cosine_with_min_lr, cosine_warmup_with_min_lr, "
            "warmup_stable_decay, found the string \"cosin\" (did you mean \"cosine\"?)");
  EXPECT_THAT(error_of(R"({"training": {"optim": "adafactor"}})"), HasSubstr("expected one of adamw_torch"));
  EXPECT_EQ(error_of(R"({"model": 3})"), "RUN.json: model: expected a folder's path or an object, found the number 3");
  EXPECT_EQ(error_of("3"), "RUN.json: expected an object, found the number 3");
}

}  // namespace
}  // namespace nought::run_config_test
