// Checkpoints of DeepSpeed and FSDP2, made by tests/golden/foreign/make.py.
#include <filesystem>
#include <string>
#include <vector>

#include "support/golden_root.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/io/convert.h"
#include "nought/io/dcp_folder.h"
#include "nought/io/deepspeed_checkpoint.h"
#include "nought/io/deepspeed_files.h"
#include "nought/io/files.h"
#include "nought/io/foreign_run.h"
#include "nought/io/tensor_pieces.h"
#include "nought/models/weight_files.h"

namespace nought::foreign_folders_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

fs::path golden(const std::string& name) { return fs::path(test::golden_root()) / "foreign" / name; }

class ForeignFolder : public testing::TestWithParam<const char*> {};

TEST_P(ForeignFolder, has_the_weights_that_its_own_program_reads) {
  const auto memory = Memory::create();
  const WeightFiles files(golden(GetParam()));
  const SafetensorsFile expected(golden(GetParam()) / "expected.safetensors");
  ASSERT_GE(expected.entries().size(), 11U);
  for (const TensorEntry& entry : expected.entries()) {
    ASSERT_TRUE(files.contains(entry.name)) << entry.name;
    EXPECT_EQ(files.at(entry.name).shape, entry.shape) << entry.name;
    const int64_t numel = entry.shape.numel();
    for (const Interval part : {Interval{0, numel}, Interval{numel / 3, numel - 1}}) {
      const Tensor ours = Tensor::empty(*memory, {part.size()}, DType::f32, Category::workspace);
      const Tensor theirs = Tensor::empty(*memory, {part.size()}, DType::f32, Category::workspace);
      files.read(entry.name, part, ours), expected.read(entry.name, part, theirs);
      EXPECT_EQ(ours.to_vector<float>(), theirs.to_vector<float>()) << entry.name;
    }
  }
  EXPECT_GT(files.bytes_read(), 0);
  EXPECT_GE(files.num_files(), 2);
}

INSTANTIATE_TEST_SUITE_P(Foreign, ForeignFolder,
                         testing::Values("zero1", "zero2", "zero3", "bf16", "universal2", "universal3", "dcp",
                                         "dcp_plain"));

TEST(ForeignFolders, bytes_come_in_the_order_of_the_elements) {
  const WeightFiles files(golden("zero3"));
  const SafetensorsFile expected(golden("zero3") / "expected.safetensors");
  constexpr const char* kName = "model.embed_tokens.weight";
  std::vector<std::byte> bytes;
  files.visit_bytes(kName,
                    [&](std::span<const std::byte> some) { bytes.insert(bytes.end(), some.begin(), some.end()); });
  const std::span<const std::byte> whole = expected.raw(expected.at(kName));
  EXPECT_EQ(bytes, std::vector<std::byte>(whole.begin(), whole.end()));
  EXPECT_THAT(message_of<IoError>([&] { files.file_of(kName); }), HasSubstr("lies in pieces"));
  EXPECT_EQ(files.path_of(kName), golden("zero3") / "global_step2");
}

/// A copy that a test may damage.
fs::path copy_of(const TempFolder& folder, const std::string& name) {
  fs::remove_all(folder / name);
  fs::copy(golden(name), folder / name, fs::copy_options::recursive);
  return folder / name;
}
std::string refusal(const fs::path& folder) {
  EXPECT_TRUE(holds_weights(folder));
  return message_of<IoError>([&] { WeightFiles{folder}; });
}

