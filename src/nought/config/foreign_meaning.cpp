#include "nought/config/foreign_meaning.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/chat/chat_format.h"
#include "nought/config/foreign_data.h"
#include "nought/config/foreign_names.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFp32Masters = "masters and optimizer states are fp32; deepspeed.bf16 says otherwise";
constexpr const char* kZeroStage = "deepspeed.zero_optimization.stage";

/// The words of a text, or the texts of a list.
std::vector<std::string> words_of(const Json& value) {
  std::vector<std::string> words;
  if (value.is_array()) {
    for (const Json& each : value)
      if (each.is_string()) words.push_back(each.get<std::string>());
    return words;
  }
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  for (size_t begin = 0; (begin = text.find_first_not_of(" ,", begin)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" ,", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

class SettingReader {
 public:
  SettingReader(const ForeignSettings& settings, const ForeignSetting& setting)
      : settings_(settings), setting_(setting), value_(setting.value) {}

  ForeignMeaning read() {
    const auto& handlers = all_handlers();
    if (setting_.computed) {
      missing("the shell would have to run something to know it");
    } else if (const auto handler = handlers.find(setting_.key); handler != handlers.end()) {
      (this->*handler->second)();
    } else {
      plain();
    }
    return std::move(result_);
  }

 private:
  void say(std::string path, Json value) { result_.says.emplace_back(std::move(path), std::move(value)); }
  void missing(std::string why) { result_.missing.push_back(std::move(why)); }
  void not_needed(std::string why) { result_.not_needed.push_back(std::move(why)); }

  /// A key whose value means the same here.
  void plain() {
    const bool nothing = asks_nothing(value_);
    if (const auto why = why_not_needed(setting_.key)) {
      if (!nothing) not_needed(std::string(*why));
      return;
    }
    std::string path = path_of_foreign_key(settings_.format, setting_.key);
    if (path.empty() && setting_.key.starts_with("no_") && value_ == true) {  // argparse's false
      path = path_of_foreign_key(settings_.format, setting_.key.substr(3));
      if (!path.empty()) return say(path, false);
    }
    const auto why = why_missing(setting_.key);
    if (why || path.empty()) {
      if (!why || !nothing) missing(why ? std::string(*why) : "there is no such key here");
    } else if (!nothing || value_.is_number() || path.starts_with("training.")) {
      say(path, value_);
    }
  }

  void files() {
    const std::string& key = setting_.key;
    const bool validates = key == "test_datasets" || key.starts_with("eval") || key.starts_with("validation");
    ForeignFiles found = find_foreign_files(settings_, setting_);
    result_.missing = std::move(found.missing);
    if (!found.files.empty()) say(validates ? "data.validation_files" : "data.files", found.files);
  }
  void chat() {
    const std::string name = text_of(value_);
    std::error_code ignored;
    if (enum_named<ChatFormat>(name) || fs::is_regular_file(name, ignored)) {
      say("data.chat_template", name);
    } else if (!asks_nothing(value_)) {
      missing("the template of the model's folder is taken; data.chat_template names another");
    }
  }
  void packing() {
    const bool packs = value_ == true;
    // axolotl's samples keep documents apart.
    if (!packs || settings_.format == ForeignFormat::axolotl) say("data.separate_documents", true);
    if (packs) return not_needed("documents always stand one behind the other");
    missing("samples are packed; data.separate_documents keeps documents in them apart");
  }
  void validation() {
    if (value_.is_number() && value_.get<double>() >= 1) return missing("data.validation_fraction is a share below 1");
    say("data.validation_fraction", value_);
  }

  void adapter() {
    const std::string kind = text_of(value_);
    result_.adapts = kind == "lora" || kind == "qlora";
    if (kind == "qlora") quantize();
    if (!*result_.adapts && !kind.empty() && kind != "full" && kind != "none")
      missing("adapters are lora and qlora; training.freeze trains parts of a model");
  }
  void use_adapter() {
    result_.adapts = !asks_nothing(value_);
    if (*result_.adapts && setting_.key == "lora_dim") plain();
  }
  void targets() {
    if (asks_nothing(value_)) return;
    const std::vector<std::string> names = words_of(value_);
    const bool all = value_ == true || (names.size() == 1 && (names[0] == "all" || names[0] == "all-linear"));
    say("adapter.target_modules", all ? Json("all-linear") : Json(names));
  }
  void adapter_folder() {
    if (asks_nothing(value_)) return;
    result_.adapts = true;
    say("adapter", value_);
  }
  void bits() {
    if (asks_nothing(value_)) return;
    if (value_ == 4 || value_ == true) return quantize();
    missing("a frozen model is kept in 4 bits (nf4), or as its folder is");
  }
  void quantize() {
    say("quantization_config.load_in_4bit", true);
    say("quantization_config.bnb_4bit_quant_type", "nf4");
    const bool twice = settings_.format == ForeignFormat::axolotl || settings_.format == ForeignFormat::llama_factory;
    if (twice) say("quantization_config.bnb_4bit_use_double_quant", true);
  }

  void method() {
    const std::string name = lower_case(text_of(value_));
    if (name.empty() || name == "sft" || name == "pt") return;
    const bool is_loss = name == "ipo" || name == "simpo";
    say("alignment.method", name == "ipo" ? "dpo" : name == "simpo" ? "cpo" : name == "rm" ? "reward" : name);
    if (is_loss) say("alignment.loss_type", name);
  }
  void preference() {
    const std::string name = text_of(value_);
    if (name == "orpo" || name == "simpo") say("alignment.method", name == "orpo" ? "orpo" : "cpo");
    if (name != "sigmoid" && name != "orpo") say("alignment.loss_type", value_);
  }

  void deepspeed() {
    const std::string file = text_of(value_);
    if (value_.is_object()) return say("deepspeed", value_);
    if (file.empty()) return;
    if (const std::string found = found_file(settings_, file); !found.empty()) return say("deepspeed", found);
    const std::string name = lower_case(fs::path(file).filename().string());
    for (const char* before : {"zero", "z", "stage", "zero_", "stage_", "zero-", "stage-"})
      for (const int stage : {1, 2, 3})
        if (result_.says.empty() && name.find(fmt::format("{}{}", before, stage)) != std::string::npos)
          say(kZeroStage, stage);
    missing(result_.says.empty() ? "the file is not here" : "the file is not here; its name says the stage");
  }
  void stage() { say(kZeroStage, value_); }

  void fsdp() { shard_by(words_of(value_)); }
  void shard_by(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      const bool full = word == "full_shard" || word == "hybrid_shard";
      if (full || word == "shard_grad_op") say(kZeroStage, full ? 3 : 2);
      if (word == "offload") missing("write deepspeed.zero_optimization.offload_param and offload_optimizer");
    }
  }
  /// What FSDP is told beyond its kind of sharding; some files say that here alone.
  void fsdp_detail() {
    if (asks_nothing(value_)) return;
    if (value_.is_object())
      for (const char* key : {"sharding_strategy", "fsdp_sharding_strategy"})
        if (const std::string kind = text_of(value_.value(key, Json())); !kind.empty()) shard_by({lower_case(kind)});
    if (value_.is_object() && value_.value("fsdp_version", Json()) == 2) shard_by({"full_shard"});
    for (const char* key : {"offload_params", "fsdp_offload_params"})
      if (value_.is_object() && value_.value(key, Json()) == true) shard_by({"offload"});
    not_needed("a block, the embedding and the head each are gathered at once");
  }

  void recompute() {
    if (!value_.is_string()) return plain();
    say("training.gradient_checkpointing", true);
    missing("training.offload_inputs says where the inputs of blocks wait");
  }
  void precision() {
    const std::string value = lower_case(text_of(value_)), &key = setting_.key;
    if (const bool pure = (key == "pure_bf16" && value_ == true) || (key == "bf16" && value == "full"); pure) {
      say("training.bf16", true);
      missing(kFp32Masters);
    } else if (key != "pure_bf16" && (value == "bf16" || value == "fp16")) {
      say("training." + value, true);
    } else if (key == "bf16" || key == "dtype") {
      plain();
    }
  }
  void optimizer() {
    const std::string name = lower_case(text_of(value_));
    say("training.optim", name == "adam" || name == "adamw" ? Json("adamw_torch") : value_);
  }
  void least_rate() {
    if (!asks_nothing(value_)) say("training.lr_scheduler_kwargs.min_lr_rate", value_);
  }
  void per_epoch() {
    if (asks_nothing(value_)) return;
    say(setting_.key.starts_with("eval") ? "training.eval_strategy" : "training.save_strategy", "epoch");
    if (value_ != 1) missing("once in each pass is the most; eval_steps and save_steps count updates");
  }
  void trainable() {
    if (asks_nothing(value_)) return;
    say("training.freeze", Json::array({"."}));
    say("training.trainable", value_);
  }
  void batch() {
    if (settings_.format != ForeignFormat::axolotl) return plain();
    missing("the batch is per_device_train_batch_size x gradient_accumulation_steps x ranks");
  }
  /// Files that want no limit say centuries.
  void timeout() {
    constexpr int64_t kYear = 31536000;
    if (!value_.is_number() || value_ <= kYear) return plain();
    say("training.ddp_timeout", kYear);
    missing("a year is the most");
  }
  void reports() {
    std::vector<std::string> to = words_of(value_);
    if (std::erase(to, "tensorboard") > 0) say("training.report_to", "tensorboard");
    std::erase(to, "none");
    if (!to.empty()) not_needed(std::string(*why_not_needed("wandb_")));
  }

  using Handler = void (SettingReader::*)();
  static const std::map<std::string, Handler, std::less<>>& all_handlers() {
    static const std::map<std::string, Handler, std::less<>> all{
        {"datasets", &SettingReader::files},
        {"test_datasets", &SettingReader::files},
        {"pretraining_dataset", &SettingReader::files},
        {"dataset", &SettingReader::files},
        {"eval_dataset", &SettingReader::files},
        {"dataset_name", &SettingReader::files},
        {"dataset_mixer", &SettingReader::files},
        {"data_path", &SettingReader::files},
        {"train_file", &SettingReader::files},
        {"train_data", &SettingReader::files},
        {"validation_file", &SettingReader::files},
        {"adapter", &SettingReader::adapter},
        {"finetuning_type", &SettingReader::adapter},
        {"use_peft", &SettingReader::use_adapter},
        {"lora_dim", &SettingReader::use_adapter},
        {"lora_target_linear", &SettingReader::targets},
        {"lora_target", &SettingReader::targets},
        {"lora_target_modules", &SettingReader::targets},
        {"lora_model_dir", &SettingReader::adapter_folder},
        {"adapter_name_or_path", &SettingReader::adapter_folder},
        {"quantization_bit", &SettingReader::bits},
        {"load_in_4bit", &SettingReader::bits},
        {"chat_template", &SettingReader::chat},
        {"template", &SettingReader::chat},
        {"sample_packing", &SettingReader::packing},
        {"packing", &SettingReader::packing},
        {"rl", &SettingReader::method},
        {"stage", &SettingReader::method},
        {"pref_loss", &SettingReader::preference},
        {"deepspeed", &SettingReader::deepspeed},
        {"deepspeed_config", &SettingReader::deepspeed},
        {"deepspeed_config_file", &SettingReader::deepspeed},
        {"config_file", &SettingReader::deepspeed},
        {"zero_stage", &SettingReader::stage},
        {"fsdp", &SettingReader::fsdp},
        {"fsdp_config", &SettingReader::fsdp_detail},
        {"fsdp_version", &SettingReader::fsdp_detail},
        {"gradient_checkpointing", &SettingReader::recompute},
        {"bf16", &SettingReader::precision},
        {"dtype", &SettingReader::precision},
        {"precision", &SettingReader::precision},
        {"mixed_precision", &SettingReader::precision},
        {"pure_bf16", &SettingReader::precision},
        {"optimizer", &SettingReader::optimizer},
        {"cosine_min_lr_ratio", &SettingReader::least_rate},
        {"evals_per_epoch", &SettingReader::per_epoch},
        {"saves_per_epoch", &SettingReader::per_epoch},
        {"unfrozen_parameters", &SettingReader::trainable},
        {"val_set_size", &SettingReader::validation},
        {"val_size", &SettingReader::validation},
        {"batch_size", &SettingReader::batch},
        {"report_to", &SettingReader::reports},
        {"ddp_timeout", &SettingReader::timeout},
    };
    return all;
  }

  const ForeignSettings& settings_;
  const ForeignSetting& setting_;
  const Json& value_;
  ForeignMeaning result_;
};

}  // namespace

bool asks_nothing(const Json& value) { return value == false || value == "" || value == 0 || value.empty(); }

ForeignMeaning meaning_of(const ForeignSettings& settings, const ForeignSetting& setting) {
  return SettingReader(settings, setting).read();
}

}  // namespace nought
