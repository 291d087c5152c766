#include "nought/simulate/links.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace nought {

namespace {

/// A protocol or algorithm of NCCL: seconds of its call, and the share of a link's bandwidth that it reaches. They are
/// LL, LL128, Simple, and NVLS, which reduces in the switch. The times are those of nccl-tests on 8 H100.
struct Protocol {
  double latency, share;
};
constexpr std::array<Protocol, 4> kProtocols{{{14.9e-6, 0.097}, {17.5e-6, 0.41}, {25e-6, 0.58}, {70e-6, 1.066}}};

}  // namespace

double Links::inside(RankGroup group) const {
  const double domain = cluster_.domain();
  return std::clamp(std::floor(domain / group.stride), 1.0, group.size);
}

double Links::ring(double bytes, double hops, RankGroup group) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  const double members = inside(group);
  const double link = cluster_.link.bandwidth;
  if (members >= group.size) {
    double least = INFINITY;
    for (const Protocol& each : kProtocols)
      least = std::min(least, each.latency + bytes / (link * each.share * fitted_.link));
    return least;
  }
  const double bandwidth = std::min(link * fitted_.link, members * cluster_.network_per_rank() * fitted_.network);
  return bytes / bandwidth + std::log2(hops + 1) * fitted_.latency + cluster_.network.latency;
}

double Links::all_reduce(double bytes, RankGroup group) const {
  return ring(2 * bytes * (group.size - 1) / group.size, 2 * (group.size - 1), group);
}

double Links::all_gather(double bytes, RankGroup group) const {
  return ring(bytes * (group.size - 1) / group.size, group.size - 1, group);
}

double Links::to_experts(double bytes, double choices, RankGroup group) const {
  if (group.size <= 1 || bytes <= 0) return 0;
  const double members = inside(group);
  const double share = cluster_.domain() > cluster_.ranks_per_host ? 1 : fitted_.exchange;
  const double near = bytes * choices * (members - 1) / members / (cluster_.link.bandwidth * fitted_.link * share);
  const double domains = group.size / members;
  const double reached = (domains - 1) * (1 - std::pow(1 - 1 / domains, choices));
  const double far = bytes * reached / (cluster_.network_per_rank() * fitted_.network);
  return std::max(near, far) + fitted_.latency;
}

double Links::message(double bytes, double distance) const {
  if (distance < cluster_.domain()) return cluster_.link.latency + bytes / (cluster_.link.bandwidth * fitted_.link);
  return cluster_.network.latency + bytes / (cluster_.network_per_rank() * fitted_.network);
}

}  // namespace nought
