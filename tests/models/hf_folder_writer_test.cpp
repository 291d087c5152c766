#include "nought/models/hf_folder_writer.h"

#include "support/counting.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/weight_files.h"

namespace nought::hf_folder_writer_test {
namespace {

using test::counting;
using test::names_in;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

TEST(HfFolderWriter, a_folder_is_sharded_by_size_and_replaces_an_earlier_save) {
  TempFolder folder;
  auto memory = Memory::create();
  const std::vector<TensorSpec> specs{
      {"a", DType::f32, {10}}, {"b", DType::f32, {10}}, {"c", DType::f32, {100}}, {"d", DType::f32, {1}}};
  const auto save = [&](int64_t limit) {
    HfFolderWriter writer(folder / "model", specs, limit);
    int64_t first = 0;
    for (const TensorSpec& spec : specs) {
      writer.write(spec.name, counting(*memory, first, first + spec.shape.numel()));
      first += spec.shape.numel();
    }
    writer.finish();
    return writer.num_shards();
  };
  const auto check = [&] {
    const WeightFiles files(folder / "model");
    EXPECT_EQ(files.entries().size(), 4u);
    EXPECT_EQ(files.load("a", *memory).to_vector<float>()[9], 9);
    EXPECT_EQ(files.load("c", *memory).to_vector<float>()[0], 20);
    EXPECT_EQ(files.load("d", *memory).item(), 120);
  };
  EXPECT_EQ(save(1 << 20), 1);
  EXPECT_EQ(names_in(folder / "model"), std::vector<std::string>{"model.safetensors"});
  check();
  EXPECT_EQ(save(80), 3);  // a and b; c, larger than the limit; d
  EXPECT_EQ(names_in(folder / "model"),
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  EXPECT_THAT(read_bytes(folder / "model/model.safetensors.index.json"), HasSubstr("\"total_size\": 484"));
  check();
  EXPECT_EQ(save(1 << 20), 1);
  EXPECT_EQ(names_in(folder / "model"), std::vector<std::string>{"model.safetensors"});
  check();
}

}  // namespace
}  // namespace nought::hf_folder_writer_test
