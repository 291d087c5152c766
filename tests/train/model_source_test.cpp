// What a path may be: a folder of weights, a checkpoint, or the output folder of a run with either.
#include "nought/weights/model_source.h"

#include <fstream>

#include "support/environment.h"
#include "support/golden.h"
#include "support/loaded_states.h"
#include "support/saved_model.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::model_source_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::golden_folder;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;
using testing::IsEmpty;

/// A checkpoint of tiny weights from this seed in folder/checkpoint-STEP.
void write_checkpoint(const fs::path& folder, int64_t step, uint64_t seed) {
  test::SavedModel{.settings = {.dtype = DType::bf16}, .info = {.step = step}, .seed = seed, .tokenizer = "bytes"}.save(
      folder);
}

test::WholeTensors weights_of(const ModelSource& source) { return test::values_of(source.weights(), source.model()); }

test::WholeTensors initial_weights(uint64_t seed) {
  return test::values_of(InitialState(seed), Decoder(test::tiny_llama()));
}

TEST(ModelSource, a_hugging_face_folder_has_its_config_and_weights_as_they_are_stored) {
  const std::string folder = golden_folder("loader/llama_gqa_bf16_sharded");
  const ModelSource source(folder);
  EXPECT_EQ(source.folder(), folder);
  EXPECT_FALSE(source.is_checkpoint());
  EXPECT_EQ(source.config(), ModelConfig::from_folder(folder));
  EXPECT_EQ(source.dtype_of(source.model().units()[1]->parameters()[0]), DType::bf16);
  EXPECT_THAT(source.unused(), IsEmpty());
  const auto memory = Memory::create();
  for (const auto& [name, values] : weights_of(source))
    EXPECT_EQ(values, WeightFiles(folder).load(name, *memory).to_vector<float>()) << name;
}

TEST(ModelSource, a_checkpoint_holds_masters_and_its_own_config) {
  const TempFolder folder;
  write_checkpoint(folder.path(), 3, 7);
  const ModelSource source(folder / "checkpoint-3");
  EXPECT_TRUE(source.is_checkpoint());
  EXPECT_EQ(source.config().hidden_size, 16);
  EXPECT_EQ(source.dtype_of(source.model().units()[0]->parameters()[0]), DType::f32);
  EXPECT_EQ(weights_of(source), initial_weights(7));
  for (const auto& [name, moments] : test::values_of(source.weights(), source.model(), StateKind::exp_avg_sq))
    EXPECT_THAT(moments, ::testing::Each(0.0f)) << name << ": nothing of the optimizer";
}

TEST(ModelSource, the_output_folder_of_a_run_is_its_last_whole_checkpoint_until_weights_are_exported) {
  const TempFolder folder;
  write_checkpoint(folder.path(), 2, 7);
  write_checkpoint(folder.path(), 10, 8);
  write_checkpoint(folder.path(), 11, 9);
  fs::remove(folder / "checkpoint-11/manifest.json");  // as if it had died there
  const ModelSource running(folder.path());
  EXPECT_EQ(running.folder(), folder / "checkpoint-10") << "by number, not by name";
  EXPECT_EQ(weights_of(running), initial_weights(8));
  {
    const auto self = make_self_communicator();
    const Context context = Context::cpu();
    Decoder decoder(test::tiny_llama());
    ShardedModel model(context, *self, decoder, {.training = false});
    model.load(InitialState(12));
    export_hf_folder(model, decoder.config(), {"bytes"}, folder.path(), 1 << 30);
  }
  const ModelSource ended(folder.path());
  EXPECT_EQ(ended.folder(), folder.path());
  EXPECT_FALSE(ended.is_checkpoint());
  EXPECT_EQ(weights_of(ended), initial_weights(12));
}

TEST(ModelSource, tensors_that_the_model_has_no_use_for_are_named) {
  const TempFolder folder;
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(golden_folder("open/llama")) / file, folder / file);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  config["num_hidden_layers"] = 1;
  folder.write("config.json", config.dump());
  for (const std::string& name : ModelSource(folder.path()).unused()) EXPECT_THAT(name, HasSubstr("layers."));
  EXPECT_FALSE(ModelSource(folder.path()).unused().empty());
}

