#include "nought/plan/gpu_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

// Peaks are those of data sheets. The rest is what operations were seen to reach on such machines, or, for attention,
// what kernels like ours reach. Steps that were measured later stand beside their predictions in docs/cuda.md.
const std::array<GpuRates, 4>& known() {
  static const std::array<GpuRates, 4> all{{{.name = "a100",
                                             .peak = 312e12,
                                             .products = 290e12,
                                             .products_f32 = 18e12,
                                             .attention = 100e12,
                                             .memory = 1.75e12,
                                             .exchange = 230e9,
                                             .bus = 25e9,
                                             .host_memory = 50e9,
                                             .launch = 4e-6},
                                            {.name = "h100",
                                             .peak = 989e12,
                                             .products = 800e12,
                                             .products_f32 = 50e12,
                                             .attention = 200e12,
                                             .memory = 2.9e12,
                                             .exchange = 350e9,
                                             .bus = 50e9,
                                             .host_memory = 50e9,
                                             .launch = 4e-6},
                                            {.name = "h200",
                                             .peak = 989e12,
                                             .products = 800e12,
                                             .products_f32 = 50e12,
                                             .attention = 200e12,
                                             .memory = 4.3e12,
                                             .exchange = 350e9,
                                             .bus = 50e9,
                                             .host_memory = 50e9,
                                             .launch = 4e-6},
                                            {.name = "4090",
                                             .peak = 165e12,
                                             .products = 170e12,
                                             .products_f32 = 60e12,
                                             .attention = 80e12,
                                             .memory = 0.92e12,
                                             .exchange = 12e9,
                                             .bus = 25e9,
                                             .host_memory = 50e9,
                                             .launch = 4e-6}}};
  return all;
}

/// Throws unless each rate is a finite number above 0.
struct Checker {
  const std::string& file;
  std::vector<std::string> missing = {};

  template <class T>
  void operator()(const char* key, const T& rate, const char* /*help*/) {
    if constexpr (std::is_same_v<T, double>) {
      require<ConfigError>(std::isfinite(rate) && rate < kJsonInfinity && rate >= 0,
                           "{}: {} must be a finite number above 0, got {}", file, key, rate);
      if (rate == 0) missing.emplace_back(key);
    }
  }
};

GpuRates read(const std::string& file) {
  auto rates = from_json<GpuRates>(read_json_file(file), Origins(file));
  if (rates.name.empty()) rates.name = std::filesystem::path(file).stem().string();
  Checker checker{file};
  rates.visit(checker);
  require<ConfigError>(checker.missing.empty(),
                       "{}: no rate above 0 for {}; `nought plan --device cuda --gpu h100 --json` shows all of one GPU "
                       "under \"gpu\"",
                       file, fmt::join(checker.missing, ", "));
  return rates;
}

}  // namespace

GpuRates gpu_rates(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const GpuRates& each : known()) {
    if (each.name == lower_case(name_or_file)) return each;
    names.push_back(each.name);
  }
  require<ConfigError>(std::filesystem::exists(name_or_file),
                       "--gpu {}: expected {} or a JSON file of rates, which is not there{}", name_or_file,
                       fmt::join(names, ", "), did_you_mean(lower_case(name_or_file), names));
  return read(name_or_file);
}

}  // namespace nought
