// The kernels and the communicator of a dry run. The kernels compute nothing and the other ranks do not exist. So the
// code of a training step can run for its ledger and its counters alone.
#pragma once

#include <optional>

#include "nought/comm/buffer_sizes.h"
#include "nought/comm/communicator.h"
#include "nought/config/layout.h"
#include "nought/cuda/workspace.h"
#include "nought/kernels/kernels.h"

namespace nought {

class OperationTimes;

/// What kernels were asked for (kernels/work.h): the FLOPs of products and attention, and the bytes that other
/// operations move, of which those of optimizers are counted by themselves.
struct CountedWork {
  double flops = 0, bytes = 0, update_bytes = 0;
  double attention_flops = 0;  // what of them is attention's
  double product_bytes = 0;    // operands of products and attention
  double host_bytes = 0;       // what operations of the host move in a run on a GPU; they are in no other number
  double operations = 0;       // how many
  /// What they take, where OperationTimes are given.
  double product_seconds = 0, other_seconds = 0, update_seconds = 0;
};

/// What routers choose. Nobody knows: even, every expert gets as many rows as any other; or the experts of one of the
/// ranks that hold different ones get every row that a token can send there.
struct ChosenExperts {
  int favoured = 0, ranks = 1;  // one rank: even

  bool even() const { return ranks == 1; }
};

/// Kernels that add up the work of each operation in `work` and leave tensors as they are. An operation whose result
/// host code reads does write it, by its dry_run() (kernels/operation.h) or by `routing`. `work` must outlive them.
/// products: not null for a GPU (plan/dry_run_device.h): operands lie there, and each operation takes the workspace
/// that it takes there from the memory of its operands. times: not null, they say what operations take.
std::unique_ptr<Kernels> make_counting_kernels(CountedWork& work, ChosenExperts routing = {},
                                               cuda::ProductWorkspace products = nullptr,
                                               OperationTimes* times = nullptr);

/// The communicator of rank `rank` of `size`. It counts traffic, and its messages go nowhere. hosts: not given, all
/// ranks of the group are on one host.
std::unique_ptr<Communicator> make_silent_communicator(const Context& context, int rank, int size, Wire wire,
                                                       const std::optional<RanksOnHosts>& hosts = {});

}  // namespace nought
