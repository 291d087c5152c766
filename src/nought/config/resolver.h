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

/// ConfigError for a number below `least`.
template <class T>
void require_at_least(const Candidate<T>& candidate, T least) {
  require<ConfigError>(candidate.value >= least, "{}: expected at least {}, got {}", candidate.place, least,
                       candidate.value);
}
inline void require_finite_at_least_zero(const Candidate<double>& number) {
  require<ConfigError>(std::isfinite(number.value) && number.value >= 0, "{}: expected a finite number >= 0, got {}",
                       number.place, number.value);
}
inline void require_fraction(const Candidate<double>& number) {
  require<ConfigError>(0 <= number.value && number.value < 1, "{}: expected a number in [0, 1), got {}", number.place,
                       number.value);
}
/// ConfigError for a size that two places give differently.
inline void require_equal(const Candidate<int64_t>& deepspeeds, const Candidate<int64_t>& own) {
  require<ConfigError>(!own.given || own.value == deepspeeds.value,
                       "{} = {} contradicts {} = {}: make them equal, or remove one", deepspeeds.place,
                       deepspeeds.value, own.place, own.value);
}

/// The size nearest to `wanted` that divides `total`, the smaller one of two.
inline int64_t nearest_divisor(int64_t total, int64_t wanted) {
  int64_t best = 1;
  for (int64_t size = 1; size <= total; ++size)
    if (total % size == 0 && std::abs(size - wanted) < std::abs(best - wanted)) best = size;
  return best;
}

/// The first of the keys that an inline config.json has as an integer, else 0; families name them differently.
int64_t model_number(const Json& model, std::initializer_list<const char*> keys);

/// What the steps of resolve() read (resolve_steps.h), and the plan that they fill.
struct Resolver {
  Resolver(const RunConfig& from, int world_size, const AutoBf16& bf16_of_machine);

  const RunConfig& config;
  const AutoBf16 automatic_bf16;
  const Origins& origins;
  RunPlan plan;
  DsConfig ds;

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
    const std::string name = origins.is_override(path) ? "--set " + path : path;
    return {value, given, origins.place(path), given ? name : "default of " + path};
  }

  /// A value that stands in the deepspeed section.
  template <class T>
  Candidate<T> deepspeed(const std::string& key, T value) const {
    const std::string path = "deepspeed." + key;
    return {value, true, origins.place(path), origins.is_override(path) ? "--set " + path : "deepspeed: " + key};
  }

  /// The value of `key` by transformers' rule. `fallback` is DeepSpeed's default. It counts if neither side is given;
  /// if there is no fallback either, the training argument's default counts.
  template <class T>
  Candidate<T> merge(const std::string& key, const Auto<T>& ds, const Candidate<T>& argument,
                     std::optional<T> fallback = {}) const {
    if (ds.automatic()) {
      const std::string why = fmt::format("deepspeed: auto <- {}", argument.reason);
      return {argument.value, true, origins.place("deepspeed." + key), why};
    }
    if (ds.given()) {
      const Candidate<T> value = deepspeed(key, ds.value);
      if (argument.given && argument.value != ds.value) fail_conflict(value, argument);
      return value;
    }
    if (argument.given || !fallback) return argument;
    return {*fallback, false, origins.place("deepspeed." + key), "DeepSpeed's default of " + key};
  }

  template <class T>
  [[noreturn]] void fail_conflict(const Candidate<T>& ds, const Candidate<T>& argument) const {
    fail<ConfigError>("{} = {} contradicts {} = {}; make them equal, remove one, or write \"auto\" for DeepSpeed's",
                      ds.place, ds.value, argument.place, argument.value);
  }

  /// Records a value for `nought check` and returns it.
  template <class T>
  T note(const std::string& key, const Candidate<T>& candidate) {
    std::string text;
    if constexpr (std::is_enum_v<T>)
      text = enum_name(candidate.value);
    else
      text = fmt::format("{}", candidate.value);
    if constexpr (std::is_same_v<T, int64_t>)  // Infinity is read as the largest integer
      if (candidate.value == std::numeric_limits<int64_t>::max()) text = "never";
    plan.resolved.push_back({key, std::move(text), candidate.reason});
    return candidate.value;
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

  void warn(std::string message) { plan.warnings.push_back(std::move(message)); }

  /// What the data-parallel ranks are called in messages: `all` if no ranks share samples.
  const char* data_name(const char* all) const {
    return plan.layout.data_ranks() < plan.layout.ranks ? "data-parallel ranks" : all;
  }
};

}  // namespace nought
