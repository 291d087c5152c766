// Cluster: what is known of a machine of many hosts by its data sheets.
#pragma once

#include <string>

#include "nought/base/visit.h"
#include "nought/simulate/fitted.h"

namespace nought {

/// FLOP/s of dense products by the data sheet. fp8 0: the chip has none.
struct ChipFlops {
  double bf16 = 0, fp8 = 0;

  template <class V>
  void visit(V& v) {
    v("bf16", bf16, "FLOP/s of bf16 by the data sheet, without sparsity");
    v("fp8", fp8, "FLOP/s of FP8; 0: the chip has none");
  }
};

/// What the ranks of a host, or of a larger domain, send each other over.
struct FastLink {
  double bandwidth = 0, latency = 2e-6;
  int domain = 0;

  template <class V>
  void visit(V& v) {
    v("bandwidth", bandwidth, "B/s that a rank sends");
    v("latency", latency, "seconds of a message");
    v("domain", domain, "ranks that share it; 0: those of a host");
  }
};

enum class NetworkPer : uint8_t { rank, host };
template <>
struct EnumNames<NetworkPer> {
  static constexpr std::array<std::pair<NetworkPer, std::string_view>, 2> value{
      {{NetworkPer::rank, "rank"}, {NetworkPer::host, "host"}}};
};

struct Network {
  double bandwidth = 0, latency = 5e-6;
  NetworkPer per = NetworkPer::rank;

  template <class V>
  void visit(V& v) {
    v("bandwidth", bandwidth, "B/s that a rank, or a host, sends to other hosts");
    v("latency", latency, "seconds of a message");
    v("per", per, "whether `bandwidth` is that of a rank or of a host");
  }
};

struct Cluster {
  std::string name = {};
  std::string chip = {};
  int ranks_per_host = 8, hosts = 0;
  ChipFlops flops = {};
  double memory = 0, memory_bandwidth = 0;
  FastLink link = {};
  Network network = {};
  double efficiency = 1;

  template <class V>
  void visit(V& v) {
    v("name", name, "what it is called");
    v("chip", chip, "a100, h100, h800, h200, b200, b300, gb200, gb300 or mi300");
    v("ranks_per_host", ranks_per_host, "ranks of a host");
    v("hosts", hosts, "how many hosts there are; 0: as many as wanted");
    v("flops", flops, "FLOP/s");
    v("memory", memory, "bytes of a rank's device");
    v("memory_bandwidth", memory_bandwidth, "B/s of that memory");
    v("link", link, "the fast link");
    v("network", network, "between domains of the fast link");
    v("efficiency", efficiency, "factor on the FLOP/s, for instance of a power cap");
  }
  int domain() const { return link.domain > 0 ? link.domain : ranks_per_host; }
  double network_per_rank() const {
    return network.per == NetworkPer::rank ? network.bandwidth : network.bandwidth / ranks_per_host;
  }
};

/// A cluster by name (cluster_names()), or of a JSON file. ConfigError, in one line, for another name, a file that can
/// not be read, an unknown key or chip, and a rate that is missing or no finite number above 0.
Cluster cluster_of(const std::string& name_or_file);
/// "a100x8, h100x8, ...".
std::string cluster_names();
/// Throws the ConfigErrors of cluster_of() for one that was put together elsewhere; `place` stands in front.
void require_complete(const Cluster& cluster, const std::string& place);
/// The name of the set of constants for a chip: "a100", "h100" or "blackwell". ConfigError for an unknown chip.
std::string generation_of(const std::string& chip, const std::string& place);

}  // namespace nought
