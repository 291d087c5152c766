// Ranks as processes: joins the job that mpirun or srun started, and ends it.
//
// Design goals: each group has a communication thread of its own, so that waiting in one blocks no other; MPI gets one
// call at a time (MPI_THREAD_SERIALIZED), and no call waits; a wait gives the core back to the compute thread that
// usually shares it; a rank that fails ends all ranks, and nothing waits for ever.
// Non-goals: more than one MpiWorld in the life of a process (MPI can be initialised once).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// True if a launcher (mpirun, or srun with a PMI) started this process as a rank of a job.
bool launched_by_mpi();

/// How a wait polls: it spins for `spin` after the last progress, then sleeps `nap` between two polls. A nap of zero
/// spins for ever: faster where each rank has a core for communication alone.
struct MpiOptions {
  std::chrono::microseconds spin{50};
  std::chrono::microseconds nap{20};
  /// Ranks of one host hand each other what they can through shared memory, not through MPI.
  bool shared_windows = true;
  /// Treats that many ranks of a host as if they had it for themselves: for tests. 0: all.
  int ranks_per_host = 0;
};

class MpiWorld {
 public:
  /// Joins the job. Communication buffers come from the context's memory, sums from its kernels.
  explicit MpiWorld(const Context& context, const MpiOptions& options = {});
  /// Waits for all ranks and leaves MPI. After a failed collective, or with an exception in flight, it leaves MPI as it
  /// is, because the peers will not come: then call abort().
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// All ranks. Lives as long as this object, and so must its subgroups end before.
  Communicator& world() { return *world_; }

  /// This rank among those of its host.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// The host of each rank.
  const std::vector<std::string>& host_names() const { return host_names_; }

  /// Ends all ranks with this exit code, from any thread and whatever state MPI is in. Flush your output first. Works
  /// after the MpiWorld was destroyed by an exception too; without MPI it ends this process.
  [[noreturn]] static void abort(int code);

 private:
  void join(const Context& context, const MpiOptions& options);

  std::unique_ptr<Communicator> world_;
  int local_rank_ = 0, local_size_ = 1;
  std::vector<std::string> host_names_;
  int exceptions_at_birth_;
};

/// The MPI library's own collectives on all ranks, for comparisons: f32, in an order of additions of its choice,
/// without deadlines. Only while an MpiWorld lives; the tensors are at most 2^31 - 1 elements long.
struct MpiOwn {
  static Event all_reduce(Tensor tensor);
  static Event reduce_scatter(Tensor full, Tensor shard);
  static Event all_gather(Tensor shard, Tensor full);
};

}  // namespace nought
