// The text part of a multimodal folder is read, and exports carry the rest through, and layers that predict later
// tokens.
#include <fstream>
#include <map>

#include "support/golden_case.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "nought/weights/carried_tensors.h"
#include "nought/weights/convert.h"
#include "nought/weights/hf_folder.h"

namespace nought::multimodal_test {
namespace {

using nlohmann::json;
using test::golden_folder;
using test::TempFolder;
using ::testing::HasSubstr;

/// Names that begin with the first part begin with the second.
using Renaming = std::vector<std::pair<std::string, std::string>>;
const Renaming kNew{{"model.", "model.language_model."}},
    kOld{{"model.", "language_model.model."}, {"lm_head.", "language_model.lm_head."}};

void write_text(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

json golden_config(const std::string& name) {
  return json::parse(test::read_bytes(golden_folder("open/" + name) + "/config.json"));
}

/// A folder with the weights of a golden one by other names, and more tensors beside them.
void write_folder(const std::filesystem::path& folder, const std::string& golden, const Renaming& renaming,
                  const std::vector<std::string>& more, const json& config) {
  const auto memory = Memory::create();
  const WeightFiles files(golden_folder("open/" + golden));
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const TensorEntry& entry : files.entries()) {
    std::string name = entry.name;
    for (const auto& [from, to] : renaming)
      if (entry.name.starts_with(from)) name = to + entry.name.substr(from.size());
    tensors.emplace_back(name, files.load(entry.name, *memory));
  }
  for (size_t i = 0; i < more.size(); ++i) {
    const Tensor extra = Tensor::empty(*memory, {3, 5}, i % 2 == 0 ? DType::bf16 : DType::f32, Category::parameters);
    for (int64_t j = 0; j < extra.numel() * size_of(extra.dtype()); ++j)
      extra.raw()[j] = static_cast<std::byte>(j * 7 + static_cast<int64_t>(i));  // any bits, some of them no numbers
    tensors.emplace_back(more[i], extra);
  }
  std::filesystem::create_directories(folder);
  save_safetensors(folder / "model.safetensors", tensors);
  write_text(folder / "config.json", config.dump());
}

std::map<std::string, std::string> bytes_of(const std::filesystem::path& folder) {
  const WeightFiles files(folder);
  std::map<std::string, std::string> all;
  for (const TensorEntry& entry : files.entries()) {
    const auto raw = files.file_of(entry.name).raw(entry);
    all[entry.name] = std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  return all;
}

struct Folder {
  const char *type, *golden, *text_type;
  const Renaming* renaming;
  std::vector<std::string> more;
};

const std::vector<Folder>& folders() {
  static const std::vector<Folder> all{
      {"gemma3", "gemma3_text", "gemma3_text", &kNew, {"model.vision_tower.a.weight", "model.multi_modal_projector.b"}},
      {"mistral3", "ministral3", "ministral3", &kOld, {"vision_tower.a.weight", "multi_modal_projector.b.weight"}},
      {"llama4", "llama4_text", "llama4_text", &kOld, {"vision_model.a.weight", "multi_modal_projector.b.weight"}},
      {"qwen2_5_vl", "qwen2", "qwen2_5_vl_text", &kNew, {"model.visual.blocks.0.a.weight"}},
      {"qwen3_vl", "qwen3", "qwen3_vl_text", &kNew, {"model.visual.blocks.0.a.weight"}},
      {"qwen3_5", "qwen3_5_text", "qwen3_5_text", &kNew, {"model.visual.a.weight", "mtp.fc.weight"}}};
  return all;
}

void write_folder(const std::filesystem::path& folder, const Folder& of) {
  json config{{"model_type", of.type}, {"text_config", golden_config(of.golden)}, {"vision_config", {{"depth", 1}}}};
  config["text_config"]["model_type"] = of.text_type;
  write_folder(folder, of.golden, *of.renaming, of.more, config);
}

TEST(Multimodal, the_text_part_is_read_and_the_rest_is_carried_byte_for_byte) {
  const auto memory = Memory::create();
  for (const Folder& each : folders()) {
    SCOPED_TRACE(each.type);
    const TempFolder folder;
    write_folder(folder / "m", each);
    write_text(folder / "m/preprocessor_config.json", "{}");
    const ModelSource source(folder / "m");
    EXPECT_EQ(source.config().family, golden_config(each.golden)["model_type"]);
    EXPECT_THAT(source.config().notes, ::testing::Contains(HasSubstr("the text part is read")));
    EXPECT_TRUE(source.unused().empty());
    const ConvertReport report = convert_to_hf(source, folder / "out", {}, *memory);
    EXPECT_THAT(report.notes, ::testing::ElementsAre(HasSubstr("are carried through as they are")));
    EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "m"));
    if (each.golden == std::string("gemma3_text")) {
      EXPECT_THAT(convert_to_gguf(source, folder / "m.gguf", gguf_mixture(GgufType::f32), *memory).notes,
                  ::testing::Contains(HasSubstr("2 tensors (multi_modal_projector, vision_tower) are left out")));
    }
    const json before = json::parse(test::read_bytes(folder / "m/config.json")),
               after = json::parse(test::read_bytes(folder / "out/config.json"));
    EXPECT_EQ(after["model_type"], each.type);
    EXPECT_EQ(after["vision_config"], before["vision_config"]);
    EXPECT_EQ(after["text_config"]["model_type"], each.text_type);
    EXPECT_TRUE(std::filesystem::exists(folder / "out/preprocessor_config.json"));
    EXPECT_EQ(ModelSource(folder / "out").config().to_hf_json(DType::f32), source.config().to_hf_json(DType::f32));
  }
}

TEST(Multimodal, files_decide_where_the_folder_and_its_text_part_differ_about_a_tied_head) {
  const TempFolder folder;
  for (const auto& [golden, head] : {std::pair("ministral3", true), {"smollm3", false}}) {
    json config{{"model_type", "mistral3"}, {"text_config", golden_config(golden)}, {"tie_word_embeddings", true}};
    config["text_config"]["tie_word_embeddings"] = false;
    write_folder(folder / golden, golden, kOld, {"vision_tower.a.weight"}, config);
    EXPECT_EQ(ModelSource(folder / golden).config().tie_word_embeddings, !head) << golden;
  }
}

TEST(Multimodal, logits_are_those_of_the_text_model_and_a_run_exports_the_whole) {
  const TempFolder folder;
  const Folder& gemma = folders().front();
  write_folder(folder / "m", gemma);
  test::TrainingCase on{.model = ModelConfig::from_folder(folder / "m"), .settings = {}};
  on.load = [&](ShardedModel& model, Decoder&) { model.load(ModelSource(folder / "m").weights()); };
  on.on_ranks([&](test::TrainingRank& rank) {
    const std::string golden = golden_folder("open/gemma3_text") + "/golden.safetensors";
    const ProbeInput input = read_probe_input(rank.context, golden, rank.decoder.config().vocab_size);
    test::expect_all_golden(probe(rank.model, rank.decoder, input, true), golden);
    export_hf_folder(rank.model, rank.decoder.config(), {}, folder / "out", 1 << 30, folder / "m");
    export_hf_folder(rank.model, rank.decoder.config(), {}, folder / "text", 1 << 30);
  });
  EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "m"));
  EXPECT_EQ(bytes_of(folder / "text"), bytes_of(golden_folder("open/gemma3_text")))
      << "without the folder of its start";
  EXPECT_EQ(json::parse(test::read_bytes(folder / "text/config.json"))["model_type"], "gemma3_text");
}

