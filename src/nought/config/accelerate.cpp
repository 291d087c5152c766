#include "nought/config/accelerate.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/config/key_rules.h"

namespace nought {

namespace {

using enum KeyStatus;

constexpr std::string_view kMpirun = "mpirun starts the ranks: give --ranks or --hostfile";
constexpr std::string_view kOtherWays = "only distributed_type DEEPSPEED, MULTI_CPU, MULTI_GPU and NO are available";
constexpr std::string_view kCpuOnly = "there is no such device";

/// The keys that say nothing of the training itself. What is gated is passed over in silence: accelerate writes it into
/// every file.
constexpr auto kTopRules = std::to_array<KeyRule>({
    {"compute_environment", "\"LOCAL_MACHINE\"", refused, "SageMaker is not available"},
    {"machine_rank", "0", no_effect, kMpirun},
    {"num_machines", "1", no_effect, kMpirun},
    {"main_process_ip", "null", no_effect, kMpirun},
    {"main_process_port", "null", no_effect, kMpirun},
    {"rdzv_backend", "null", gated, ""},
    {"same_network", "null", gated, ""},
    {"main_training_function", "null", gated, ""},
    {"debug", "false", gated, ""},
    {"use_cpu", "false", gated, ""},
    {"enable_cpu_affinity", "false", gated, ""},
    {"gpu_ids", "null | \"all\"", no_effect, kMpirun},
    {"mpirun_config", "null", gated, ""},
    {"downcast_bf16", "null", gated, ""},
    {"dynamo_backend", "null | \"NO\" | false", no_effect, "every kernel is compiled already"},
    {"dynamo_config", "null | {}", no_effect, "every kernel is compiled already"},
    {"ipex_config", "null", gated, ""},
    {"fp16", "false", refused, "write mixed_precision: fp16"},
    {"fp8_config", "null | {}", refused, "write training.fp8"},
    {"fsdp_config", "null | {}", refused, kOtherWays},
    {"megatron_lm_config", "null | {}", refused, kOtherWays},
    {"tp_config", "null | {}", refused, kOtherWays},
    {"tpu_name", "null", no_effect, kCpuOnly},
    {"tpu_zone", "null", no_effect, kCpuOnly},
    {"tpu_use_cluster", "false", no_effect, kCpuOnly},
    {"tpu_use_sudo", "false", no_effect, kCpuOnly},
    {"tpu_vm", "null | []", no_effect, kCpuOnly},
    {"tpu_env", "null | []", no_effect, kCpuOnly},
    {"command_file", "null", no_effect, kMpirun},
    {"commands", "null", no_effect, kMpirun},
});

/// Keys of parallelism_config, without the section's name that accelerate puts in front, which say how ranks exchange
/// what cp_size and sp_size share out.
constexpr auto kParallelismRules = std::to_array<KeyRule>({
    {"cp_backend", "null", gated, ""},
    {"sp_backend", "null", gated, ""},
    {"sp_seq_length", "null", gated, ""},
    {"sp_seq_length_is_variable", "null", gated, ""},
    {"sp_attn_implementation", "null", gated, ""},
});
constexpr std::array kParallelismSizes{"dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size"};
constexpr std::string_view kParallelism = "parallelism_config";

/// Keys of deepspeed_config that name how ranks are started, or what holds here anyway.
constexpr auto kDeepSpeedRules = std::to_array<KeyRule>({
    {"zero3_init_flag", "null", gated, ""},  // parameters are made sharded at stage 3
    {"deepspeed_moe_layer_cls_names", "null", gated, ""},
    {"deepspeed_multinode_launcher", "\"standard\"", no_effect, kMpirun},
    {"deepspeed_hostfile", "null", no_effect, kMpirun},
    {"deepspeed_exclusion_filter", "null", no_effect, kMpirun},
    {"deepspeed_inclusion_filter", "null", no_effect, kMpirun},
});

/// A key of deepspeed_config, and the key of a ds_config.json with the same meaning.
struct Renamed {
  const char *key, *deepspeed;
};
constexpr std::array kRenamed{
    Renamed{"zero_stage", "zero_optimization.stage"},
    Renamed{"gradient_accumulation_steps", "gradient_accumulation_steps"},
    Renamed{"gradient_clipping", "gradient_clipping"},
    Renamed{"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    Renamed{"offload_param_device", "zero_optimization.offload_param.device"},
    Renamed{"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    Renamed{"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    Renamed{"seq_parallel_communication_data_type", "seq_parallel_communication_data_type"},
    Renamed{"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
};

class Translation {
 public:
  Translation(const Json& json, const std::string& file, Origins& origins)
      : json_(json), file_(file), origins_(origins) {}

  AccelerateConfig run() {
    read_top();
    const Json section = json_.value("deepspeed_config", Json());
    require<ConfigError>(section.is_null() || section.is_object(), "{}: deepspeed_config: expected a map, found {}",
                         file_, describe_json(section));
    const Json path = section.is_object() ? section.value("deepspeed_config_file", Json()) : Json();
    const bool has_file = path.is_string() && path != "none";
    if (has_file) read_file(path.get<std::string>());
    if (section.is_object()) read_section(section, has_file);
    read_parallelism(json_.value(kParallelism, Json()));
    if (!mistakes_.empty()) fail<ConfigError>("{}", fmt::join(mistakes_, "; "));
    if (!has_file) {
      set("train_batch_size", "auto", "");
      set("train_micro_batch_size_per_gpu", "auto", "");
      if (is_deepspeed_ && !section.contains("zero_stage")) set("zero_optimization.stage", 2, "deepspeed_config");
    }
    use_precision();
    return std::move(result_);
  }

 private:
  void read_top() {
    for (const auto& [key, value] : json_.items()) {
      if (key == "deepspeed_config" || key == kParallelism || key == "mixed_precision" || is_note(key)) continue;
      if (key == "distributed_type") {
        check_type(value);
      } else if (key == "num_processes") {
        require<ConfigError>(value.is_number_integer(), "{}: num_processes: expected an integer, found {}", file_,
                             describe_json(value));
        result_.num_processes = value.get<int64_t>();
      } else {
        judge_key(
            key, value, kTopRules, key,
            {"deepspeed_config", std::string(kParallelism), "mixed_precision", "distributed_type", "num_processes"});
      }
    }
  }

  void check_type(const Json& value) {
    constexpr std::array kData{"NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_XPU", "MULTI_MLU"};
    is_deepspeed_ = value == "DEEPSPEED";
    const bool data = std::find(kData.begin(), kData.end(), value) != kData.end() || value == false;  // NO, unquoted
    if (!is_deepspeed_ && !data)
      mistakes_.push_back(
          fmt::format("{}: distributed_type = {} is not supported: {}", file_, value.dump(), kOtherWays));
  }

  void read_file(const std::string& path) {
    const std::filesystem::path beside = std::filesystem::path(file_).parent_path() / path;
    std::error_code ignored;
    const std::string found = std::filesystem::exists(beside, ignored) ? beside.lexically_normal().string() : path;
    result_.deepspeed = read_json_file(found);
    require<ConfigError>(result_.deepspeed.is_object(), "{}: expected an object, found {}", found,
                         describe_json(result_.deepspeed));
    origins_.add_file("deepspeed", found);
  }

  void read_section(const Json& section, bool has_file) {
    for (const auto& [key, value] : section.items()) {
      const std::string at = "deepspeed_config." + key;
      if (key == "deepspeed_config_file" || is_note(key)) continue;
      const auto renamed = std::find_if(kRenamed.begin(), kRenamed.end(),
                                        [&wanted = key](const Renamed& each) { return wanted == each.key; });
      if (renamed == kRenamed.end()) {
        std::vector<std::string> others{"deepspeed_config_file"};
        for (const Renamed& each : kRenamed) others.emplace_back(each.key);
        judge_key(key, value, kDeepSpeedRules, at, others);
      } else if (has_file) {
        mistakes_.push_back(
            fmt::format("{}: {} contradicts deepspeed_config_file, which says it: remove one of them", file_, at));
      } else if (value != "none" || !key.ends_with("nvme_path")) {
        set(renamed->deepspeed, value, at);
      }
    }
  }

  /// accelerate writes every size, also where it uses none of them: sizes that are all 1 say nothing.
  void read_parallelism(const Json& section) {
    require<ConfigError>(section.is_null() || section.is_object(), "{}: {}: expected a map, found {}", file_,
                         kParallelism, describe_json(section));
    if (section.is_null()) return;
    const std::string prefix = fmt::format("{}_", kParallelism);
    bool says = false;
    Json strategy;
    std::string strategy_place;
    for (const auto& [written, value] : section.items()) {
      const std::string key = written.starts_with(prefix) ? written.substr(prefix.size()) : written;
      if (is_note(key)) continue;
      if (key == "cp_comm_strategy") {
        strategy = value, strategy_place = fmt::format("{}: {}.{}", file_, kParallelism, written);
        continue;
      }
      if (std::find(kParallelismSizes.begin(), kParallelismSizes.end(), key) == kParallelismSizes.end()) {
        judge_key(key, value, kParallelismRules, fmt::format("{}.{}", kParallelism, written),
                  {kParallelismSizes.begin(), kParallelismSizes.end()});
        continue;
      }
      says |= !value.is_null() && value != 1;
      if (!value.is_null()) result_.parallelism[key] = value;
    }
    if (!says) result_.parallelism = Json::object();
    if (result_.parallelism.value("cp_size", Json(1)) != 1) read_strategy(strategy, strategy_place);
  }

  /// How ranks that share sequences meet each other's keys, by torch's names: "alltoall" sends them round.
  void read_strategy(const Json& strategy, const std::string& place) {
    if (strategy.is_null()) return;
    if (strategy == "allgather" || strategy == "alltoall") {
      result_.parallelism["cp_comm_type"] = strategy == "allgather" ? "all_gather" : "p2p";
    } else {
      mistakes_.push_back(fmt::format("{} = {}: expected allgather or alltoall", place, strategy.dump()));
    }
  }

  template <class Rules>
  void judge_key(const std::string& key, const Json& value, const Rules& rules, const std::string& at,
                 std::vector<std::string> others) {
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const KeyRule& each) { return each.path == key; });
    const std::string place = fmt::format("{}: {}", file_, at);
    if (rule == rules.end()) {
      for (const KeyRule& each : rules) others.emplace_back(each.path);
      mistakes_.push_back(fmt::format("{}: unknown key{}", place, did_you_mean(key, others)));
      return;
    }
    if (rule->status == gated) return;
    Judgement judgement = judge(value, *rule, place);
    if (!judgement.mistake.empty()) mistakes_.push_back(std::move(judgement.mistake));
    if (!judgement.warning.empty()) result_.warnings.push_back(std::move(judgement.warning));
  }

  /// Sets a key of the ds_config.json, which was written as `at` of the file.
  void set(const std::string& key, Json value, const std::string& at) {
    apply_override(result_.deepspeed, {key, std::move(value)});
    origins_.add_file("deepspeed." + key, at.empty() ? file_ : fmt::format("{}: {}", file_, at));
  }

  /// mixed_precision fills what the ds_config.json leaves open. "no" leaves it to training.bf16 and training.fp16, as
  /// accelerate does under the Trainer.
  void use_precision() {
    const Json wish = json_.value("mixed_precision", Json());
    const std::string known = wish.is_string() ? wish.get<std::string>() : wish == false ? "no" : "";
    require<ConfigError>(wish.is_null() || known == "no" || known == "bf16" || known == "fp16",
                         "{}: mixed_precision = {}: expected no, bf16 or fp16{}", file_, wish.dump(),
                         known == "fp8" ? "; write training.fp8" : "");
    for (const char* dtype : {"bf16", "fp16"}) {
      if (dtype == std::string_view("bf16") && result_.deepspeed.contains("bfloat16")) continue;
      Json& section = result_.deepspeed[dtype];
      if (section.is_null()) section = Json::object();
      if (!section.is_object() || section.value("enabled", Json("auto")) != "auto") continue;
      const Json value = known == dtype ? Json(true) : Json("auto");
      set(std::string(dtype) + ".enabled", value, value == true ? "mixed_precision" : "");
    }
  }

  const Json& json_;
  const std::string& file_;
  Origins& origins_;
  AccelerateConfig result_;
  bool is_deepspeed_ = false;
  std::vector<std::string> mistakes_;
};

}  // namespace

std::string accelerate_place(const std::string& file, const std::string& key) {
  return fmt::format("{}: {}.{}_{}", file, kParallelism, kParallelism, key);
}

bool is_accelerate_config(const Json& json) {
  constexpr std::array kOwn{"distributed_type", "deepspeed_config", "compute_environment"};
  return std::any_of(kOwn.begin(), kOwn.end(), [&](const char* key) { return json.is_object() && json.contains(key); });
}

AccelerateConfig read_accelerate_config(const Json& json, const std::string& file, Origins& origins) {
  return Translation(json, file, origins).run();
}

}  // namespace nought
