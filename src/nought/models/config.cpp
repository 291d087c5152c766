#include "nought/models/config.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/models/classifier.h"
#include "nought/models/config_families.h"
#include "nought/models/config_reader.h"
#include "nought/models/decoder.h"
#include "nought/models/gguf_config.h"
#include "nought/models/quantization_config.h"
#include "nought/models/text_part.h"
#include "nought/models/weight_files.h"

namespace nought {

namespace {

/// `quantization`: as ModelConfig has it.
bool reads_quantization(const std::string& quantization) {
  return std::ranges::any_of(read_quant_methods(),
                             [&](const std::string& each) { return quantization == Json(each).dump(); });
}

/// A folder may have a head for another task: the decoder below it is what is read.
void note_other_heads(const Json& json, ModelConfig& config) {
  const std::string name = one_line(architecture_of(json));
  const size_t task = name.rfind("For");
  if (task == std::string::npos || name.ends_with("ForCausalLM") || config.classifier) return;
  if (!config.predicts_tokens)
    return config.notes.push_back(
        fmt::format("{}: its head for {} is dropped; the model gives hidden states, as {} does", name,
                    name.substr(task + 3), family_named("architectures", config.family).architecture));
  config.notes.push_back(fmt::format("{}: its head for {} is dropped; the model predicts tokens, as {} does", name,
                                     name.substr(task + 3), family_named("architectures", config.family).architecture));
}

constexpr const char* kTied = "tie_word_embeddings";

/// A multimodal folder may say that its head is tied, and its text part that it is not: then its files decide.
bool holds_head(const WeightFiles& files) {
  constexpr const char* kHead = "lm_head.weight";
  return files.contains(kHead) ||
         std::ranges::any_of(multimodal_names(kHead), [&](const std::string& name) { return files.contains(name); });
}

// Keys that every Hugging Face config may carry and that do not change what a decoder computes.
void read_common(ConfigReader& reader, ModelConfig& config) {
  reader.ignore({"model_type",
                 "architectures",
                 "dtype",
                 "torch_dtype",
                 "transformers_version",
                 "use_cache",
                 "_name_or_path",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "_commit_hash",
                 "output_attentions",
                 "output_hidden_states",
                 "return_dict",
                 "return_dict_in_generate",
                 "torchscript",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "task_specific_params",
                 "finetuning_task",
                 "tokenizer_class",
                 "prefix",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "is_decoder",
                 "chunk_size_feed_forward",
                 "pruned_heads",
                 "cls_token_id",
                 "unk_token_id",
                 "cross_attention_hidden_size",
                 "tie_encoder_decoder",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "gradient_checkpointing",
                 "max_length",
                 "min_length",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "output_scores",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "exponential_decay_length_penalty",
                 "num_nextn_predict_layers",
                 "num_mtp_layers",
                 "mtp_num_hidden_layers",
                 "mtp_use_dedicated_embeddings"});
  reader.only("is_encoder_decoder", false, "there is no encoder");
  reader.only("add_cross_attention", false, "there is no encoder to attend to");
  if (const Json* quantization = reader.value("quantization_config")) {
    const bool named = quantization->is_object() && quantization->contains("quant_method");
    config.quantization = named ? quantization->at("quant_method").dump() : "unnamed";
    config.notes.push_back(fmt::format(
        "quantization_config ({}): the weights are decoded when they are read, or as products read them, and "
        "the numbers are those of the dense model{}",
        config.quantization, reads_quantization(config.quantization) ? "" : "; these cannot be loaded"));
  }
  if (reader.value("auto_map")) {
    config.notes.push_back(
        fmt::format("auto_map names Python code that is not run: the model computes what {} does", config.family));
  }
  const auto bos = reader.ids("bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = reader.ids("eos_token_id");
}

}  // namespace

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail<ConfigError>("weights cannot be saved as {}", name_of(dtype));
  }
}

namespace {

std::vector<std::string> names_of(std::span<const Family> families) {
  std::vector<std::string> names;
  for (const Family& family : families) names.emplace_back(family.name);
  return names;
}

}  // namespace

