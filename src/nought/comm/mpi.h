// Ranks as processes: joins the job that mpirun or srun started, and ends it.
//
// Design goals: each group has a communication thread of its own, so that waiting in one blocks no other. MPI gets one
// call at a time (MPI_THREAD_SERIALIZED), and no call waits. A wait gives the core back to the compute thread that
// usually shares it. A rank that fails ends all ranks, and nothing waits for ever.
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

/// How waits poll, and what ranks of one host share. A wait spins for `spin` after the last progress, then sleeps `nap`
/// between two polls. With a nap of zero it spins for ever, which is faster where each rank has a spare core.
struct MpiOptions {
  std::chrono::microseconds spin{50};
  std::chrono::microseconds nap{20};
  /// Whether ranks of one host exchange tensors through shared memory instead of MPI, where they can.
  bool shared_windows = true;
  /// For tests: every so many ranks of a host behave as if they had a host of their own. 0: all ranks of a host share
  /// it.
  int ranks_per_host = 0;
};

class MpiWorld {
 public:
  /// Joins the job. Communication buffers come from the context's memory, sums from its kernels.
  explicit MpiWorld(const Context& context, const MpiOptions& options = {});
  /// Waits for all ranks and finalizes MPI. After a failed collective, or while an exception unwinds, it does not,
  /// because the peers will not come: call abort() then.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// The group of all ranks. It lives as long as this object; groups split from it must end before.
  Communicator& world() { return *world_; }

  /// This rank's number among the ranks of its host.
  int local_rank() const { return local_rank_; }
  /// How many ranks its host has.
  int local_size() const { return local_size_; }
  /// The name of each rank's host, by rank.
  const std::vector<std::string>& host_names() const { return host_names_; }

  /// Has the collectives of this rank fail with this message, those that wait now and all later ones. From any thread.
  static void cancel(const std::string& why);
  /// Ends all ranks with this exit code, from any thread and in any state of MPI, also after an exception destroyed the
  /// MpiWorld. Without MPI it ends this process. Flush your output first.
  [[noreturn]] static void abort(int code);

 private:
  void join(const Context& context, const MpiOptions& options);

  std::unique_ptr<Communicator> world_;
  int local_rank_ = 0, local_size_ = 1;
  std::vector<std::string> host_names_;
  int exceptions_at_birth_;
};

/// The MPI library's own collectives on all ranks, for comparisons. Tensors are f32 and have at most 2^31 - 1 elements.
/// The library chooses the order of additions, and there is no deadline. Use them only while an MpiWorld lives.
struct MpiNative {
  static Event all_reduce(Tensor tensor);
  static Event reduce_scatter(Tensor full, Tensor shard);
  static Event all_gather(Tensor shard, Tensor full);
};

}  // namespace nought
