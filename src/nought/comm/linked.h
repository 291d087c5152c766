// Collectives on tensors of devices that are linked: over these links, in the order of the devices' streams.
//
// Design goals: the host enqueues a call and goes on, and nothing crosses its memory. A rank adds what the others send
// it in the order of the ranks, in fp32, and rounds once: the bits of every other backend. What the links cannot do
// goes the way that the tensors of a device went before: messages with a tag, since links have none; and what lies on
// the host, which is most of what ranks say to each other beside their tensors. Non-goals: send() without waiting. A
// message that is sent waits on the device stream of its group until its receiver is there, as send() may.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nought/comm/communicator.h"

namespace nought {

struct LinkOptions {
  enum class Use : uint8_t {
    automatic,  // if the devices of all ranks can be linked
    always,     // else it is an error
    never
  };
  Use use = Use::automatic;
  bool library_sums =
      false;  // the library adds too: faster between hosts; the order is its own, and it may round often
  int64_t room_bytes = int64_t{32} << 20;  // that a reduction takes from the device, to receive what it adds
};

/// auto, nccl, nccl-sums or host. ConfigError if it is none of them.
LinkOptions link_options(std::string_view name);

/// Links the devices of all ranks, or finds out why they cannot be. Blocking; all ranks call it before the world has
/// been split and before its first call with a tensor of a device. DeviceError if they must be linked and cannot.
void link_devices(Communicator& world, const Context& context, const LinkOptions& options);
/// How tensors of devices travel, and why: "NCCL 2.28.9 between 8 GPUs, sums in the order of ranks". "" on the host,
/// and where there is one rank.
std::string words_of_links(const Communicator& world);

}  // namespace nought
