// Resolver: makes one value of a key of ds_config.json and the training argument with the same meaning.
//
// The rule is that of transformers. "auto" takes the training argument. If both are given and differ, that is an error
// which names both. If only one is given, it counts.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/core.h>

#include "nought/config/ds_config.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"

namespace nought {

/// A value for the plan, and where it comes from.
template <class T>
struct Candidate {
  T value{};
  bool given = false;  // whether the user gave it; if not, it is a default
  std::string place;   // "RUN.json: training.seed", for errors
  std::string reason;  // "training.seed", for nought check
};

/// The size nearest to `wanted` that divides `total`, the smaller one of two.
inline int64_t nearest_divisor(int64_t total, int64_t wanted) {
  int64_t best = 1;
  for (int64_t size = 1; size <= total; ++size)
    if (total % size == 0 && std::abs(size - wanted) < std::abs(best - wanted)) best = size;
  return best;
}

/// The first of the keys that an inline config.json has as an integer, else 0; families name them differently.
int64_t model_number(const Json& model, std::initializer_list<const char*> keys);

class Resolver {
 public:
  Resolver(const RunConfig& config, int world_size, const AutoBf16& automatic);

  RunPlan run();

 private:
  void resolve_mesh();
  /// How many of so many data-parallel ranks share out the states of parameters, if DeepSpeed's key says it.
  std::optional<Candidate<int64_t>> mics_shard_size(int64_t data) const;
  /// How many replicas so many data-parallel ranks hold.
  Candidate<int64_t> replicate_size(int64_t data) const;
  /// Whether parameters are gathered by hosts, and how many ranks a host has then.
  void resolve_hierarchical_gather();
  /// What ranks send each other as codes, and what they keep of gathers.
  void resolve_zeropp();
  void resolve_quantized_gradients(const Candidate<bool>& gradients);
  /// How many neighbours keep what is gathered; 1: nobody.
  int64_t secondary_ranks();
  std::string hpz_reason(int64_t size) const;
  /// How many ranks share out each parameter that is no expert's.
  int sharing_ranks() const;
  /// Makes the mesh know which ranks share a host.
  void know_hosts();
  std::string way_of_gathers() const;
  void require_stage_3(const Candidate<bool>& key) const;
  void resolve_frozen_codes();
  void resolve_token_codes();
  /// ConfigError for a size that two places give differently.
  static void require_equal(const Candidate<int64_t>& deepspeeds, const Candidate<int64_t>& own) {
    require<ConfigError>(!own.given || own.value == deepspeeds.value,
                         "{} = {} contradicts {} = {}: make them equal, or remove one", deepspeeds.place,
                         deepspeeds.value, own.place, own.value);
  }
  /// How many ranks share each matrix.
  Candidate<int64_t> tensor_size() const;
  /// How many ranks hold different experts.
  Candidate<int64_t> expert_size();
  /// ConfigError unless experts are cut over as many ranks as all other matrices.
  void check_expert_tensor_size(int64_t tensor) const;
  bool resolve_sequence_parallel(int64_t tensor);
  /// How many ranks exchange tokens for heads.
  Candidate<int64_t> ulysses_size() const;
  /// How many of so many ranks share each sequence, and how they attend.
  int64_t resolve_context(int64_t ranks);
  /// ", left of 8 by tp_size 4,": which sizes have left so many ranks of all; "" where it is all of them.
  std::string what_left(int64_t ranks) const;
  /// ConfigError unless sequences are long enough for the ranks that share them.
  void check_context() const;
  /// What of the ranks hold different layers, when so many share each matrix.
  void resolve_pipeline(int64_t tensor);
  /// Of how many ranks that is, as either side says.
  Candidate<int64_t> pipeline_size() const;
  /// How the layers are shared out over so many ranks.
  StagePartition resolve_partition(int64_t ranks);
  Candidate<std::string> partition_method() const;
  void resolve_checkpoint_interval();
  /// ConfigError unless the schedule can run the micro-batches of a step.
  void check_pipeline() const;
  /// What plan_.layout.data_ranks() is called in messages: `all` if no ranks share samples.
  std::string data_name(const char* all) const {
    return plan_.layout.data_ranks() < plan_.layout.ranks ? "data-parallel ranks" : all;
  }
  void resolve_model();
  void resolve_data();
  void resolve_sources();
  void resolve_batch();
  Candidate<bool> training_bf16() const;
  void resolve_precision();
  void resolve_loss_scale();
  void resolve_gradients();
  void resolve_masters();
  void resolve_fp8();
  void resolve_zero();
  void resolve_buckets();
  /// `device` of a section that offloads, at `path`: none unless it is given, there or by one of its older names.
  struct OlderName {
    const char* key;
    const Setting<bool>& setting;
  };
  Candidate<std::string> offload_device(const std::string& path, const Auto<std::string>& setting,
                                        std::initializer_list<OlderName> older) const;
  /// The device as the file has it: "place = value".
  static std::string written(const Candidate<std::string>& device);
  /// Its nvme_path; ConfigError without. what: what the folder is to hold.
  Candidate<std::string> offload_folder(const std::string& path, const Setting<std::string>& setting,
                                        const char* what) const;
  /// Offloading to the host has no effect where that is the device.
  void warn_of_host_memory(const Candidate<std::string>& device);
  int64_t elements_of_tile();
  double share_that_moves();
  void offload_beside_gpu(const Candidate<std::string>& device);
  void note_pin_memory(const std::string& name, const std::string& path, const Setting<bool>& setting);
  void resolve_offload();
  /// Keeps the optimizer's states in a file of each rank.
  void offload_to_files();
  void resolve_offload_param();
  /// Keeps parameters in a file of each rank.
  void parameters_to_files();
  void resolve_recompute();
  void resolve_experts();
  void resolve_checkpoints();
  /// Where the inputs of blocks are kept.
  void resolve_input_home();
  void resolve_tiles();
  void resolve_unit_tiles();
  void resolve_optimizer();
  void resolve_clipping();
  Method resolve_method();
  /// OneBitAdam, ZeroOneAdam, OneBitLamb.
  Method resolve_one_bit(const OptimizerArgs& args, std::pair<double, double> betas, double eps);
  void resolve_comm_hook();
  /// ConfigError unless all else lets ranks send signs, or factors of gradients.
  void check_compression();
  std::pair<double, double> resolve_betas(double fallback2);
  void resolve_parameter_groups();
  void resolve_freezing();
  void resolve_length();
  void resolve_schedule();
  void resolve_evaluation();
  void resolve_saving();
  void resolve_reports();
  void resolve_resuming();
  void resolve_best_model();
  void resolve_sample();
  void resolve_profile();
  void resolve_output();
  void resolve_collectives();
  void resolve_checks();
  void resolve_delayed_update();
  void resolve_early_update();
  void resolve_gradient_home();
  void resolve_local_steps();
  /// What workers of local steps cannot be combined with.
  void check_local_steps(const std::string& place) const;
  void resolve_async();
  /// The section aio. `to_files`: whether something is offloaded to files; else its keys have no effect, and say so.
  void resolve_aio(bool to_files);
  std::string resolve_monitor(const std::string& section, const DsMonitor& monitor);
  void explain_automatic_buckets();

