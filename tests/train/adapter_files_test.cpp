// Adapters on disk: scales, several at once, and what is wrong with a file.
#include "nought/weights/adapter_files.h"

#include <cmath>
#include <fstream>

#include "support/golden.h"
#include "support/loaded_states.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/safetensors_writer.h"
#include "nought/weights/merged_weights.h"
#include "nought/weights/model_source.h"

namespace nought::adapter_files_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::golden_folder;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

TEST(AdapterFiles, a_scale_stands_behind_the_folder) {
  EXPECT_EQ(parse_adapter_use("a/b").folder, "a/b");
  EXPECT_EQ(parse_adapter_use("a/b").scale, 1);
  EXPECT_EQ(parse_adapter_use("a=b=-0.5").folder, "a=b");
  EXPECT_EQ(parse_adapter_use("a=b=-0.5").scale, -0.5);
  EXPECT_EQ(parse_adapter_use("a=b").folder, "a=b") << "no number";
}

/// The weights of the golden llama with these uses of its adapter merged into them.
test::WholeTensors merged_with(const std::vector<double>& scales) {
  FoundModel found{golden_folder("lora/llama/base")};
  for (const double scale : scales) found.adapters.push_back({golden_folder("lora/llama/adapter"), scale});
  const ModelSource source(found, AdaptersAre::merged);
  return test::values_of(source.weights(), source.model());
}

TEST(AdapterFiles, several_adapters_add_up_by_their_scales) {
  const test::WholeTensors once = merged_with({1}), sum = merged_with({2, -1, 0.5, -0.5});
  ASSERT_EQ(once.size(), sum.size());
  for (const auto& [name, values] : once)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(sum.at(name)[i], values[i], 1e-5) << name;
  EXPECT_NE(once, merged_with({0.5}));
}

/// A copy of the golden adapter with other tensors.
class Damaged {
 public:
  Damaged() {
    fs::copy(golden_folder("lora/llama/adapter"), folder_ / "adapter");
    const SafetensorsFile file(fs::path(golden_folder("lora/llama/adapter")) / kAdapterWeightsFile);
    for (const TensorEntry& entry : file.entries()) tensors[entry.name] = file.load(entry.name, *memory);
  }
  std::string message() const {
    save_safetensors(folder_ / "adapter" / kAdapterWeightsFile, {tensors.begin(), tensors.end()});
    return message_of<IoError>([&] {
      ModelSource(FoundModel{golden_folder("lora/llama/base"), {}, {{folder_ / "adapter"}}});
    });
  }
  static constexpr const char* kName = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  std::shared_ptr<Memory> memory = Memory::create();
  std::map<std::string, Tensor> tensors;

 private:
  TempFolder folder_;
};

TEST(AdapterFiles, tensors_that_are_missing_too_many_of_another_shape_or_not_finite_are_named) {
  EXPECT_EQ(Damaged().message(), "");
  Damaged missing, unknown, shape, nan;
  missing.tensors.erase(Damaged::kName);
  EXPECT_THAT(missing.message(), HasSubstr(std::string("lacks ") + Damaged::kName));
  unknown.tensors["base_model.model.other.lora_A.weight"] = unknown.tensors[Damaged::kName];
  EXPECT_THAT(unknown.message(), HasSubstr("base_model.model.other.lora_A.weight belongs to no layer"));
  shape.tensors[Damaged::kName] = Tensor::zeros(*shape.memory, {5, 32}, DType::f32, Category::parameters);
  EXPECT_THAT(shape.message(), HasSubstr("has shape [5, 32]"));
  nan.tensors[Damaged::kName].data<float>()[3] = NAN;
  EXPECT_THAT(nan.message(), HasSubstr("holds values that are not finite"));
}

TEST(AdapterFiles, an_adapter_of_another_model_is_refused) {
  EXPECT_THAT(message_of<Error>([] {
                ModelSource(FoundModel{golden_folder("open/llama"), {}, {{golden_folder("lora/llama/adapter")}}});
              }),
              HasSubstr("has shape"));
  EXPECT_THAT(message_of<Error>([] {
                ModelSource(FoundModel{golden_folder("open/gpt2"), {}, {{golden_folder("lora/llama/adapter")}}});
              }),
              HasSubstr("matches no layer of this gpt2 model"));
}

TEST(AdapterFiles, names_in_the_file_begin_as_peft_has_it) {
  ModelAdapter adapter;
  adapter.layers["q"] = {.rank = 1};
  const auto name_of = [&](const std::string& name, ParameterRole role) {
    Parameter parameter;
    parameter.name = name, parameter.role = role;
    return adapter_tensor_name(parameter, adapter);
  };
  EXPECT_EQ(name_of("lm_head.weight", ParameterRole::head), "base_model.model.lm_head.weight");
  EXPECT_EQ(name_of(low_rank_name("x", 'A'), ParameterRole::adapter), "base_model.model.x.lora_A.weight");
  EXPECT_EQ(name_of("q.bias", ParameterRole::bias), "base_model.model.q.base_layer.bias");
  EXPECT_EQ(name_of("k.bias", ParameterRole::bias), "base_model.model.k.bias");
  EXPECT_TRUE(holds_adapter(golden_folder("lora/llama/adapter")));
  EXPECT_FALSE(holds_adapter(golden_folder("lora/llama/base")));
}

}  // namespace
}  // namespace nought::adapter_files_test
