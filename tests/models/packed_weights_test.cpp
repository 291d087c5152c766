// Weights of quantised folders are those that the libraries that wrote them give.
#include "nought/models/packed_weights.h"

#include <cstring>

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/json.h"
#include "nought/models/packed_tensor.h"

namespace nought::packed_weights_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

const char* const kFolders[] = {"gptq4",    "gptq4_act",  "awq4",  "ct_int4", "ct_int8", "ct_fp8",
                                "ct_nvfp4", "fp8_blocks", "mxfp4", "bnb_nf4", "bnb_int8"};

std::string folder_of(const std::string& name) { return test::golden_root() + "/quant/" + name; }

TEST(PackedWeights, a_weight_of_every_golden_folder_has_its_bits_whole_and_in_parts) {
  const auto memory = Memory::create();
  for (const char* name : kFolders) {
    SCOPED_TRACE(name);
    const std::string folder = folder_of(name);
    const WeightFiles files(folder);
    const PackedWeights packed(files, *QuantizationConfig::of_folder(folder));
    const SafetensorsFile golden(folder + "/weight.safetensors");
    const TensorEntry& entry = golden.entries().front();
    const auto found = packed.find(entry.name, entry.shape);
    ASSERT_TRUE(found);
    const Tensor expected = golden.load(entry.name, *memory);
    const int64_t count = entry.shape.numel(), width = entry.shape[-1];
    const Tensor whole = Tensor::empty(*memory, entry.shape, DType::f32, Category::workspace);
    const Interval all{0, count};
    found->tensor.read(std::span(&all, 1), whole);
    EXPECT_EQ(whole.to_vector<float>(), expected.to_vector<float>());

    // The columns of one of two ranks, and a piece that begins and ends within rows.
    std::vector<Interval> parts;
    for (int64_t row = 0; row < count / width; ++row) parts.push_back({row * width + width / 2, (row + 1) * width});
    const Tensor half = Tensor::empty(*memory, {count / 2}, DType::f32, Category::workspace);
    found->tensor.read(parts, half);
    const std::vector<float> values = expected.to_vector<float>(), got = half.to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t w = static_cast<size_t>(width / 2);
      ASSERT_EQ(got[i], values[i / w * 2 * w + w + i % w]) << i;
    }
    const Interval piece{width + 3, 4 * width + 5};
    const Tensor some = Tensor::empty(*memory, {piece.size()}, DType::f32, Category::workspace);
    found->tensor.read(std::span(&piece, 1), some);
    EXPECT_EQ(some.to_vector<float>(), std::vector<float>(values.begin() + piece.begin, values.begin() + piece.end));
  }
}

/// A copy of a golden folder, whose header and data a test changes.
struct Damaged {
  TempFolder folder;
  nlohmann::ordered_json header;
  std::string data;

