// LinkedTransport: the collectives of a group of ranks whose devices are linked. See linked.h.
#pragma once

#include <memory>

#include "nought/comm/linked.h"
#include "nought/comm/transport.h"

namespace nought {

/// Links the devices of the ranks of a transport, which goes on to carry what does not ride on the links. The context's
/// device is a LinkedDevice. All ranks of the group call it together.
void link(std::unique_ptr<Transport>& transport, const Context& context, const LinkOptions& options);

}  // namespace nought
