#include "nought/config/foreign_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/config/foreign_meaning.h"
#include "nought/config/foreign_names.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/config/training_rules.h"

namespace nought {

namespace {

/// A value in a message, in one short line.
std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  const std::string line = one_line(value.is_string() ? value.get<std::string>() : value.dump());
  return line.size() <= kLongest ? line : line.substr(0, kLongest - 3) + "...";
}

/// The name of a method in the name of a script or a subcommand: "scripts/dpo.py", "trl dpo".
std::string method_in(const std::string& script) {
  const std::string name = lower_case(std::filesystem::path(script).filename().string());
  for (const char* method : {"grpo", "rloo", "ppo", "gkd", "dpo", "kto", "orpo", "cpo", "reward"})
    if (name.find(method) != std::string::npos) return method;
  return "";
}

/// Whether a key is one of those that are known and not implemented.
bool has_rule(const std::string& path) {
  const auto rules = training_rules();
  return std::any_of(rules.begin(), rules.end(),
                     [&](const KeyRule& rule) { return "training." + std::string(rule.path) == path; });
}

class RunTranslation {
 public:
  RunTranslation(const ForeignSettings& settings, const ForeignChoices& choices)
      : settings_(settings), choices_(choices) {}

  TranslatedRun run() {
    take_choices();
    if (const std::string method = method_in(settings_.script); !method.empty())
      say("alignment.method", method, settings_.script);
    for (const ForeignSetting& each : settings_.of_launcher) translate_launcher(each);
    for (const ForeignSetting& each : settings_.settings) translate(each);
    result_.ranks = choices_.ranks > 0 ? choices_.ranks : std::max<int64_t>(1, processes_ * hosts_);
    finish_adapter();
    add_defaults();
    finish_validation();
    finish_schedule();
    finish_alignment();
    leave_out_defaults();
    check_whole();
    return std::move(result_);
  }

 private:
  void take_choices() {
    if (!choices_.model.empty()) say("model", choices_.model, "");
    if (!choices_.data.empty()) say("data.files", choices_.data, "");
    if (!choices_.output_dir.empty()) say("training.output_dir", choices_.output_dir, "");
    if (!choices_.method.empty()) say("alignment.method", choices_.method, "");
    if (choices_.seq_length > 0) say("data.seq_length", choices_.seq_length, "");
    for (const TakenKey& key : result_.taken) chosen_.insert(key.path);
  }

  /// The last one that says a path has it.
  void say(const std::string& path, Json value, const std::string& from) {
    if (chosen_.contains(path)) return;
    std::erase_if(result_.taken, [&](const TakenKey& each) { return each.path == path; });
    result_.taken.push_back({path, std::move(value), from});
  }
  bool has(const std::string& path) const { return result_.find(path) != nullptr; }
  void remove(const std::string& prefix) {
    std::erase_if(result_.taken, [&](const TakenKey& each) { return each.path.starts_with(prefix); });
  }

  std::string origin(const ForeignSetting& setting, const std::string& path) const {
    const std::string own = settings_.file + ":";
    const bool here = setting.place.starts_with(own);
    const std::string where = here ? "line " + setting.place.substr(own.size()) : setting.place;
    return path.substr(path.rfind('.') + 1) == setting.key ? where : fmt::format("{}, {}", setting.key, where);
  }
  /// A line about a setting; what has a place of its own already stays as it is.
  std::string line(const ForeignSetting& setting, const std::string& why) const {
    if (why.starts_with(settings_.file + ":")) return why;
    return fmt::format("{}: {} = {}: {}", setting.place, setting.key, shown(setting.value), why);
  }

  void translate(const ForeignSetting& setting) {
    const ForeignMeaning meaning = meaning_of(settings_, setting);
    const bool settled = std::any_of(meaning.says.begin(), meaning.says.end(),
                                     [&](const auto& each) { return chosen_.contains(each.first); });
    const bool is_data = setting.key != "eval_dataset" && names_data(setting.key) && chosen_.contains("data.files");
    if (settled || is_data) return;
    if (meaning.adapts) adapts_ = meaning.adapts;
    for (const auto& [path, value] : meaning.says) take(setting, path, value);
    for (const std::string& why : meaning.missing) result_.missing.push_back(line(setting, why));
    for (const std::string& why : meaning.not_needed) result_.not_needed.push_back(line(setting, why));
  }
  static bool names_data(const std::string& key) {
    return key.find("dataset") != std::string::npos || key == "data_path" || key.starts_with("train_");
  }

  /// Takes a value if the reader of RUN.json does, else tells what it says.
  void take(const ForeignSetting& setting, const std::string& path, const Json& value) {
    Json json = Json::object();
    apply_override(json, {path, value});
    try {
      const RunConfig config = make_run_config(json, setting.place);
      if (config.warnings.empty() && has_rule(path)) return;  // it asks for what is so anyway
      if (config.warnings.empty()) return say(path, value, origin(setting, path));
      const std::string& warning = config.warnings[0];
      constexpr std::string_view kWhy = "has no effect: ";
      const size_t why = warning.rfind(kWhy);
      result_.not_needed.push_back(
          line(setting, why == std::string::npos ? warning : warning.substr(why + kWhy.size())));
    } catch (const Error& error) {
      // A name that looks like a number, on a command line.
      if (!setting.text.empty() && !value.is_string()) return take(setting, path, setting.text);
      const std::string what = error.what();
      const size_t begin = what.starts_with(setting.place) ? what.find(": ", setting.place.size() + 2) : what.npos;
      result_.missing.push_back(line(setting, begin == what.npos ? what : what.substr(begin + 2)));
    }
  }

