#include "nought/models/weight_files.h"

#include "support/golden_root.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/safetensors_writer.h"

namespace nought::weight_files_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

std::filesystem::path golden(std::string_view name) { return std::filesystem::path(test::golden_root()) / name; }

TEST(WeightFiles, shards_and_their_index_read_as_one_model) {
  auto memory = Memory::create();
  const WeightFiles files(golden("loader/llama_gqa_bf16_sharded"));
  const WeightFiles whole(golden("open/llama_gqa"));
  ASSERT_EQ(files.entries().size(), whole.entries().size());
  for (const TensorEntry& entry : whole.entries()) {
    EXPECT_EQ(files.at(entry.name).shape, entry.shape) << entry.name;
    EXPECT_EQ(files.load(entry.name, *memory).dtype(), DType::bf16);
  }
  EXPECT_EQ(files.bytes_read(), 2 * 74048);
  EXPECT_FALSE(files.contains("lm_head.weight"));
  EXPECT_THAT(message_of<IoError>([&] { files.at("model.layers.0.mlp.up.weight"); }), HasSubstr("did you mean"));
}

TEST(WeightFiles, a_folder_without_all_its_weights_says_what_is_missing) {
  TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { WeightFiles{folder / "none"}; }), HasSubstr("no such model folder"));
  EXPECT_THAT(message_of<IoError>([&] { WeightFiles{folder.path()}; }), HasSubstr("holds neither"));
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(message_of<IoError>([&] { WeightFiles{folder.path()}; }), HasSubstr("pytorch_model.bin: 1 bytes"));
  folder.write("pytorch_model.bin", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.");
  EXPECT_THAT(message_of<IoError>([&] { WeightFiles{folder.path()}; }), HasSubstr("as torch wrote them before 1.6"));
  std::filesystem::copy_file(golden("torch/state.bin"), folder / "pytorch_model.bin",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(WeightFiles(folder.path()).at("whole").shape, (Shape{3, 4}));
  std::filesystem::rename(folder / "pytorch_model.bin", folder / "pytorch_model-00001-of-00001.bin");
  folder.write("pytorch_model.bin.index.json", R"({"weight_map": {"whole": "pytorch_model-00001-of-00001.bin"}})");
  EXPECT_TRUE(WeightFiles(folder.path()).contains("whole"));
  std::filesystem::remove(folder / "pytorch_model.bin.index.json");

  const auto with_index = [&](const std::string& text) {
    folder.write("model.safetensors.index.json", text);
    return message_of<IoError>([&] { WeightFiles{folder.path()}; });
  };
  const auto memory = Memory::create();
  save_safetensors(folder / "s.safetensors", {{"a", Tensor::zeros(*memory, {2, 2}, DType::f32, Category::workspace)}});
  EXPECT_THAT(with_index("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(with_index("[]"), HasSubstr("no \"weight_map\""));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":1}})"), HasSubstr("expected a file name"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"../s.safetensors"}})"), HasSubstr("in the same folder"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"s.safetensors\u0000"}})"), HasSubstr("in the same folder"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"t.safetensors"}})"), HasSubstr("t.safetensors: the shard is missing"));
  EXPECT_THAT(with_index(R"({"weight_map":{"b":"s.safetensors"}})"), HasSubstr("\"b\" is not in it"));
  EXPECT_THAT(with_index(R"({"weight_map":{"a":"s.safetensors","a":"t.safetensors"}})"), HasSubstr("\"a\" twice"));
  EXPECT_EQ(with_index(R"({"weight_map":{"a":"s.safetensors"}})"), "");
}

}  // namespace
}  // namespace nought::weight_files_test
