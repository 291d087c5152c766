// host_context(): what threads of the host compute with beside the compute stream.
#pragma once

#include "nought/kernels/kernels.h"

namespace nought {

/// Kernels of its own, so that what is watched or timed is the step alone; a dry run counts on. The bits are those of
/// `context` where its device is the host.
Context host_context(const Context& context);

}  // namespace nought
