// A model that was trained for few bits and then rounded to the nearest codes has the values that it was trained with.
#include <filesystem>

#include "support/golden.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/quantize/quantize_model.h"
#include "nought/zero/sharded_model.h"

namespace nought::qat_folder_test {
namespace {

struct Export {
  Qat qat;
  std::string format;
  MatrixRule rule;
};

/// As `nought quantize` takes the options that Qat::quantize_options() says.
std::vector<Export> exports() {
  return {{{.mode = QatMode::int4}, "compressed-tensors", {.group_size = 32}},
          {{.mode = QatMode::int8}, "int8", {.grid = {.bits = 8}, .group_size = -1}},
          {{.mode = QatMode::fp8}, "fp8", {.grid = {.bits = 8, .codes = CodeTable::e4m3}, .square = true}},
          {{.mode = QatMode::mxfp4}, "mxfp4", {.grid = {.codes = CodeTable::e2m1}, .group_size = 32}}};
}

TEST(QatFolder, codes_to_the_nearest_have_the_values_that_passes_compute_with) {
  const Context context = Context::cpu();
  const ModelSource trained(test::golden_folder("loader/llama_gqa_bf16_sharded"));
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Export& each : exports()) {
      SCOPED_TRACE(std::string(name_of(each.qat.mode)));
      const test::TempFolder folder;
      const std::filesystem::path out = folder.path() / "out";
      quantize_model(trained, out, {.format = each.format, .method = RoundingMethod::rtn, .rule = each.rule}, context,
                     [](int64_t, int64_t) {});
      const ModelSource exported(out);
      Decoder in_training(trained.config()), in_codes(exported.config());
      ShardedModel model(context, Mesh(), in_training, {.dtype = dtype, .qat = each.qat});
      ShardedModel read(context, Mesh(), in_codes, {.dtype = dtype, .training = false});
      model.load(trained.weights());
      read.load(exported.weights());
      int64_t changed = 0;
      for (size_t unit = 0; unit < in_training.units().size(); ++unit) {
        Unit &mine = *in_training.units()[unit], &theirs = *in_codes.units()[unit];
        model.before_forward(mine);
        read.before_forward(theirs);
        for (size_t i = 0; i < mine.parameters().size(); ++i) {
          const auto values = [&](ShardedModel& of, const Unit& at) {
            const Parameter& parameter = at.parameters()[i];
            return of.values(at, parameter.segment)
                .flat(parameter.range.begin, parameter.range.end)
                .template to_vector<float>();
          };
          EXPECT_EQ(values(model, mine), values(read, theirs)) << mine.parameters()[i].name;
          changed += is_linear_matrix(mine.parameters()[i]) ? 1 : 0;
        }
        model.after_forward(mine);
        read.after_forward(theirs);
      }
      EXPECT_GT(changed, 0);
    }
}

}  // namespace
}  // namespace nought::qat_folder_test
