// Tensors that are moved in more than one block: those of other tests fit into one.
#include <cmath>
#include <filesystem>

#include "support/gguf_reader.h"
#include "support/saved_model.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"
#include "nought/weights/convert.h"

namespace nought::large_tensors_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

/// q_proj and o_proj have 4.3 million elements: more than the 16 MiB of f32 that a conversion moves at once, and
/// several blocks of a checkpoint. The border lies within a row.
ModelConfig wide_llama() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 256},
                                 {"hidden_size", 2080},
                                 {"intermediate_size", 32},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 16},
                                 {"num_key_value_heads", 1}});
}

const std::string kQuery = "model.layers.0.self_attn.q_proj.weight";

TEST(LargeTensors, a_parameter_of_several_blocks_is_read_back_from_any_place) {
  const TempFolder folder;
  const fs::path path =
      test::SavedModel{.model = wide_llama(),
                       .ranks = 2,
                       .settings = {.policy = Policy::stage(1), .optimizer = {.method = SgdOptions{}}},
                       .seed = 4}
          .save(folder.path());
  const Context context = Context::cpu();
  const Decoder decoder(wide_llama());
  const Checkpoint checkpoint(path, decoder);
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.range.size();
      for (const Interval interval : {Interval{0, numel}, Interval{numel / 3, numel - numel / 5}}) {
        const Tensor saved = context.empty({interval.size()}, DType::f32),
                     initial = context.empty(saved.shape(), DType::f32);
        checkpoint.fill(StateKind::master, parameter, interval, saved);
        InitialState(4).fill(StateKind::master, parameter, interval, initial);
        ASSERT_EQ(saved.to_vector<float>(), initial.to_vector<float>()) << parameter.name;
      }
    }
}

float value_at(int64_t i) { return static_cast<float>(i % 100003) * 1e-4f - 3; }

/// A folder whose weights are value_at() of their place in the parameter.
fs::path write_model(const TempFolder& folder) {
  test::write_weights(folder / "model", wide_llama(), value_at);
  export_companions(wide_llama(), DType::f32, {"bytes"}, folder / "model");
  return folder / "model";
}

TEST(LargeTensors, weights_of_several_blocks_convert_to_another_dtype) {
  const TempFolder folder;
  const auto memory = Memory::create();
  convert_to_hf(ModelSource(write_model(folder)), folder / "half", {.dtype = DType::bf16}, *memory);
  const Tensor half = WeightFiles(folder / "half").load(kQuery, *memory);
  ASSERT_EQ(half.dtype(), DType::bf16);
  const std::vector<float> values = half.to_vector<float>();
  size_t equal = 0;  // an expectation for each of millions takes seconds
  while (equal < values.size() && values[equal] == static_cast<float>(bf16_t(value_at(static_cast<int64_t>(equal)))))
    ++equal;
  EXPECT_EQ(equal, size_t{2080 * 2080});
}

TEST(LargeTensors, weights_of_several_blocks_convert_to_gguf_with_their_rows_in_pairs) {
  const TempFolder folder;
  const auto memory = Memory::create();
  convert_to_gguf(ModelSource(write_model(folder)), folder / "x.gguf", gguf_mixture(GgufType::f32), *memory);
  const test::GgufFile file(test::read_bytes(folder / "x.gguf"));
  constexpr int64_t kRow = 2080, kHead = 130;
  const std::vector<double> query = file.read("blk.0.attn_q.weight"), out = file.read("blk.0.attn_output.weight");
  ASSERT_EQ(static_cast<int64_t>(query.size()), kRow * kRow);
  int64_t equal = 0;
  for (; equal < kRow * kRow; ++equal) {
    const int64_t row = equal / kRow, in_head = row % kHead, half = in_head / (kHead / 2), j = in_head % (kHead / 2);
    const int64_t target = (row - in_head + 2 * j + half) * kRow + equal % kRow;
    if (query[static_cast<size_t>(target)] != value_at(equal)) break;
    if (out[static_cast<size_t>(equal)] != value_at(equal)) break;
  }
  EXPECT_EQ(equal, kRow * kRow);
}

}  // namespace
}  // namespace nought::large_tensors_test