  explicit Damaged(const std::string& name) {
    const std::string bytes = test::read_bytes(folder_of(name) + "/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    header = nlohmann::ordered_json::parse(bytes.substr(8, length));
    data = bytes.substr(8 + length);
  }
  void remove(const std::string& tensor) { rename(tensor, tensor + ".gone"); }
  void rename(const std::string& from, const std::string& to) {
    header[to] = header.at(from);
    header.erase(from);
  }
  void fill(const std::string& tensor, char byte) {
    const auto begin = header.at(tensor)["data_offsets"][0].get<size_t>();
    data.replace(begin, 4, std::string(4, byte));
  }
  std::string refusal(const nlohmann::json& config, const std::string& parameter, const Shape& shape) {
    const std::string text = header.dump();
    const uint64_t length = text.size();
    folder.write("model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
    const WeightFiles files(folder.path());
    return message_of<IoError>([&] {
      PackedWeights(files, QuantizationConfig::from_json(Json::parse(config.dump()), "F")).find(parameter, shape);
    });
  }
};

nlohmann::json config_of(const std::string& name) {
  return nlohmann::json::parse(test::read_bytes(folder_of(name) + "/config.json"))["quantization_config"];
}

TEST(PackedWeights, a_folder_that_lost_or_changed_a_tensor_is_refused_with_its_name) {
  const std::string q = "model.layers.0.self_attn.q_proj";
  const auto refusal = [&](const std::string& name, const auto& damage, const Shape& shape = {64, 64}) {
    Damaged damaged(name);
    damage(damaged);
    return damaged.refusal(config_of(name), q + ".weight", shape);
  };
  EXPECT_THAT(refusal("gptq4", [&](Damaged& each) { each.remove(q + ".scales"); }),
              HasSubstr(q + ": its scales are missing: there is no tensor " + q + ".scales"));
  EXPECT_THAT(refusal("gptq4", [&](Damaged& each) { each.remove(q + ".qzeros"); }),
              HasSubstr(q + ": its zero points are missing"));
  EXPECT_THAT(refusal("gptq4_act", [&](Damaged& each) { each.fill(q + ".g_idx", 1); }),
              HasSubstr("g_idx names group 16843009 at 0, there are 2: it is out of range"));
  EXPECT_THAT(refusal("awq4",
                      [&](Damaged& each) {
                        each.header[q + ".qzeros"]["shape"] = {8, 2};
                      }),
              HasSubstr("qzeros has shape [8, 2], expected [2, 8] for a weight [64, 64]"));
  EXPECT_THAT(refusal("gptq4", [](Damaged&) {}, {64, 128}), HasSubstr("qweight has shape [8, 64], expected [16, 64]"));
  EXPECT_THAT(refusal("ct_int4", [&](Damaged& each) { each.remove(q + ".weight_zero_point"); }),
              HasSubstr("its zero points are missing"));
  EXPECT_THAT(refusal("ct_int8", [&](Damaged& each) { each.remove(q + ".weight_scale"); }),
              HasSubstr("its scales are missing"));
  EXPECT_THAT(refusal("ct_fp8", [&](Damaged& each) { each.header[q + ".weight"]["dtype"] = "I8"; }),
              HasSubstr("which no group of config_groups describes"));
  EXPECT_THAT(refusal("ct_nvfp4", [&](Damaged& each) { each.remove(q + ".weight_global_scale"); }),
              HasSubstr("its global scale are missing"));
  EXPECT_THAT(refusal("fp8_blocks", [&](Damaged& each) { each.remove(q + ".weight_scale_inv"); }),
              HasSubstr("its scales are missing: there is no tensor " + q + ".weight_scale_inv"));
  EXPECT_THAT(refusal("bnb_int8", [&](Damaged& each) { each.remove(q + ".SCB"); }),
              HasSubstr("its scales are missing"));
  EXPECT_THAT(refusal("bnb_nf4", [&](Damaged& each) { each.remove(q + ".weight.quant_state.bitsandbytes__nf4"); }),
              HasSubstr("its scales are missing: " + q + ".weight holds U8 alone"));
}

TEST(QuantizationConfig, what_is_not_read_is_refused_by_name) {
  const auto refusal = [](const nlohmann::json& config) {
    return message_of<ConfigError>([&] { QuantizationConfig::from_json(Json::parse(config.dump()), "F"); });
  };
  EXPECT_THAT(refusal({{"quant_method", "aqlm"}}),
              HasSubstr("F: quantization_config: weights of the method \"aqlm\" are not read; read are gptq"));
  EXPECT_THAT(refusal({{"quant_method", "gptq"}, {"format", "marlin"}}), HasSubstr("format \"marlin\" is not read"));
  EXPECT_THAT(refusal({{"quant_method", "gptq"}, {"bits", 5}}), HasSubstr("bits is 5"));
  EXPECT_THAT(refusal({{"quant_method", "gptq"}, {"dynamic", {{"a", 1}}}}), HasSubstr("\"dynamic\""));
  EXPECT_THAT(refusal({{"quant_method", "awq"}, {"version", "gemv"}}), HasSubstr("version \"gemv\" is not read"));
  EXPECT_THAT(refusal({{"quant_method", "compressed-tensors"}, {"transform_config", {{"R1", 1}}}}),
              HasSubstr("transform_config"));
  EXPECT_THAT(
      refusal({{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"format", "marlin-24"}}}}}}),
      HasSubstr("config_groups.group_0: the format \"marlin-24\" is not read"));
  EXPECT_THAT(refusal({{"quant_method", "fp8"}, {"weight_block_size", {128}}}), HasSubstr("expected two positive"));
  EXPECT_THAT(refusal({{"quant_method", "gptq"}, {"group_size", 0}}), HasSubstr("group_size is 0"));
}

}  // namespace
}  // namespace nought::packed_weights_test
