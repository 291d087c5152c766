#include "nought/config/key_names.h"

#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/config_reference.h"

namespace nought::key_names_test {
namespace {

using test::error_of;
using testing::HasSubstr;

TEST(KeyNames, a_name_of_another_program_leads_to_the_key) {
  EXPECT_EQ(error_of(R"({"training": {"lr": 1e-3}})"),
            "RUN.json: training.lr: unknown key (did you mean \"training.learning_rate\"?)");
  EXPECT_EQ(error_of(R"({"training": {"batch_size": 8}})"),
            "RUN.json: training.batch_size: unknown key (did you mean \"training.per_device_train_batch_size\"?)");
  EXPECT_EQ(error_of(R"({"training": {"max_seq_length": 8}})"),
            "RUN.json: training.max_seq_length: unknown key (did you mean \"data.seq_length\"?)");
  EXPECT_EQ(error_of(R"({"training": {"sequence_parallel_size": 2}})"),
            "RUN.json: training.sequence_parallel_size: unknown key (did you mean "
            "\"training.parallelism_config.sp_size\"?)");
  EXPECT_THAT(error_of(R"({"model_name_or_path": "x"})"), HasSubstr("did you mean \"model\"?"));
}

TEST(KeyNames, a_key_of_another_section_leads_there) {
  EXPECT_EQ(error_of("{}", 1, {"max_steps=5"}), "--set max_steps: unknown key (did you mean \"training.max_steps\"?)");
  EXPECT_EQ(error_of(R"({"learning_rate": 1, "seq_length": 8, "data": {"bf16": true}})"),
            "RUN.json: data.bf16: unknown key (did you mean \"training.bf16\"?); RUN.json: learning_rate: unknown key "
            "(did you mean \"training.learning_rate\"?); RUN.json: seq_length: unknown key (did you mean "
            "\"data.seq_length\"?)");
  EXPECT_EQ(meant_key("files"), "data.files");
  EXPECT_EQ(meant_key("photosynthesis"), "");
}

TEST(KeyNames, all_mistakes_of_a_file_are_told_at_once) {
  EXPECT_EQ(
      error_of(R"({
      "modle": 1,
      "data": {"sep_length": 8, "sources": [{"files": []}, {"flies": []}]},
      "training": {"learning_rat": 1, "photosynthesis": 2, "fsdp": "x", "lr_scheduler_kwargs": {"num_cycle": 1}},
      "deepspeed": {"zero_optimisation": {}, "train_batch_sise": 1}})"),
      "RUN.json: training.fsdp = \"x\" is not supported: write deepspeed.zero_optimization.stage: 3 is full_shard, "
      "2 is shard_grad_op; only null | \"\" | [] | false is accepted; "
      "RUN.json: data.sep_length: unknown key (did you mean \"seq_length\"?); "
      "RUN.json: data.sources[1].flies: unknown key (did you mean \"files\"?); "
      "RUN.json: modle: unknown key (did you mean \"model\"?); "
      "RUN.json: training.learning_rat: unknown key (did you mean \"learning_rate\"?); "
      "RUN.json: training.lr_scheduler_kwargs.num_cycle: unknown key (did you mean \"num_cycles\"?); "
      "RUN.json: training.photosynthesis: unknown key; "
      "RUN.json: deepspeed.train_batch_sise: unknown key (did you mean \"train_batch_size\"?); "
      "RUN.json: deepspeed.zero_optimisation: unknown key (did you mean \"zero_optimization\"?)");
}

TEST(KeyNames, every_name_leads_to_a_key_that_is_implemented) {
  std::vector<std::string> known;
  for (const ConfigEntry& entry : config_reference())
    if (entry.use == KeyUse::implemented) known.push_back(entry.path);
  for (const char* name :
       {"lr",         "batch_size", "epochs",    "steps",        "warmup",   "grad_accum",  "grad_clip",
        "scheduler",  "optimizer",  "precision", "max_length",   "dataset",  "text_column", "base_model",
        "zero_stage", "ds_config",  "out_dir",   "val_set_size", "template", "eps"})
    EXPECT_THAT(known, testing::Contains(meant_key(name))) << name;
}

TEST(KeyNames, notes_are_passed_over) {
  EXPECT_EQ(error_of(R"({"_comment": "x", "training": {"_why": 1, "notes": []}, "data": {"//": 0}})"), "(no error)");
  EXPECT_THAT(error_of(R"({"training": {"commment": 1}})"), HasSubstr("unknown key"));
}

}  // namespace
}  // namespace nought::key_names_test