  void translate_launcher(const ForeignSetting& setting) {
    const std::string& key = setting.key;
    const bool counts = setting.value.is_number_integer() && setting.value > 0;
    if (counts && (key == "num_processes" || key == "num_gpus" || key == "nproc_per_node"))
      processes_ = setting.value.get<int64_t>();
    if (counts && (key == "num_nodes" || key == "nnodes")) hosts_ = setting.value.get<int64_t>();
    if (!why_not_needed(key)) translate(setting);
  }

  /// Sizes of an adapter say nothing where none is trained, or where one goes on; with one the model is frozen.
  void finish_adapter() {
    if (!adapts_) adapts_ = settings_.format == ForeignFormat::llama_factory || has("quantization_config.load_in_4bit");
    if (!*adapts_ || has("adapter")) remove("adapter.");
    const TakenKey* trained = result_.find("training.trainable");
    if (!*adapts_ || trained == nullptr) return;
    result_.missing.push_back(fmt::format("{}: {} ({}): with an adapter the whole model is frozen", settings_.file,
                                          shown(trained->value), trained->from));
    remove("training.trainable");
    remove("training.freeze");
  }

  void by_default(const std::string& path, const Json& value) {
    if (!has(path))
      say(path, value,
          fmt::format("{}'s default", describe(settings_.format).substr(std::string_view("a config of ").size())));
  }
  /// What a program does that nobody told otherwise, where it is something else here.
  void add_defaults() {
    if (settings_.format == ForeignFormat::axolotl) {
      by_default("training.per_device_train_batch_size", 1);
      by_default("training.num_train_epochs", 1);
      by_default("training.lr_scheduler_type", "cosine");
      by_default("data.seq_length", 512);
    }
    if (settings_.format != ForeignFormat::llama_factory) return;
    by_default("data.seq_length", 2048);
    if (!*adapts_ || has("adapter")) return;
    by_default("adapter.r", 8);
    const Json& rank = result_.find("adapter.r")->value;
    by_default("adapter.lora_alpha", rank.is_number_integer() ? 2 * rank.get<int64_t>() : 16);
    by_default("adapter.target_modules", "all-linear");
  }

  /// Programs validate with a part of a data set of the hub; here it is kept aside.
  void finish_validation() {
    const TakenKey* strategy = result_.find("training.eval_strategy");
    const bool has_data = has("data.validation_files") || has("data.validation_fraction");
    if (strategy != nullptr && strategy->value != "no" && !has_data)
      say("data.validation_fraction", 0.05, "eval_strategy wants data, which is kept aside");
  }

  void finish_schedule() {
    const TakenKey* least = result_.find("training.lr_scheduler_kwargs.min_lr_rate");
    const TakenKey* type = result_.find("training.lr_scheduler_type");
    if (least != nullptr && type != nullptr && type->value == "cosine")
      say("training.lr_scheduler_type", "cosine_with_min_lr", std::string(least->from));
  }

  /// Keys of preferences and rewards say nothing without a method; answers are apart from each other with one.
  void finish_alignment() {
    if (has("alignment.method")) return remove("data.separate_documents");
    for (const TakenKey& each : result_.taken)
      if (each.path.starts_with("alignment."))
        result_.missing.push_back(fmt::format(
            "{}: {} = {} ({}): the file does not say the method: call nought init dpo --from, or kto, grpo, ...",
            settings_.file, each.path, shown(each.value), each.from));
    remove("alignment.");
  }

  /// to_dict() says everything, also what holds anyway.
  void leave_out_defaults() {
    if (settings_.format != ForeignFormat::transformers) return;
    const std::vector<KeyInfo> keys = list_keys<RunConfig>();
    std::erase_if(result_.taken, [&](const TakenKey& taken) {
      std::string path = taken.path;
      for (const auto& [alias, name] : training_aliases())
        if (path == fmt::format("training.{}", alias)) path = fmt::format("training.{}", name);
      return std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& key) {
        if (key.path != path || !path.starts_with("training.")) return false;
        return key.fallback.empty() ? taken.value == false : Json::parse(key.fallback, nullptr, false) == taken.value;
      });
    });
  }

  /// Whether all of it together can be resolved; what is still to be given is made up.
  void check_whole() {
    Json json = Json::object();
    for (const TakenKey& each : result_.taken) apply_override(json, {each.path, each.value});
    if (!has("data.files")) apply_override(json, {"data.files", Json::array({"a.txt"})});
    if (!has("model")) json["model"] = "a model";
    try {
      resolve(make_run_config(json, "the new file"), static_cast<int>(result_.ranks));
    } catch (const Error& error) {
      result_.mistake = error.what();
    }
  }

  const ForeignSettings& settings_;
  const ForeignChoices& choices_;
  std::set<std::string> chosen_;  // paths that flags have settled
  TranslatedRun result_;
  std::optional<bool> adapts_;
  int64_t processes_ = 1, hosts_ = 1;
};

}  // namespace

const TakenKey* TranslatedRun::find(const std::string& path) const {
  const auto found = std::find_if(taken.begin(), taken.end(), [&](const TakenKey& each) { return each.path == path; });
  return found == taken.end() ? nullptr : &*found;
}

TranslatedRun translate_run(const ForeignSettings& settings, const ForeignChoices& choices) {
  return RunTranslation(settings, choices).run();
}

}  // namespace nought