  void derive_batch_without_total(std::optional<Candidate<int64_t>> micro, std::optional<Candidate<int64_t>> steps);
  void derive_batch_from_total(const Candidate<int64_t>& total, const std::optional<Candidate<int64_t>>& micro,
                               const std::optional<Candidate<int64_t>>& steps);
  void set_batch(const Candidate<int64_t>& micro, const Candidate<int64_t>& steps, const std::string& total_reason);
  void use_hugging_face_schedule();
  void use_deepspeed_schedule();
  void use_schedule_arguments();
  void use_range_test();
  void use_one_cycle();
  void use_deepspeed_lengths(const DsSchedulerParams& params);
  void require_parameters_of(ScheduleType type) const;
  Candidate<int64_t> warmup_of_training() const;

  /// The value of a key of the training section, or its default.
  template <class T>
  Candidate<T> training(const std::string& key, const Setting<T>& setting) const {
    return section_value("training." + key, setting);
  }

  template <class T>
  Candidate<T> section_value(const std::string& path, const Setting<T>& setting) const {
    return section_value(path, setting.value, setting.given);
  }
  template <class T>
  Candidate<T> section_value(const std::string& path, T value, bool given) const {
    const std::string name = origins_.is_override(path) ? "--set " + path : path;
    return {value, given, origins_.place(path), given ? name : "default of " + path};
  }