/// The golden mixture as the hub has Qwen3.5: all experts of a layer in two tensors, gate above up.
void write_joined_experts(const std::filesystem::path& folder, const json& config) {
  const auto memory = Memory::create();
  const WeightFiles files(golden_folder("open/qwen3_5_moe_text"));
  std::vector<std::pair<std::string, Tensor>> tensors{
      {"model.visual.a.weight", Tensor::of<float>(*memory, {2}, std::vector<float>{1, 2})}};
  for (const TensorEntry& entry : files.entries()) {
    if (entry.name.find(".experts.") != std::string::npos) continue;
    std::string name = entry.name;
    if (name.starts_with("model.")) name.insert(6, "language_model.");
    tensors.emplace_back(name, files.load(entry.name, *memory));
  }
  const json& text = config["text_config"];
  const int64_t experts = text["num_experts"], width = text["moe_intermediate_size"], hidden = text["hidden_size"];
  for (int64_t layer = 0; layer < text["num_hidden_layers"]; ++layer) {
    const Tensor first = Tensor::empty(*memory, {experts, 2 * width, hidden}, DType::f32, Category::parameters),
                 second = Tensor::empty(*memory, {experts, hidden, width}, DType::f32, Category::parameters);
    const int64_t each = width * hidden;
    for (int64_t expert = 0; expert < experts; ++expert) {
      const auto put = [&](const char* matrix, const Tensor& to, int64_t at) {
        const std::string name = fmt::format("model.layers.{}.mlp.experts.{}.{}.weight", layer, expert, matrix);
        files.read(name, {0, each}, to.flat(at, at + each));
      };
      put("gate_proj", first, 2 * expert * each);
      put("up_proj", first, 2 * expert * each + each);
      put("down_proj", second, expert * each);
    }
    tensors.emplace_back(fmt::format("model.language_model.layers.{}.mlp.experts.gate_up_proj", layer), first);
    tensors.emplace_back(fmt::format("model.language_model.layers.{}.mlp.experts.down_proj", layer), second);
  }
  std::filesystem::create_directories(folder);
  save_safetensors(folder / "model.safetensors", tensors);
  write_text(folder / "config.json", config.dump());
}

