
#include "support/environment.h"
#include "support/golden.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/export_record.h"
#include "nought/train/model_source.h"

namespace nought::model_source_paths_test {
namespace {

namespace fs = std::filesystem;
using test::golden_folder;
using test::message_of;
using test::TempFolder;
using ::testing::HasSubstr;

/// Saves the weights of a golden model as FOLDER/checkpoint-STEP.
fs::path save(const fs::path& folder, int64_t step) {
  const std::string golden = golden_folder("open/llama");
  const auto self = make_self_communicator();
  Decoder decoder(ModelConfig::from_folder(golden));
  ShardedModel model(Context::cpu(), *self, decoder, {});
  model.load(HfWeights(golden, decoder));
  return save_checkpoint(model, {.step = step}, folder, [&](const fs::path& path) {
    export_beside_weights(decoder.config(), DType::f32, {"bytes"}, path);
  });
}

TEST(ModelSource, a_folder_of_weights_a_checkpoint_and_the_output_of_a_run_are_models) {
  TempFolder folder;
  const fs::path golden = golden_folder("open/llama");
  EXPECT_EQ(ModelSource(golden).folder(), golden);
  EXPECT_FALSE(ModelSource(golden).is_checkpoint());

  const fs::path checkpoint = save(folder / "out", 9);
  const fs::path last = save(folder / "out", 10);
  EXPECT_EQ(ModelSource(checkpoint).folder(), checkpoint);
  EXPECT_TRUE(ModelSource(checkpoint).is_checkpoint());
  EXPECT_EQ(ModelSource(checkpoint).dtype(), DType::f32);
  EXPECT_EQ(ModelSource(folder / "out").folder(), last) << "the last checkpoint of a run that exported nothing";

  fs::copy(golden, folder / "out");
  EXPECT_EQ(ModelSource(folder / "out").folder(), folder / "out") << "exported weights come before checkpoints";
}

TEST(ModelSource, ranks_take_the_folder_that_the_first_one_finds) {
  const TempFolder folder;
  const fs::path last = save(folder / "out", 9);
  run_ranks(3, [&](Communicator& ranks, const Context& context) {
    // As if the run had removed this checkpoint, or saved another, before the other ranks looked.
    const fs::path seen = ranks.rank() == 0 ? folder / "out" : folder / "nothing";
    EXPECT_EQ(find_model(seen, ranks, context).folder, last);
    RunPlan plan;
    plan.model_dir = plan.data.tokenizer = seen.string();
    const RunPlan same = with_model_folder(plan, ranks, context);
    EXPECT_EQ(same.model_dir, last.string());
    EXPECT_EQ(same.data.tokenizer, last.string());
  });
}

TEST(ModelSource, anything_else_is_refused_with_what_was_expected) {
  TempFolder folder;
  folder.write("file", "x");
  fs::create_directory(folder / "empty");
  for (const auto& [name, found] : {std::pair("none", "found nothing"), std::pair("file", "found a file"),
                                    std::pair("empty", "found a folder without config.json and checkpoints")}) {
    const std::string message = message_of<IoError>([&, path = folder / name] { ModelSource{path}; });
    EXPECT_THAT(message, HasSubstr("expected a Hugging Face folder, a checkpoint or the output folder of a run"));
    EXPECT_THAT(message, HasSubstr(found));
  }
}

TEST(ModelSource, a_name_is_found_in_the_hubs_cache_or_one_line_says_how_to_get_it) {
  const TempFolder folder;
  const test::Environment cache{{"HF_HUB_CACHE", folder.path().string()}};
  const std::string message = message_of<IoError>([] { find_model("Org/Tiny"); });
  EXPECT_THAT(message, HasSubstr("found nothing; the hub's cache " + folder.path().string()));
  EXPECT_THAT(message, HasSubstr("\"hf download Org/Tiny\" gets it"));
  folder.write("models--Org--Tiny/refs/main", "abc");
  fs::create_directory(folder / "models--Org--Tiny/snapshots");
  fs::copy(golden_folder("open/llama"), folder / "models--Org--Tiny/snapshots/abc");
  EXPECT_EQ(find_model("Org/Tiny").folder, folder / "models--Org--Tiny/snapshots/abc");
  RunPlan plan;
  plan.model_dir = plan.data.tokenizer = "Org/Tiny";
  EXPECT_EQ(with_model_folder(plan).data.tokenizer, (folder / "models--Org--Tiny/snapshots/abc").string());
}

TEST(ModelSource, an_adapter_is_refused_with_the_way_to_a_model) {
  const TempFolder folder;
  folder.write("adapter_config.json", "{}");
  folder.write("adapter_model.safetensors", "x");
  EXPECT_THAT(message_of<ConfigError>([&] { find_model(folder.path()); }),
              HasSubstr("holds a LoRA adapter (adapter_config.json), which is not applied: merge it"));
}

TEST(ModelSource, a_checkpoint_gives_its_weights_and_nothing_of_its_optimizer) {
  TempFolder folder;
  const ModelSource golden(golden_folder("open/llama")), source(save(folder / "out", 1));
  const auto memory = Memory::create();
  const Parameter& parameter = source.model().units().front()->parameters().front();
  const Interval all{0, parameter.shape.numel()};
  const auto values = [&](const ModelSource& from, StateKind kind) {
    const Tensor tensor = Tensor::empty(*memory, {all.size()}, DType::f32, Category::workspace);
    from.weights().fill(kind, parameter, all, tensor);
    return tensor.to_vector<float>();
  };
  EXPECT_EQ(values(source, StateKind::master), values(golden, StateKind::master));
  EXPECT_THAT(values(source, StateKind::exp_avg_sq), ::testing::Each(0.0f));
}

TEST(ModelSource, a_plan_takes_the_tokenizer_from_where_its_model_is) {
  TempFolder folder;
  const std::string last = save(folder / "out", 3).string(), out = (folder / "out").string();
  RunPlan plan;
  plan.model_dir = plan.data.tokenizer = out;
  EXPECT_EQ(with_model_folder(plan).model_dir, last);
  EXPECT_EQ(with_model_folder(plan).data.tokenizer, last);
  plan.data.tokenizer = "bytes";
  EXPECT_EQ(with_model_folder(plan).data.tokenizer, "bytes");
  EXPECT_EQ(with_model_folder(RunPlan{}).model_dir, "") << "a model that is written inline has no folder";
}

}  // namespace
}  // namespace nought::model_source_paths_test
