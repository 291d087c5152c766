// What the options of smaller models say of themselves, and what training.qat rounds.
#include <gtest/gtest.h>

#include "nought/compress/input_rounding.h"
#include "nought/compress/qat.h"
#include "nought/compress/sparse_pruning.h"

namespace nought::smaller_test {
namespace {

TEST(Qat, modes_round_inputs_where_their_names_say_so) {
  for (const auto& [mode, name] : kQatModes) {
    const Qat qat{.mode = mode, .start_step = 5};
    EXPECT_EQ(name_of(mode), name);
    EXPECT_EQ(qat.groups_weights(), name.ends_with("int4")) << name;
    const auto inputs = qat.inputs();
    EXPECT_EQ(inputs.has_value(), name == "int8-int4" || name == "fp8-int4" || name == "fp8") << name;
    if (!inputs) continue;
    EXPECT_EQ(inputs->grid, name == "int8-int4" ? RowGrid::affine : RowGrid::e4m3);
    EXPECT_EQ(inputs->start, 5);
  }
}

TEST(Qat, says_how_its_codes_are_written) {
  EXPECT_EQ((Qat{.mode = QatMode::int8_int4, .group_size = 64}).quantize_options(),
            "--format compressed-tensors --group-size 64");
  EXPECT_EQ(Qat{.mode = QatMode::int8}.quantize_options(), "--format int8");
  EXPECT_EQ((Qat{.mode = QatMode::fp8, .start_step = 9}).describe(),
            "weights in E4M3, squares of 128, inputs in E4M3, a scale a token, from step 10 on");
  EXPECT_EQ(Qat{.mode = QatMode::mxfp4}.describe(), "weights in E2M1, groups of 32, from step 1 on");
}

TEST(InputRounding, says_what_a_group_has) {
  const InputRounding rounding{.grid = RowGrid::asymmetric, .start = 3};
  EXPECT_EQ(rounding.describe({.name = "a", .modules = {}, .bits = 4}),
            "inputs in 4 bits, asymmetric, a scale a token, from step 4 on");
}

TEST(SparsePruning, says_what_stays) {
  EXPECT_EQ(SparsePruning{}.describe({.name = "a", .modules = {}, .dense_ratio = 0.125}),
            "the 12.5% largest weights, from step 1001 on");
}

}  // namespace
}  // namespace nought::smaller_test