TEST(Multimodal, experts_that_lie_in_one_tensor_are_read_and_written_as_they_lie) {
  const TempFolder folder;
  const json config{{"model_type", "qwen3_5_moe"}, {"text_config", golden_config("qwen3_5_moe_text")}};
  write_joined_experts(folder / "m", config);
  test::TrainingCase on{.model = ModelConfig::from_folder(folder / "m"), .mesh = test::sharded(2, 3)};
  on.load = [&](ShardedModel& model, Decoder&) { model.load(ModelSource(folder / "m").weights()); };
  on.on_ranks([&](test::TrainingRank& rank) {
    const std::string golden = golden_folder("open/qwen3_5_moe_text") + "/golden.safetensors";
    const ProbeInput input = read_probe_input(rank.context, golden, rank.decoder.config().vocab_size);
    const ProbeOutput output = probe(rank.model, rank.decoder, input, true);
    if (rank.is_first()) test::expect_all_golden(output, golden);
    export_hf_folder(rank.model, rank.decoder.config(), {}, folder / "out", 1 << 30, folder / "m");
  });
  EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "m")) << "of a run";
  const auto memory = Memory::create();
  convert_to_hf(ModelSource(folder / "m"), folder / "converted", {}, *memory);
  EXPECT_EQ(bytes_of(folder / "converted"), bytes_of(folder / "m"));

  json narrower = config;
  narrower["text_config"]["moe_intermediate_size"] = 5;
  write_text(folder / "m/config.json", narrower.dump());
  EXPECT_THAT(test::message_of<IoError>([&] { ModelSource(folder / "m").weights(); }),
              HasSubstr("gate_up_proj has shape [4, 12, 24], config.json asks for"));
}

TEST(Multimodal, layers_that_predict_later_tokens_are_carried_with_the_keys_that_count_them) {
  const auto memory = Memory::create();
  for (const auto& [golden, key, more] :
       {std::tuple("deepseek_v3", "num_nextn_predict_layers", "model.layers.2.eh_proj.weight"),
        std::tuple("glm4_moe", "num_nextn_predict_layers", "model.layers.2.enorm.weight"),
        std::tuple("qwen3_next", "mtp_num_hidden_layers", "mtp.layers.0.a.weight")}) {
    SCOPED_TRACE(golden);
    const TempFolder folder;
    json config = golden_config(golden);
    config[key] = 1;
    write_folder(folder / "m", golden, {}, {more}, config);
    convert_to_hf(ModelSource(folder / "m"), folder / "out", {}, *memory);
    EXPECT_EQ(bytes_of(folder / "out"), bytes_of(folder / "m"));
    EXPECT_EQ(json::parse(test::read_bytes(folder / "out/config.json"))[key], 1);
  }
}

}  // namespace
}  // namespace nought::multimodal_test
