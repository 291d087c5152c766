// Collectives on tensors of a device that transports cannot touch: through pinned memory of the host.
//
// Design goals: every transport of the host works for every such device, with the same order of additions and so the
// same bits. What is sent is copied to the host first, what was received is copied back, each on a stream of the device
// that the communication thread waits for.
// Non-goals: speed. Links between devices are not used; the bytes cross the bus twice.
#pragma once

#include <memory>

#include "nought/comm/transport.h"

namespace nought {

/// True if the bytes of a tensor (in_flight()) lie on such a device, as its buffer says.
bool is_far(const Tensor& tensor);
/// True if the tensors of this memory lie on a device whose copies alone reach them.
bool needs_staging(const Context& context);
/// What a transport computes with that is to be staged: memory and kernels of the host. Else the context itself.
Context beneath_staging(const Context& context);
/// `inner`, whose context is beneath_staging(context), for tensors of `context`; `inner` itself if nothing is staged.
std::unique_ptr<Transport> staged(std::unique_ptr<Transport> inner, const Context& context);

}  // namespace nought
