// What an adapter adds to experts is found by the names of the files' tensors.
#include "nought/models/adapter_experts.h"

#include "support/golden.h"
#include <gtest/gtest.h>

namespace nought::adapter_experts_test {
namespace {

TEST(AdapterExperts, every_tensor_of_an_expert_has_its_rows_of_the_product_of_all) {
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/olmoe"));
  const auto parts = expert_parts(config);
  const int64_t experts = config.experts->num_experts, width = config.experts->intermediate_size;
  EXPECT_EQ(std::ssize(parts), config.num_layers * experts * 3);
  const std::string expert = "model.layers.1.mlp.experts.4.";
  const ExpertPart &gate = parts.at(expert + "gate_proj.weight"), &up = parts.at(expert + "up_proj.weight"),
                   &down = parts.at(expert + "down_proj.weight");
  EXPECT_EQ(gate.layer, up.layer);
  EXPECT_NE(gate.layer, down.layer);
  EXPECT_EQ(gate.expert, 4);
  EXPECT_EQ((std::vector{gate.begin, gate.end, up.begin, up.end}), (std::vector<int64_t>{0, width, width, 2 * width}));
  EXPECT_EQ((std::vector{down.begin, down.end}), (std::vector<int64_t>{0, config.hidden_size}));
}

}  // namespace
}  // namespace nought::adapter_experts_test
