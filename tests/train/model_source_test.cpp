// What a path may be: a folder of weights, a checkpoint, or the output folder of a run with either.
#include "nought/train/model_source.h"

#include <fstream>

#include "support/golden.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
void write_checkpoint(const fs::path& folder, int64_t step, uint64_t seed, DType dtype = DType::bf16) {
  const auto self = make_self_communicator();
  const Context context = Context::cpu();
  Decoder decoder(test::tiny_llama());
  ShardedModel model(context, *self, decoder, {.dtype = dtype});
  model.load(InitialState(seed));
  save_checkpoint(model, {.step = step}, folder,
                  [&](const fs::path& path) { export_beside_weights(decoder.config(), dtype, {"bytes"}, path); });
}

std::vector<float> first_weights(const ModelSource& source) {
  const Context context = Context::reference();
  const Parameter& parameter = source.model().units()[0]->parameters()[0];
  const Tensor values = context.empty({8}, DType::f32);
  source.weights().fill(StateKind::master, parameter, {3, 11}, values);
  return values.to_vector<float>();
}

std::vector<float> initial_weights(uint64_t seed) {
  const Context context = Context::reference();
  const Decoder decoder(test::tiny_llama());
  const Tensor values = context.empty({8}, DType::f32);
  InitialState(seed).fill(StateKind::master, decoder.units()[0]->parameters()[0], {3, 11}, values);
  return values.to_vector<float>();
}

TEST(ModelSource, a_hugging_face_folder_has_its_config_and_weights_as_they_are_stored) {
  const std::string folder = golden_folder("loader/llama_gqa_bf16_sharded");
  const ModelSource source(folder);
  EXPECT_EQ(source.folder(), folder);
  EXPECT_FALSE(source.is_checkpoint());
  EXPECT_EQ(source.config(), ModelConfig::from_folder(folder));
  EXPECT_EQ(source.dtype_of(source.model().units()[1]->parameters()[0]), DType::bf16);
  EXPECT_THAT(source.unused(), IsEmpty());
  const Parameter& parameter = source.model().units()[1]->parameters()[1];
  const Context context = Context::reference();
  const Tensor values = context.empty({parameter.shape.numel()}, DType::f32);
  source.weights().fill(StateKind::master, parameter, {0, values.numel()}, values);
  EXPECT_EQ(values.to_vector<float>(), WeightFiles(folder).load(parameter.name, *context.memory).to_vector<float>());
}

TEST(ModelSource, a_checkpoint_holds_masters_and_its_own_config) {
  const TempFolder folder;
  write_checkpoint(folder.path(), 3, 7);
  const ModelSource source(folder / "checkpoint-3");
  EXPECT_TRUE(source.is_checkpoint());
  EXPECT_EQ(source.config().hidden_size, 16);
  EXPECT_EQ(source.dtype_of(source.model().units()[0]->parameters()[0]), DType::f32);
  EXPECT_EQ(first_weights(source), initial_weights(7));
}

TEST(ModelSource, the_output_folder_of_a_run_is_its_last_whole_checkpoint_until_weights_are_exported) {
  const TempFolder folder;
  write_checkpoint(folder.path(), 2, 7);
  write_checkpoint(folder.path(), 10, 8);
  write_checkpoint(folder.path(), 11, 9);
  fs::remove(folder / "checkpoint-11/manifest.json");  // as if it had died there
  const ModelSource running(folder.path());
  EXPECT_EQ(running.folder(), folder / "checkpoint-10") << "by number, not by name";
  EXPECT_EQ(first_weights(running), initial_weights(8));
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
  EXPECT_EQ(first_weights(ended), initial_weights(12));
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
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("found nothing"));
  EXPECT_THAT(refusal(folder.write("file", "x")), HasSubstr("found a file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("config.json"));
  folder.write("model/config.json", test::tiny_llama_json().dump());
  EXPECT_THAT(refusal(folder / "model"), HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace nought::model_source_test