  /// A value that stands in the deepspeed section.
  template <class T>
  Candidate<T> deepspeed(const std::string& key, T value) const {
    const std::string path = "deepspeed." + key;
    return {value, true, origins_.place(path), origins_.is_override(path) ? "--set " + path : "deepspeed: " + key};
  }

  /// The value of `key` by transformers' rule. `fallback` is DeepSpeed's default. It counts if neither side is given;
  /// if there is no fallback either, the training argument's default counts.
  template <class T>
  Candidate<T> merge(const std::string& key, const Auto<T>& ds, const Candidate<T>& argument,
                     std::optional<T> fallback = {}) const {
    if (ds.automatic()) {
      const std::string why = fmt::format("deepspeed: auto <- {}", argument.reason);
      return {argument.value, true, origins_.place("deepspeed." + key), why};
    }
    if (ds.given()) {
      const Candidate<T> value = deepspeed(key, ds.value);
      if (argument.given && argument.value != ds.value) fail_conflict(value, argument);
      return value;
    }
    if (argument.given || !fallback) return argument;
    return {*fallback, false, origins_.place("deepspeed." + key), "DeepSpeed's default of " + key};
  }

  template <class T>
  [[noreturn]] void fail_conflict(const Candidate<T>& ds, const Candidate<T>& argument) const {
    fail<ConfigError>("{} = {} contradicts {} = {}; make them equal, remove one, or write \"auto\" for DeepSpeed's",
                      ds.place, ds.value, argument.place, argument.value);
  }

  /// Records a value for `nought check` and returns it.
  template <class T>
  T note(const std::string& key, const Candidate<T>& candidate) {
    std::string text = fmt::format("{}", candidate.value);
    if constexpr (std::is_same_v<T, int64_t>)  // Infinity is read as the largest integer
      if (candidate.value == std::numeric_limits<int64_t>::max()) text = "never";
    plan_.resolved.push_back({key, std::move(text), candidate.reason});
    return candidate.value;
  }

  template <class T>
  static void require_at_least(const Candidate<T>& candidate, T least) {
    require<ConfigError>(candidate.value >= least, "{}: expected at least {}, got {}", candidate.place, least,
                         candidate.value);
  }

  /// A number of DeepSpeed's scheduler section, checked and noted.
  template <class T>
  T scheduler_value(const std::string& key, const Setting<T>& setting, double least) {
    const auto candidate = section_value("deepspeed.scheduler.params." + key, setting);
    const auto number = static_cast<double>(candidate.value);
    require<ConfigError>(std::isfinite(number) && number >= least, "{}: expected a finite number >= {}, got {}",
                         candidate.place, least, candidate.value);
    return note("schedule." + key, candidate);
  }
  static void require_finite_at_least_zero(const Candidate<double>& number) {
    require<ConfigError>(std::isfinite(number.value) && number.value >= 0, "{}: expected a finite number >= 0, got {}",
                         number.place, number.value);
  }
  static void require_fraction(const Candidate<double>& number) {
    require<ConfigError>(0 <= number.value && number.value < 1, "{}: expected a number in [0, 1), got {}", number.place,
                         number.value);
  }

  void warn(std::string message) { plan_.warnings.push_back(std::move(message)); }

  const RunConfig& config_;
  const AutoBf16 automatic_bf16_;
  const Origins& origins_;
  RunPlan plan_;
  DsConfig ds_;
};

}  // namespace nought