TEST(ForeignFolders, half_a_step_of_deepspeed_says_what_is_missing) {
  const TempFolder folder;
  const fs::path whole = copy_of(folder, "zero2"), step = whole / "global_step2";
  const fs::path second = step / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  fs::rename(second, step / "away");
  EXPECT_THAT(refusal(whole), HasSubstr("2 ranks wrote this step, and the *_optim_states.pt of rank 1 is missing"));
  fs::copy_file(step / "away", step / "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt");
  EXPECT_THAT(refusal(whole), HasSubstr("tensor parallel rank 1: DeepSpeed's ds_to_universal.py"));
  fs::remove(step / "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt");
  fs::copy_file(golden("zero1/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt"), second);
  EXPECT_THAT(refusal(whole), HasSubstr("files of different steps?"));
  fs::rename(second, step / "second");
  fs::rename(step / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", step / "first");
  EXPECT_THAT(refusal(whole), HasSubstr("no *_optim_states.pt, where the masters of ZeRO's ranks are"));
  fs::rename(step / "away", step / "layer_00-model_states.pt");
  EXPECT_THAT(refusal(whole), HasSubstr("experts or stages of a pipeline"));
  fs::remove(step / "layer_00-model_states.pt");
  fs::copy_file(golden("../torch/command.pt"), step / "mp_rank_00_model_states.pt",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(whole), HasSubstr("posix.system: not a part of tensors; nothing of it is run"));
  fs::remove(step / "mp_rank_00_model_states.pt");
  EXPECT_THAT(refusal(whole), HasSubstr("no mp_rank_00_model_states.pt"));
  fs::remove_all(step);
  EXPECT_THAT(refusal(whole), HasSubstr("`latest` names global_step2, which is not there"));

  const fs::path universal = copy_of(folder, "universal2");
  fs::remove_all(universal / "global_step2_universal/zero/model.norm.weight");
  EXPECT_THAT(refusal(universal), HasSubstr("zero/model.norm.weight: is missing"));
  EXPECT_FALSE(holds_deepspeed_checkpoint(folder.path()));
  EXPECT_EQ(deepspeed_files(golden("zero3/global_step2")).size(), 6U);
}

TEST(ForeignFolders, half_a_folder_of_dcp_says_what_is_missing) {
  const TempFolder folder;
  const fs::path whole = copy_of(folder, "dcp_plain");
  EXPECT_TRUE(holds_dcp(whole));
  fs::resize_file(whole / "__1_0.distcp", 20000);
  EXPECT_THAT(refusal(whole), HasSubstr("__1_0.distcp: truncated: bytes "));
  fs::remove(whole / "__1_0.distcp");
  EXPECT_THAT(refusal(whole), HasSubstr("__1_0.distcp: is missing, and .metadata names it"));
}

TEST(ForeignFolders, a_part_of_one_format_says_what_it_is_a_part_of) {
  const TempFolder folder;
  const auto refused = [](const fs::path& part) {
    EXPECT_FALSE(holds_weights(part));
    return message_of<IoError>([&] { WeightFiles{part}; });
  };
  const fs::path dcp = copy_of(folder, "dcp_plain"), universal = copy_of(folder, "universal2");
  fs::remove(dcp / ".metadata");
  EXPECT_THAT(refused(dcp), HasSubstr("holds __0_0.distcp without the .metadata that describes it: copy the whole"));
  fs::remove(universal / "global_step2_universal/mp_rank_00_model_states.pt");
  EXPECT_THAT(refused(universal / "global_step2_universal"),
              HasSubstr("holds zero/, and no mp_rank_00_model_states.pt"));
  const fs::path zero = copy_of(folder, "zero2");
  fs::remove(zero / "latest");
  EXPECT_THAT(refused(zero), HasSubstr("holds global_step2, and no file \"latest\" that names the step to read"));
  EXPECT_EQ(describe_part_of_foreign_run(folder.path()), "");
}

TEST(ForeignFolders, a_run_tells_its_steps_and_the_states_of_its_optimizer) {
  for (const char* name : {"zero1", "zero2", "zero3", "bf16", "universal2", "universal3", "dcp"}) {
    const ForeignRun run = read_foreign_run(golden(name));
    EXPECT_EQ(run.updates, 2) << name;
    EXPECT_EQ(run.skipped, 0) << name;
    ASSERT_EQ(run.states.size(), 2U) << name;
    const TensorPieces& squares = run.states.at("exp_avg_sq");
    EXPECT_EQ(squares.find("model.norm.weight")->shape, (Shape{8})) << name;
    squares.visit_bytes("model.layers.0.mlp.up_proj.weight", [&](std::span<const std::byte> bytes) {
      for (size_t at = 0; at < bytes.size(); at += sizeof(float))
        EXPECT_GT(number_at(DType::f32, bytes.data() + at), 0) << name;
    });
  }
  EXPECT_EQ(read_foreign_run(golden("zero3")).writer, "DeepSpeed 0.19.8, ZeRO stage 3 on 3 ranks");
  const auto scale = read_foreign_run(golden("zero1")).loss_scale;
  ASSERT_TRUE(scale.has_value());
  EXPECT_EQ(scale->scale, 16);
  EXPECT_EQ(scale->steps, 2);
  EXPECT_TRUE(read_foreign_run(golden("dcp_plain")).states.empty());
}

TEST(ForeignFolders, damage_anywhere_in_the_metadata_is_an_error_or_harmless) {
  const TempFolder folder;
  const fs::path copy = copy_of(folder, "dcp_plain");
  const std::string whole = nought::read_bytes(copy / ".metadata");
  for (size_t at = 0; at < whole.size(); at += 41) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    folder.write("dcp_plain/.metadata", damaged);
    try {
      const auto memory = Memory::create();
      const TensorPieces pieces = read_dcp(copy);
      for (const TensorEntry& entry : pieces.entries())
        pieces.read(entry.name, {0, entry.shape.numel()},
                    Tensor::empty(*memory, entry.shape, entry.dtype, Category::workspace));
    } catch (const IoError&) {  // which says what is wrong
    }
  }
}