const std::vector<std::string>& ModelConfig::families() {
  static const std::vector<std::string> names = names_of(all_families());
  return names;
}

const std::vector<std::string>& ModelConfig::encoders() {
  static const std::vector<std::string> names = names_of(encoder_families());
  return names;
}

ModelConfig ModelConfig::from_json(const Json& whole, const std::string& source) try {
  const std::optional<Json> text = text_part(whole, source);
  const Json& json = text ? *text : whole;
  ConfigReader reader(json, source);
  ModelConfig config;
  if (text || predicts_later_tokens(whole)) config.whole.json = whole.dump();
  const auto type = reader.text("model_type");
  require<ConfigError>(type.has_value(), "{}: has no model_type, known are {}", source,
                       fmt::join(known_families(), ", "));
  const Family& family = family_named(source, *type);
  config.family = family.name;
  family.read(reader, config);
  read_common(reader, config);
  read_classifier(json, source, config);
  note_other_heads(json, config);
  if (text)
    config.notes.push_back(
        fmt::format("{}: the text part is read, as {}; exports carry the rest of the folder as it is",
                    one_line(whole["model_type"].get<std::string>()), config.family));
  for (const std::string& key : reader.unknown_keys()) {
    config.notes.push_back(fmt::format("{} is not a key of {}: not used", key, config.family));
  }
  return config;
} catch (const ConfigError& error) {  // which may quote the file
  throw ConfigError(one_line(error.what()));
}

ModelConfig ModelConfig::from_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (is_gguf_path(folder) && std::filesystem::is_regular_file(folder, ignored)) return gguf_config(GgufFile(folder));
  const std::filesystem::path file = folder / "config.json";
  const std::optional<std::string> text = bytes_if_there(file);
  require<IoError>(text.has_value(), "{}: there is no such file; a model folder holds a config.json", file.string());
  const Json json = Json::parse(*text, nullptr, false);
  require<IoError>(!json.is_discarded(), "{}: not valid JSON", file.string());
  ModelConfig config = from_json(json, file.string());
  if (!config.tie_word_embeddings && !config.whole.json.empty() && json.value(kTied, Json()) == true)
    config.tie_word_embeddings = holds_weights(folder) && !holds_head(WeightFiles(folder));
  return config;
}

void ModelConfig::require_loadable(const std::string& source) const {
  require<ConfigError>(quantization.empty() || reads_quantization(quantization),
                       "{}: quantization_config ({}): weights of this method are not read; read are {}: use the "
                       "original model",
                       source, quantization, fmt::join(read_quant_methods(), ", "));
}

int64_t ModelConfig::parameter_count() const { return Decoder(*this).parameter_count(); }

int64_t ModelConfig::sliding_window() const {
  const auto widest = std::max_element(sliding_windows.begin(), sliding_windows.end());
  return widest == sliding_windows.end() ? 0 : *widest;
}

OrderedJson ModelConfig::to_hf_json(DType dtype) const {
  const Family& written = family_named("to_hf_json", family);
  OrderedJson json;
  json["architectures"] = OrderedJson::array({written.architecture});
  json["model_type"] = family;
  json["vocab_size"] = vocab_size;
  written.write(*this, json);
  json["initializer_range"] = initializer_range;
  json["tie_word_embeddings"] = tie_word_embeddings;
  json["bos_token_id"] = bos_token_id ? OrderedJson(*bos_token_id) : nullptr;
  json["eos_token_id"] = nullptr;
  if (eos_token_ids.size() == 1) json["eos_token_id"] = eos_token_ids[0];
  if (eos_token_ids.size() > 1) json["eos_token_id"] = eos_token_ids;
  json["torch_dtype"] = torch_name(dtype);  // transformers 4 and 5 both read this older key
  if (causal) json["use_cache"] = true;
  if (classifier) write_classifier(*this, written.architecture, json);
  return json;
}

}  // namespace nought
