#include "nought/simulate/cluster.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

Cluster known_cluster(std::string name, std::string chip, int domain, std::array<double, 2> teraflops, double gigabytes,
                      double terabytes_per_s, double link, double network) {
  return {.name = std::move(name),
          .chip = std::move(chip),
          .ranks_per_host = domain == 72 ? 4 : 8,
          .flops = {.bf16 = teraflops[0] * kTera, .fp8 = teraflops[1] * kTera},
          .memory = gigabytes * kGiga,
          .memory_bandwidth = terabytes_per_s * kTera,
          .link = {.bandwidth = link * kGiga, .domain = domain},
          .network = {.bandwidth = network * kGiga}};
}

// Data sheets, dense; links and networks one way for each GPU. b200 to gb300 as NVIDIA's recipes print them.
const std::vector<Cluster>& known_clusters() {
  static const std::vector<Cluster> all{known_cluster("a100x8", "a100", 8, {312, 0}, 80, 2.039, 300, 25),
                                        known_cluster("a100-40x8", "a100", 8, {312, 0}, 40, 1.555, 300, 25),
                                        known_cluster("h100x8", "h100", 8, {989, 1979}, 80, 3.35, 450, 50),
                                        known_cluster("h800x8", "h800", 8, {989, 1979}, 80, 3.35, 200, 50),
                                        known_cluster("h200x8", "h200", 8, {989, 1979}, 141, 4.8, 450, 50),
                                        known_cluster("b200x8", "b200", 8, {2250, 4500}, 180, 8, 900, 50),
                                        known_cluster("b300x8", "b300", 8, {2250, 4500}, 288, 8, 900, 100),
                                        known_cluster("gb200x72", "gb200", 72, {2450, 4900}, 186, 8, 900, 50),
                                        known_cluster("gb300x72", "gb300", 72, {2450, 4900}, 288, 8, 900, 100),
                                        known_cluster("mi300x8", "mi300", 8, {1307, 2615}, 192, 5.3, 448, 50)};
  return all;
}

void require_rate(double rate, const char* key, const std::string& place) {
  require<ConfigError>(std::isfinite(rate) && rate > 0 && rate < kJsonInfinity,
                       "{}: {} is missing or no finite number above 0; `nought simulate --help` lists all keys", place,
                       key);
}

}  // namespace

std::string cluster_names() {
  std::vector<std::string> names;
  for (const Cluster& each : known_clusters()) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string generation_of(const std::string& chip, const std::string& place) {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"a100", "a100"},      {"h100", "h100"},      {"h800", "h100"},       {"h200", "h100"},      {"mi300", "h100"},
      {"b200", "blackwell"}, {"b300", "blackwell"}, {"gb200", "blackwell"}, {"gb300", "blackwell"}};
  std::vector<std::string> names;
  for (const auto& [name, generation] : all) {
    if (lower_case(chip) == name) return generation;
    names.push_back(name);
  }
  fail<ConfigError>("{}: chip \"{}\" is unknown: expected {}{}", place, chip, fmt::join(names, ", "),
                    did_you_mean(lower_case(chip), names));
}

void require_complete(const Cluster& cluster, const std::string& place) {
  generation_of(cluster.chip, place);
  require_rate(cluster.flops.bf16, "flops.bf16", place);
  require_rate(cluster.memory, "memory", place);
  require_rate(cluster.memory_bandwidth, "memory_bandwidth", place);
  require_rate(cluster.link.bandwidth, "link.bandwidth", place);
  require_rate(cluster.network.bandwidth, "network.bandwidth", place);
  require_rate(cluster.efficiency, "efficiency", place);
  const auto sane = [](double value) { return std::isfinite(value) && value >= 0; };
  require<ConfigError>(sane(cluster.flops.fp8) && sane(cluster.link.latency) && sane(cluster.network.latency),
                       "{}: flops.fp8, link.latency and network.latency must be finite numbers of at least 0", place);
  require<ConfigError>(cluster.ranks_per_host > 0 && cluster.hosts >= 0 && cluster.link.domain >= 0,
                       "{}: ranks_per_host must be at least 1, hosts and link.domain at least 0", place);
}

Cluster cluster_of(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const Cluster& each : known_clusters()) {
    if (each.name == lower_case(name_or_file)) return each;
    names.push_back(each.name);
  }
  require<ConfigError>(std::filesystem::exists(name_or_file),
                       "--cluster {}: expected {} or a JSON file of rates, which is not there{}", name_or_file,
                       fmt::join(names, ", "), did_you_mean(lower_case(name_or_file), names));
  auto cluster = from_json<Cluster>(read_json_file(name_or_file), Origins(name_or_file));
  if (cluster.name.empty()) cluster.name = std::filesystem::path(name_or_file).stem().string();
  require_complete(cluster, name_or_file);
  return cluster;
}

}  // namespace nought
