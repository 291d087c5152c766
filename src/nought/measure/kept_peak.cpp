#include "nought/measure/kept_peak.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr double kMoreBy = 1.001;  // less is the same

std::string name_of_cpu() {
  std::istringstream file(system_text("/proc/cpuinfo"));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "CPU";
}

Json kept_in(const std::string& file) {
  try {
    Json kept = read_json_file(file);
    if (kept.is_object()) return kept;
  } catch (const Error&) {
    // It is not there yet, or is no JSON: a new one takes its place.
  }
  return Json::object();
}

double number_in(const Json& kept, const std::string& key) {
  return kept.contains(key) && kept.at(key).is_number() ? kept.at(key).get<double>() : 0;
}

void keep(const std::string& file, Json kept, const std::string& key, double rate) {
  kept[key] = rate;
  try {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
    write_text_atomically(file, kept.dump(2) + "\n");
  } catch (const Error&) {
    // A cache: without it the next run measures again.
  }
}

}  // namespace

std::string kept_peak_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != 0) return fmt::format("{}/nought/matrix-peak.json", cache);
  if (home != nullptr && *home != 0) return fmt::format("{}/.cache/nought/matrix-peak.json", home);
  return "";
}

std::string kept_peak_key(const std::string& loop) {
  return fmt::format("{}, {}, {}", host_name(), name_of_cpu(), loop);
}

double best_peak(const std::string& file, const std::string& key, double flops) {
  if (file.empty()) return flops;
  Json kept = kept_in(file);
  const double before = number_in(kept, key);
  if (flops <= kMoreBy * before) return std::max(flops, before);
  keep(file, std::move(kept), key, flops);
  return flops;
}

double kept_rate(const std::string& file, const std::string& key, const std::function<double()>& measure) {
  if (const double before = file.empty() ? 0 : number_in(kept_in(file), key); before > 0) return before;
  const double now = measure();
  if (!file.empty()) keep(file, kept_in(file), key, now);
  return now;
}

}  // namespace nought
