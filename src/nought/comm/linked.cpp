#include "nought/comm/linked.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "nought/base/host.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/linked_transport.h"
#include "nought/comm/stream_communicator.h"
#include "nought/tensor/device_group.h"

namespace nought {
namespace {

/// What a rank says of its device; one line each.
struct Place {
  std::string host, device, hardware, library, missing;

  std::string str() const { return fmt::format("{}\n{}\n{}\n{}\n{}", host, device, hardware, library, missing); }
  static Place of(const std::string& text) {
    std::vector<std::string> lines{""};
    for (const char each : text)
      if (each == '\n' && lines.size() < 5) {
        lines.emplace_back();
      } else {
        lines.back().push_back(each);
      }
    lines.resize(5);
    return {lines[0], lines[1], lines[2], lines[3], lines[4]};
  }
};

Place place_of(const Context& context) {
  Device& device = context.memory->device();
  Place place{.host = host_name(), .device = std::string(device.name()), .hardware = "", .library = "", .missing = ""};
  const auto* const linked = dynamic_cast<const LinkedDevice*>(&device);
  if (linked == nullptr) {
    place.missing = fmt::format("{} has no links", device.name());
    return place;
  }
  try {
    place.hardware = linked->place();
    place.library = linked->link_library();
  } catch (const Error& error) {
    place.missing = error.what();
  }
  return place;
}

/// Why the devices of ranks at these places cannot be linked; "" if they can.
std::string why_not(const std::vector<Place>& places) {
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& here = places[i];
    if (!here.missing.empty()) return fmt::format("rank {} on {}: {}", i, here.host, here.missing);
    if (here.library != places[0].library)
      return fmt::format("rank 0 has {}, rank {} has {}", places[0].library, i, here.library);
    for (size_t other = 0; other < i; ++other)
      if (places[other].host == here.host && places[other].hardware == here.hardware)
        return fmt::format("ranks {} and {} share {} of {}", other, i, here.device, here.host);
  }
  return "";
}

}  // namespace

LinkOptions link_options(std::string_view name) {
  using Use = LinkOptions::Use;
  if (name == "auto") return {};
  if (name == "nccl") return {.use = Use::always};
  if (name == "nccl-sums") return {.use = Use::always, .library_sums = true};
  require<ConfigError>(name == "host", "--collectives {}: expected auto, nccl, nccl-sums or host", name);
  return {.use = Use::never};
}

void link_devices(Communicator& world, const Context& context, const LinkOptions& options) {
  auto* const ranks = dynamic_cast<StreamCommunicator*>(&world);
  if (ranks == nullptr || world.size() == 1) return;
  std::vector<Place> places;
  for (const std::string& text : texts_of_ranks(world, Context::cpu(), place_of(context).str()))
    places.push_back(Place::of(text));
  const bool computes_on_hosts =
      std::all_of(places.begin(), places.end(), [](const Place& each) { return each.device == cpu_device()->name(); });
  if (computes_on_hosts && options.use != LinkOptions::Use::always) return;
  const auto keep = [](std::unique_ptr<Transport>&) {};
  if (options.use == LinkOptions::Use::never) return ranks->with_transport(keep, "through the host, as asked for");
  const std::string reason = why_not(places);
  require<DeviceError>(options.use == LinkOptions::Use::automatic || reason.empty(),
                       "the devices of the ranks cannot be linked: {}; leave out --collectives", reason);
  if (!reason.empty()) return ranks->with_transport(keep, "through the host: " + reason);
  ranks->with_transport([&](std::unique_ptr<Transport>& transport) { link(transport, context, options); },
                        fmt::format("{} between {} devices, sums {}", places[0].library, places.size(),
                                    options.library_sums ? "in an order of its own" : "in the order of ranks"));
}

std::string words_of_links(const Communicator& world) {
  const auto* const ranks = dynamic_cast<const StreamCommunicator*>(&world);
  return ranks == nullptr ? "" : ranks->words_of_transport();
}

}  // namespace nought