TEST(TensorPieces, rows_of_columns_become_one_matrix_and_holes_are_refused) {
  const TempFolder folder;
  const auto memory = Memory::create();
  const std::vector<float> left{1, 2, 5, 6}, right{3, 4, 7, 8};
  const auto bytes_of = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  TensorPieces pieces(folder.path());
  const size_t a = pieces.open(folder.write("a", bytes_of(left))), b = pieces.open(folder.write("b", bytes_of(right)));
  pieces.add({"w", DType::f32, {2, 4}, {}}, {{a, 0, 0, 2, 2, 4}, {b, 0, 2, 2, 2, 4}});
  const Tensor some = Tensor::empty(*memory, {6}, DType::f32, Category::workspace);
  pieces.read("w", {1, 7}, some);
  EXPECT_THAT(some.to_vector<float>(), ElementsAre(2, 3, 4, 5, 6, 7));
  const auto refused = [&](std::vector<TensorPiece> parts) {
    return message_of<IoError>([&] { pieces.add({"v", DType::f32, {2, 4}, {}}, std::move(parts)); });
  };
  EXPECT_THAT(refused({{a, 0, 0, 4}, {b, 0, 5, 3}}), HasSubstr("has elements 4 to 5 in no file"));
  EXPECT_THAT(refused({{a, 0, 0, 4}, {b, 0, 3, 4}}), HasSubstr("has elements 3 to 4 twice"));
  EXPECT_THAT(refused({{a, 0, 0, 4}}), HasSubstr("has 4 of 8 elements in the files"));
  EXPECT_THAT(refused({{a, 4, 0, 4}, {b, 0, 4, 4}}), HasSubstr("truncated"));
  EXPECT_THAT(refused({{a, 0, 6, 4}}), HasSubstr("a piece that leaves it"));
  EXPECT_THAT(message_of<IoError>([&] {
                pieces.add({"w", DType::f32, {4}, {}}, {{a, 0, 0, 4}});
              }),
              HasSubstr("is there twice"));
}

}  // namespace
}  // namespace nought::foreign_folders_test
