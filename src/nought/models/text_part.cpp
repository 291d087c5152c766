#include "nought/models/text_part.h"

#include <algorithm>
#include <charconv>

#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr const char* kTextConfig = "text_config";
constexpr std::string_view kMultimodal[] = {"gemma3",  "llama4",      "mistral3", "qwen2_5_vl",
                                            "qwen3_5", "qwen3_5_moe", "qwen3_vl"};
/// Text models that are those of a family, but for positions of images.
constexpr std::pair<std::string_view, const char*> kTextTypes[] = {
    {"qwen2_5_vl", "qwen2"}, {"qwen2_5_vl_text", "qwen2"}, {"qwen3_vl_text", "qwen3"}};
/// Keys of layers that predict later tokens, which come behind those of the model.
constexpr const char* kLaterKeys[] = {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers",
                                      "mtp_use_dedicated_embeddings"};
/// What the names of tensors that are carried begin with, perhaps behind "model.".
constexpr std::string_view kCarried[] = {
    "vision_tower.", "multi_modal_projector.", "vision_model.",    "visual.",         "mtp.",
    "mtp_block.",    "mtp_emb_norm.",          "mtp_hidden_norm.", "mtp_linear_proj."};
constexpr std::string_view kModel = "model.";

/// Positions of text are the same along all axes of an image's.
void drop_axes(Json& json) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_object()) continue;
    for (const char* axes : {"mrope_section", "mrope_interleaved"}) found->erase(axes);
    for (const char* type : {"type", "rope_type"})
      if (found->value(type, Json()) == "mrope") (*found)[type] = "default";
  }
}

}  // namespace

std::optional<Json> text_part(const Json& json, const std::string& source) {
  if (!json.is_object()) return std::nullopt;
  const Json type = json.value("model_type", Json());
  if (!type.is_string() || std::ranges::find(kMultimodal, type.get<std::string>()) == std::end(kMultimodal))
    return std::nullopt;
  require<ConfigError>(!json.contains("quantization_config"),
                       "{}: the weights of a {} folder are quantized, which is not read: use the original model",
                       source, type.get<std::string>());
  const auto nested = json.find(kTextConfig);
  Json text = nested != json.end() && nested->is_object() ? *nested : json;
  for (const char* key : {"vision_config", "architectures"}) text.erase(key);
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id"})
    if (!text.contains(key) && json.contains(key)) text[key] = json[key];
  for (const auto& [name, family] : kTextTypes)
    if (text.value("model_type", Json()) == name) text["model_type"] = family;
  for (const char* key : {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                          "vision_token_id", "use_mrope"})
    text.erase(key);
  drop_axes(text);
  return text;
}

std::span<const std::string_view> multimodal_types() { return kMultimodal; }

bool predicts_later_tokens(const Json& json) {
  return json.is_object() && std::ranges::any_of(kLaterKeys, [&](const char* key) {
           const auto found = json.find(key);
           return found != json.end() && found->is_number_integer() && *found != 0;
         });
}

OrderedJson whole_config(const ModelConfig& config, DType dtype) {
  OrderedJson own = config.to_hf_json(dtype);
  if (config.whole.json.empty()) return own;
  OrderedJson whole = OrderedJson::parse(config.whole.json);
  const bool multimodal = text_part(Json::parse(config.whole.json), "config.json").has_value();
  if (!multimodal) {
    for (const char* key : kLaterKeys)
      if (whole.contains(key)) own[key] = whole[key];
    return own;
  }
  const bool nested = whole.contains(kTextConfig) && whole[kTextConfig].is_object();
  OrderedJson& text = nested ? whole[kTextConfig] : whole;
  text["vocab_size"] = config.vocab_size;
  text["eos_token_id"] = own["eos_token_id"];
  if (whole.contains("eos_token_id")) whole["eos_token_id"] = own["eos_token_id"];
  for (OrderedJson* each : {&text, &whole})
    for (const char* key : {"dtype", "torch_dtype"})
      if (each->contains(key)) (*each)[key] = torch_name(dtype);
  return whole;
}

std::vector<std::string> multimodal_names(const std::string& name) {
  if (!name.starts_with(kModel)) return {"language_model." + name};  // the head
  return {"model.language_model." + name.substr(kModel.size()), "language_model." + name};
}

bool is_carried_name(std::string_view name, int64_t num_layers) {
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  if (std::ranges::any_of(kCarried, [&](std::string_view each) { return name.starts_with(each); })) return true;
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return false;
  name.remove_prefix(kLayers.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && *end == '.' && layer >= num_layers;
}

}  // namespace nought
