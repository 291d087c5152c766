// An adapter as a GGUF file: what llama.cpp makes of it and of the model's file is what merging makes.
#include "nought/weights/gguf_adapter.h"

#include "support/gguf_reader.h"
#include "support/golden.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/io/files.h"
#include "nought/weights/convert.h"

namespace nought::gguf_adapter_test {
namespace {

using test::GgufFile;
using test::golden_folder;
using test::TempFolder;
using testing::HasSubstr;

class GgufAdapter : public ::testing::Test {
 protected:
  GgufFile model(const FoundModel& found, AdaptersAre are) const {
    convert_to_gguf(ModelSource(found, are), folder_ / "model.gguf", gguf_mixture(GgufType::f32), *memory_);
    return GgufFile(read_bytes(folder_ / "model.gguf"));
  }
  GgufFile adapter(const FoundModel& found) const {
    write_gguf_adapter(ModelSource(found), folder_ / "adapter.gguf", GgufType::f32, *memory_);
    return GgufFile(read_bytes(folder_ / "adapter.gguf"));
  }
  const TempFolder folder_;
  const std::shared_ptr<Memory> memory_ = Memory::create();
};

/// As llama.cpp adds it: W + alpha / (rank of B) B A.
TEST_F(GgufAdapter, it_adds_to_the_models_file_what_merging_adds) {
  for (const char* name : {"lora/llama", "lora/gpt2"}) {
    FoundModel found = find_model(golden_folder(std::string(name) + "/adapter"));
    found.adapters.push_back({found.adapters.front().folder, 0.5});
    const GgufFile own = adapter(found), base = model({found.folder}, AdaptersAre::beside),
                   merged = model(found, AdaptersAre::merged);
    EXPECT_EQ(own.values.at("general.type").texts.at(0), "adapter");
    EXPECT_EQ(own.values.at("adapter.type").texts.at(0), "lora");
    EXPECT_EQ(own.values.at("general.architecture").texts, base.values.at("general.architecture").texts);
    const double alpha = own.values.at("adapter.lora.alpha").numbers.at(0);
    size_t changed = 0;
    for (const auto& [tensor, facts] : merged.tensors) {
      std::vector<double> expected = base.read(tensor);
      if (own.tensors.contains(tensor + ".lora_a")) {
        const std::vector<double> a = own.read(tensor + ".lora_a"), b = own.read(tensor + ".lora_b");
        const uint64_t in = facts.dims[0], out = facts.dims[1], rank = own.tensors.at(tensor + ".lora_b").dims[0];
        EXPECT_EQ(own.tensors.at(tensor + ".lora_a").dims, (std::vector<uint64_t>{in, rank}));
        for (uint64_t o = 0; o < out; ++o)
          for (uint64_t i = 0; i < in; ++i)
            for (uint64_t k = 0; k < rank; ++k)
              expected[o * in + i] += alpha / static_cast<double>(rank) * b[o * rank + k] * a[k * in + i];
        ++changed;
      }
      const std::vector<double> values = merged.read(tensor);
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-5) << tensor;
    }
    EXPECT_EQ(2 * changed, own.tensors.size()) << name;
  }
}

TEST_F(GgufAdapter, what_has_no_place_in_it_is_refused_by_name) {
  const auto error = [&](const char* name) {
    return test::message_of<ConfigError>([&] { adapter(find_model(golden_folder(std::string(name) + "/adapter"))); });
  };
  EXPECT_THAT(error("lora/dora"), HasSubstr("magnitudes (use_dora) of the adapter"));
  EXPECT_THAT(error("lora/bias"), HasSubstr("a bias of B (lora_bias)"));
  EXPECT_THAT(error("lora/tied"), HasSubstr("trains lm_head.weight as a whole"));
}

}  // namespace
}  // namespace nought::gguf_adapter_test
