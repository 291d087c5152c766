// Whatever a model is read from and written as, its weights are the same bytes under Hugging Face's names.
#include "nought/weights/convert.h"

#include <fstream>

#include "support/golden.h"
#include "support/saved_model.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/io/files.h"
#include "nought/models/names.h"
#include "nought/weights/four_bit_folder.h"

namespace nought::convert_test {
namespace {

namespace fs = std::filesystem;
using test::golden_folder;
using test::message_of;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string bytes_of(const WeightFiles& files, const std::string& name) {
  const auto raw = files.file_of(name).raw(files.at(name));
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

/// Every tensor of `before` that is no buffer is in `after`, in the same dtype, shape and bytes, and nothing else is.
void expect_same_tensors(const fs::path& before, const fs::path& after) {
  const WeightFiles source(before), target(after);
  size_t weights = 0;
  for (const TensorEntry& entry : source.entries()) {
    if (is_buffer_name(entry.name)) continue;
    ++weights;
    const std::string name = target.contains(entry.name) ? entry.name : "transformer." + entry.name;
    EXPECT_EQ(target.at(name).dtype, entry.dtype) << name;
    EXPECT_EQ(target.at(name).shape, entry.shape) << name;
    EXPECT_EQ(bytes_of(target, name), bytes_of(source, entry.name)) << name;
  }
  EXPECT_THAT(target.entries(), SizeIs(weights));
}

class Convert : public ::testing::TestWithParam<std::string> {};

TEST_P(Convert, a_folder_comes_out_byte_for_byte_and_loads_again) {
  TempFolder folder;
  const auto memory = Memory::create();
  const ModelSource source(golden_folder(GetParam()));
  convert_to_hf(source, folder / "whole", {}, *memory);
  expect_same_tensors(source.folder(), folder / "whole");
  const ConvertReport report =
      convert_to_hf(ModelSource(folder / "whole"), folder / "shards", {.max_shard_bytes = 20'000}, *memory);
  EXPECT_GT(report.files, 1);
  EXPECT_TRUE(fs::exists(folder / "shards/model.safetensors.index.json"));
  expect_same_tensors(source.folder(), folder / "shards");
  ModelConfig again = ModelSource(folder / "shards").config();
  again.notes = source.config().notes;
  EXPECT_EQ(again, source.config());
}

std::vector<std::string> all_folders() {
  std::vector<std::string> all(std::begin(test::kGoldenFamilies), std::end(test::kGoldenFamilies));
  all.insert(all.end(), std::begin(test::kGoldenOptions), std::end(test::kGoldenOptions));
  all.insert(all.end(), {"loader/llama_gqa_bf16_sharded", "loader/gpt2_hub_names"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Convert, ::testing::ValuesIn(all_folders()), test::name_of_folder<std::string>);

TEST(Convert, a_dtype_is_rounded_to_once_and_written_into_the_config) {
  TempFolder folder;
  const auto memory = Memory::create();
  const ModelSource source(golden_folder("open/llama_gqa"));
  convert_to_hf(source, folder / "x", {.dtype = DType::bf16}, *memory);
  const WeightFiles before(source.folder()), after(folder / "x");
  for (const TensorEntry& entry : before.entries()) {
    const Tensor exact = before.load(entry.name, *memory), rounded = after.load(entry.name, *memory);
    ASSERT_EQ(rounded.dtype(), DType::bf16);
    for (int64_t i = 0; i < exact.numel(); ++i)
      ASSERT_EQ(rounded.data<bf16_t>()[i].bits, bf16_t(exact.data<float>()[i]).bits) << entry.name;
  }
  std::ifstream config(folder / "x/config.json");
  EXPECT_EQ(nlohmann::json::parse(config).at("torch_dtype"), "bfloat16");
}

/// zero_to_fp32: the shards of any number of ranks, at any stage, are one model.
TEST(Convert, a_checkpoint_of_any_world_size_becomes_the_weights_that_it_was_saved_from) {
  const std::string golden = golden_folder("open/mixtral");
  for (const auto& [ranks, stage] : std::vector<std::pair<int, int>>{{1, 0}, {2, 1}, {3, 3}, {4, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
    TempFolder folder;
    test::SavedModel{.model = ModelConfig::from_folder(golden),
                     .ranks = ranks,
                     .settings = {.policy = Policy::stage(stage), .dtype = DType::bf16},
                     .info = {.step = 7},
                     .weights = golden,
                     .tokenizer = "bytes"}
        .save(folder.path());
    const auto memory = Memory::create();
    const ModelSource source(folder.path());  // a run's output folder: its last checkpoint
    EXPECT_TRUE(source.is_checkpoint());
    EXPECT_EQ(source.folder(), folder / "checkpoint-7");
    convert_to_hf(source, folder / "model", {.max_shard_bytes = 100'000}, *memory);
    expect_same_tensors(golden, folder / "model");
  }
}

TEST(Convert, memory_is_one_block_and_the_files_pages_are_handed_back) {
  TempFolder folder;
  const auto memory = Memory::create();
  nlohmann::json config{{"model_type", "llama"},       {"vocab_size", 60000},    {"hidden_size", 256},
                        {"intermediate_size", 512},    {"num_hidden_layers", 1}, {"num_attention_heads", 4},
                        {"tie_word_embeddings", false}};
  folder.write("in/config.json", config.dump());
  test::write_weights(folder / "in", ModelConfig::from_folder(folder / "in"));
  const ConvertReport report = convert_to_hf(ModelSource(folder / "in"), folder / "out", {}, *memory);
  EXPECT_GT(report.bytes, 120'000'000);
  EXPECT_LE(memory->ledger().peak_total(), int64_t{16} << 20);
}

TEST(Convert, says_what_it_cannot_read_and_never_writes_over_its_source) {
  TempFolder folder;
  const auto memory = Memory::create();
  const ModelSource source(golden_folder("open/gpt2"));
  EXPECT_THAT(message_of<ConfigError>([&] { convert_to_hf(source, source.folder() / ".", {}, *memory); }),
              HasSubstr("the folder that is read"));
  folder.write("empty/config.json", "{}");
  EXPECT_THAT(message_of<ConfigError>([&] { ModelSource{folder / "empty"}; }), HasSubstr("model_type"));
}

TEST(Convert, four_bits_are_the_folder_of_bitsandbytes_and_come_back_as_the_same_bytes) {
  TempFolder folder;
  const auto memory = Memory::create();
  const std::string original = golden_folder("lora/nf4/original"), base = golden_folder("lora/nf4/base");
  convert_to_four_bits(ModelSource(original), folder / "nf4", CodeKind::nf4, {}, *memory);
  expect_same_tensors(base, folder / "nf4");
  const auto config_of = [](const fs::path& of) { return nlohmann::json::parse(read_bytes(of / "config.json")); };
  EXPECT_EQ(config_of(folder / "nf4").at("quantization_config"), config_of(base).at("quantization_config"));
  convert_to_four_bits(ModelSource(base), folder / "again", CodeKind::nf4, {}, *memory);
  expect_same_tensors(base, folder / "again");
  convert_to_four_bits(ModelSource(original), folder / "fp4", CodeKind::fp4, {}, *memory);
  convert_to_four_bits(ModelSource(folder / "fp4"), folder / "fp4_again", CodeKind::fp4, {}, *memory);
  expect_same_tensors(folder / "fp4", folder / "fp4_again");
  EXPECT_THAT(message_of<ConfigError>([&] {
                convert_to_four_bits(ModelSource(golden_folder("open/gpt2")), folder / "gpt2", CodeKind::nf4, {},
                                     *memory);
              }),
              HasSubstr("gpt2 models are not written in 4 bits"));
}

/// In one line with its name.
TEST(Convert, codes_of_4_bits_whose_state_is_damaged_are_refused) {
  TempFolder folder;
  for (const std::string state : {"", "{}", "{\"blocksize\": 64", R"({"blocksize": 64, "shape": [1, 2]})"}) {
    const SafetensorsFile file(golden_folder("lora/nf4/base") + "/model.safetensors");
    const auto memory = Memory::create();
    std::vector<TensorSpec> specs;
    const std::string damaged = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4";
    for (const TensorEntry& entry : file.entries())
      specs.push_back({entry.name, entry.dtype, entry.name == damaged ? Shape{std::ssize(state)} : entry.shape});
    folder.write("in/config.json", read_bytes(golden_folder("lora/nf4/base") + "/config.json"));
    SafetensorsWriter writer(folder / "in/model.safetensors", specs);
    for (const TensorEntry& entry : file.entries()) {
      Tensor values = file.load(entry.name, *memory);
      if (entry.name == damaged) {
        values = Tensor::empty(*memory, {std::ssize(state)}, DType::u8, Category::workspace);
        std::copy(state.begin(), state.end(), values.data<uint8_t>());
      }
      writer.write(entry.name, values);
    }
    writer.finish();
    EXPECT_THAT(message_of<IoError>([&] { ModelSource{folder / "in"}.weights(); }), HasSubstr("up_proj.weight"))
        << state;
  }
}

}  // namespace
}  // namespace nought::convert_test
