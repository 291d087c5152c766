// What a layer of the gated delta rule declares, and what it keeps of sequences.
#include "nought/nn/delta_net.h"

#include <gtest/gtest.h>

namespace nought::delta_net_test {
namespace {

DeltaNet::Options options(bool grouped) {
  const DeltaShape shape{.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5};
  DeltaNet::Options options;
  options.qkv = {.in = 8, .out = {shape.width() + (grouped ? shape.values() : 0)}, .names = {"qkv"}};
  options.z = {.in = 8, .out = {shape.values()}, .names = {"z"}};
  options.ba = {.in = 8, .out = {8}, .names = {"ba"}};
  options.out = {.in = shape.values(), .out = {8}, .names = {"out"}};
  options.grouped = grouped, options.shape = shape, options.taps = 4;
  options.conv = "conv", options.norm = "norm", options.a_log = "a_log", options.dt_bias = "dt_bias";
  return options;
}

TEST(DeltaNet, keeps_the_last_inputs_of_its_convolution_and_a_matrix_in_fp32_for_each_value_head) {
  Unit unit("u");
  const DeltaNet layer(unit, options(/*grouped=*/true));
  const StateCache cache = layer.make_cache(Context::reference(), 100, DType::bf16, 3);
  EXPECT_EQ(cache.inputs.shape(), (Shape{3, 3, 32}));
  EXPECT_EQ(cache.inputs.dtype(), DType::bf16);
  EXPECT_EQ(cache.memory.shape(), (Shape{3, 4, 3, 5}));
  EXPECT_EQ(cache.memory.dtype(), DType::f32);
  EXPECT_EQ(cache.capacity, 100);
}

TEST(DeltaNet, has_as_many_parameters_with_the_parts_of_a_key_head_together_as_apart) {
  Unit together("t"), apart("a");
  const DeltaNet first(together, options(true)), second(apart, options(false));
  EXPECT_EQ(together.numel(), apart.numel());
  EXPECT_EQ(together.parameters().size() + 1, apart.parameters().size());
}

}  // namespace
}  // namespace nought::delta_net_test
