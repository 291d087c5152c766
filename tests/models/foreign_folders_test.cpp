// Checkpoints of DeepSpeed and FSDP2, made by tests/golden/foreign/make.py.
#include <filesystem>
#include <map>
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
#include "nought/io/deepspeed_numbered.h"
#include "nought/io/files.h"
#include "nought/io/foreign_run.h"
#include "nought/io/model_ranks.h"
#include "nought/io/tensor_pieces.h"
#include "nought/io/whole_shapes.h"
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

/// The shapes of what a folder is expected to hold, as a model's config.json tells them.
WholeShapes shapes_in(const std::string& name) {
  std::map<std::string, Shape, std::less<>> shapes;
  const SafetensorsFile expected(golden(name) / "expected.safetensors");
  for (const TensorEntry& entry : expected.entries()) shapes.emplace(entry.name, entry.shape);
  return [shapes](std::string_view tensor) {
    const auto found = shapes.find(tensor);
    return found == shapes.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST_P(ForeignFolder, has_the_weights_that_its_own_program_reads) {
  const auto memory = Memory::create();
  const WeightFiles files(golden(GetParam()), shapes_in(GetParam()));
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
  EXPECT_GE(files.num_files(), 1);
}

INSTANTIATE_TEST_SUITE_P(Foreign, ForeignFolder,
                         testing::Values("zero1", "zero2", "zero3", "bf16", "universal2", "universal3", "tp2", "plain",
                                         "dcp", "dcp_plain"));

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
  EXPECT_THAT(refusal(whole), HasSubstr("the *_optim_states.pt of rank 1 is missing"));
  fs::copy_file(step / "away", second);
  EXPECT_THAT(refusal(whole), HasSubstr("no mp_rank_01_model_states.pt, which says the shapes"));
  fs::remove(step / "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt"), fs::remove(second);
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

  const fs::path third = copy_of(folder, "zero3");
  fs::remove(third / "global_step2/zero_pp_rank_2_mp_rank_00_model_states.pt");
  EXPECT_THAT(refusal(third), HasSubstr("3 ranks wrote this step, and the *_model_states.pt of rank 2 is missing"));
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
  for (const char* name :
       {"zero1", "zero2", "zero3", "bf16", "universal2", "universal3", "tp2", "plain", "plain16", "dcp"}) {
    const ForeignRun run = read_foreign_run(golden(name), shapes_in(name));
    EXPECT_EQ(run.updates, name == std::string("plain16") ? 3 : 2) << name;
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
  EXPECT_THAT(read_foreign_run(golden("dcp")).groups, ElementsAre(ForeignGroup{0.9, 0.999, 1e-8, 0.01, true}));
}

TEST(ForeignFolders, an_optimizer_that_numbers_parameters_has_masters_and_moments_by_their_names) {
  const auto memory = Memory::create();
  const SafetensorsFile expected(golden("plain16") / "expected.safetensors");
  const ForeignRun run = read_foreign_run(golden("plain16"));
  for (const TensorEntry& entry : expected.entries()) {
    if (entry.name == "lm_head.weight") continue;  // tied: the optimizer has it once
    const Tensor ours = Tensor::empty(*memory, entry.shape, DType::f32, Category::workspace);
    run.weights.read(entry.name, {0, entry.shape.numel()}, ours);
    EXPECT_EQ(ours.to_vector<float>(), expected.load(entry.name, *memory).to_vector<float>()) << entry.name;
  }
  EXPECT_EQ(run.weights.find("model.norm.weight")->dtype, DType::f32) << "the module has f16";
  EXPECT_EQ(run.loss_scale.value_or(ForeignLossScale{}).scale, 16);
  EXPECT_THAT(run.groups,
              ElementsAre(ForeignGroup{0.9, 0.999, 1e-8, 0.1, true}, ForeignGroup{0.9, 0.999, 1e-8, 0.0, true}));
}

TEST(ForeignFolders, numbers_that_no_rule_names_are_refused_and_weights_are_read_all_the_same) {
  for (const auto& [name, why] : {std::pair{"three_groups", "numbers the parameters of 3 groups, and nothing tells"},
                                  std::pair{"other_order", "their shapes are not those of the module in its order"}}) {
    EXPECT_THAT(message_of<IoError>([&, folder = golden(name)] { read_foreign_run(folder); }), HasSubstr(why));
    EXPECT_EQ(WeightFiles(golden(name)).at("v").shape, (Shape{3, 2})) << name;
  }
}

TEST(ForeignFolders, ranks_of_autotp_join_without_a_config_as_it_notes_whole_shapes) {
  const WeightFiles told(golden("tp2"));  // AutoTP notes whole shapes
  EXPECT_EQ(told.at("model.layers.0.self_attn.o_proj.weight").shape, (Shape{8, 16}));
  EXPECT_EQ(told.at("lm_head.weight").shape, (Shape{13, 8})) << "tied: the second name of the embeddings";
  const ForeignRun run = read_foreign_run(golden("tp2"));
  EXPECT_EQ(run.writer, "DeepSpeed 0.19.8, ZeRO stage 1 on 1 rank, 2 tensor parallel ranks");
}

/// Two ranks' slices of "w", each of floats that count up from `firsts`, as one tensor.
class ModelRanks : public testing::Test {
 protected:
  ForeignRun rank(const std::string& name, const Shape& slice, float first) {
    ForeignRun run(folder_.path());
    std::string bytes;
    for (int64_t i = 0; i < slice.numel(); ++i, ++first)
      bytes.append(reinterpret_cast<const char*>(&first), sizeof(float));
    const size_t file = run.weights.open(folder_.write(fmt::format("{}", files_++), bytes));
    const int64_t half = slice.numel() / 2 + 1;  // in two pieces, as two data parallel ranks have them
    run.weights.add({name, DType::f32, slice, {}}, {{file, 0, 0, half}, {file, half * 4, half, slice.numel() - half}});
    return run;
  }
  static std::vector<float> values(const ForeignRun& run, const std::string& name) {
    const auto memory = Memory::create();
    const Shape shape = run.weights.find(name)->shape;
    const Tensor all = Tensor::empty(*memory, shape, DType::f32, Category::workspace);
    run.weights.read(name, {0, shape.numel()}, all);
    return all.to_vector<float>();
  }
  static ForeignRun joined(const std::vector<ForeignRun>& ranks, const Shape& whole) {
    return join_model_ranks(ranks, [&](std::string_view) { return std::optional(whole); });
  }
  static std::string refusal(const std::vector<ForeignRun>& ranks, const std::string& name, const Shape& whole) {
    const ForeignRun run = joined(ranks, whole);
    return message_of<IoError>([&] { run.weights.find(name); });
  }

  TempFolder folder_;
  int files_ = 0;
};

TEST_F(ModelRanks, slices_join_along_the_dimension_that_the_whole_shape_tells) {
  EXPECT_THAT(values(joined({rank("w", {2, 2}, 0), rank("w", {1, 2}, 10)}, {3, 2}), "w"),
              ElementsAre(0, 1, 2, 3, 10, 11));
  EXPECT_THAT(values(joined({rank("w", {2, 2}, 0), rank("w", {2, 3}, 10)}, {2, 5}), "w"),
              ElementsAre(0, 1, 10, 11, 12, 2, 3, 13, 14, 15));
  EXPECT_THAT(values(joined({rank("w", {2, 1, 2}, 0), rank("w", {2, 1, 2}, 10)}, {2, 2, 2}), "w"),
              ElementsAre(0, 1, 10, 11, 2, 3, 12, 13));
  EXPECT_THAT(values(joined({rank("w", {4}, 0), rank("w", {4}, 0)}, {4}), "w"), ElementsAre(0, 1, 2, 3));
}

TEST_F(ModelRanks, what_does_not_follow_from_the_shape_is_refused_by_its_name) {
  EXPECT_THAT(refusal({rank("w", {4}, 0), rank("w", {4}, 1)}, "w", {4}),
              HasSubstr("\"w\" is cut over 2 tensor parallel"));
  EXPECT_THAT(refusal({rank("w", {4}, 0), rank("w", {4}, 1)}, "w", {4}),
              HasSubstr("each has a whole one, and they differ"));
  EXPECT_THAT(refusal({rank("w", {2, 2}, 0), rank("w", {2, 2}, 9)}, "w", {5, 2}),
              HasSubstr("slices [2, 2], [2, 2] do not join to [5, 2]"));
  const std::string fused = "model.layers.0.mlp.gate_up_proj.weight";
  EXPECT_THAT(refusal({rank(fused, {2, 2}, 0), rank(fused, {2, 2}, 9)}, fused, {4, 2}),
              HasSubstr("it holds several layers, and each of them was cut"));
  EXPECT_THAT(message_of<IoError>([&] {
                joined({rank("w", {4}, 0), rank("v", {4}, 1)}, {4});
              }),
              HasSubstr("\"w\" is of one tensor parallel rank, and not of another"));
  ForeignRun later = rank("w", {4}, 0);
  later.updates = 3;
  EXPECT_THAT(message_of<IoError>([&] {
                joined({rank("w", {4}, 0), std::move(later)}, {4});
              }),
              HasSubstr("have made 0 and 3 updates: files of different steps?"));
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