TEST(ModelSource, any_other_path_is_refused_by_what_it_is) {
  const TempFolder folder;
  const auto refusal = [](const fs::path& path) { return message_of<Error>([&] { ModelSource{path}; }); };
  folder.write("file", "x");
  fs::create_directory(folder / "empty");
  for (const auto& [name, found] : {std::pair("none", "found nothing"), std::pair("file", "found a file"),
                                    std::pair("empty", "found a folder without config.json and checkpoints")})
    EXPECT_THAT(
        refusal(folder / name),
        testing::AllOf(
            HasSubstr("expected a Hugging Face folder, a GGUF file, a checkpoint or the output folder of a run"),
            HasSubstr(found)));
  folder.write("model/config.json", test::tiny_llama_json().dump());
  EXPECT_THAT(refusal(folder / "model"), HasSubstr("model.safetensors"));
}

/// Saves the weights of a golden model as FOLDER/checkpoint-STEP.
fs::path save(const fs::path& folder, int64_t step) {
  const std::string golden = golden_folder("open/llama");
  return test::SavedModel{
      .model = ModelConfig::from_folder(golden), .info = {.step = step}, .weights = golden, .tokenizer = "bytes"}
      .save(folder);
}

TEST(ModelSource, a_folder_that_has_models_in_it_names_one_of_them) {
  TempFolder folder;
  folder.write("out/a/notes.txt", "x");
  save(folder / "out/run", 1), save(folder / "out/run2", 1);
  EXPECT_THAT(message_of<Error>([&] { ModelSource{folder / "out"}; }),
              HasSubstr("without config.json and checkpoints (did you mean " + (folder / "out/run").string() + "?)"));
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

TEST(ModelSource, an_adapter_stands_for_the_model_that_it_was_trained_on) {
  const FoundModel found = find_model(golden_folder("lora/llama/adapter"));
  EXPECT_EQ(found.folder, golden_folder("lora/llama/base"));
  ASSERT_EQ(found.adapters.size(), 1u);
  EXPECT_EQ(found.adapters[0].folder, golden_folder("lora/llama/adapter"));
  const TempFolder folder;
  const auto message = [&](const char* config) {
    folder.write("adapter_config.json", config);
    return message_of<Error>([&] { find_model(folder.path()); });
  };
  EXPECT_THAT(message("{}"), HasSubstr("does not say what it was trained on"));
  EXPECT_THAT(message(R"({"base_model_name_or_path": "gone"})"), HasSubstr("was trained on gone, which is not there"));
  EXPECT_THAT(message(R"({"base_model_name_or_path": "."})"), HasSubstr("which holds an adapter, and no model"));
}

TEST(ModelSource, the_model_of_an_adapter_may_be_named) {
  const std::string adapter = golden_folder("lora/llama/adapter"), other = golden_folder("lora/embedding/base");
  const FoundModel found = find_model(adapter, other);
  EXPECT_EQ(found.folder, other);
  EXPECT_EQ(found.adapters.at(0).folder, adapter);
  EXPECT_THAT(message_of<ConfigError>([&] { find_model(other, adapter); }), HasSubstr("is a model itself"));
  EXPECT_THAT(message_of<ConfigError>([&] { find_model(adapter, adapter); }),
              HasSubstr("--base names " + adapter + ", which holds an adapter"));
}

TEST(ModelSource, an_adapter_goes_with_a_copy_of_its_model_and_with_no_other) {
  const TempFolder folder;
  const std::string adapter = golden_folder("lora/llama/adapter");
  fs::copy(golden_folder("lora/llama/base"), folder / "copy");
  EXPECT_NO_THROW(require_base(adapter, golden_folder("lora/llama/base")));
  EXPECT_NO_THROW(require_base(adapter, folder / "copy"));
  EXPECT_THAT(message_of<ConfigError>([&] { require_base(adapter, golden_folder("lora/embedding/base")); }),
              HasSubstr("are others: name that model; " + adapter + " --base"));
  std::fstream file(folder / "copy/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);  // the last value
  file.write("\0\0\0?", 4);
  file.close();
  EXPECT_THROW(require_base(adapter, folder / "copy"), ConfigError);
  folder.write("adapter_config.json", R"({"base_model_name_or_path": "gone"})");
  EXPECT_NO_THROW(require_base(folder.path(), folder / "copy")) << "what it was trained on is not here to be compared";
}

TEST(ModelSource, a_run_does_not_train_a_model_that_is_an_adapter) {
  RunPlan plan;
  plan.model_dir = golden_folder("lora/llama/adapter");
  EXPECT_THAT(message_of<ConfigError>([&] { with_model_folder(plan); }),
              HasSubstr("which holds an adapter: write its"));
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
}  // namespace nought::model_source_test
