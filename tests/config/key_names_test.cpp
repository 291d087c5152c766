#include "nought/config/key_names.h"

#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/config_reference.h"

namespace nought {
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
  EXPECT_THAT(error_of(R"({"model_name_or_path": "x"})"), HasSubstr("did you mean \"model\"?"));
}

TEST(KeyNames, a_key_of_another_section_leads_there) {
  EXPECT_EQ(error_of("{}", 1, {"max_steps=5"}), "--set max_steps: unknown key (did you mean \"training.max_steps\"?)");
  EXPECT_EQ(error_of(R"({"learning_rate": 1, "seq_length": 8, "data": {"bf16": true}})"),
            "RUN.json: learning_rate: unknown key (did you mean \"training.learning_rate\"?); RUN.json: seq_length: "
            "unknown key (did you mean \"data.seq_length\"?); RUN.json: data.bf16: unknown key (did you mean "
            "\"training.bf16\"?)");
  EXPECT_EQ(meant_key("files"), "data.files");
  EXPECT_EQ(meant_key("photosynthesis"), "");
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
}  // namespace nought
