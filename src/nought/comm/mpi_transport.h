// MpiTransport: the collectives of one MPI group as non-blocking messages between processes.
//
// Reductions are direct exchanges: each rank sends part j to rank j, which adds what it receives in rank order. Parts
// travel in segments through two sets of small buffers: one is received while the other is added.
#pragma once

#include "nought/comm/mpi_engine.h"
#include "nought/comm/reduction.h"

namespace nought {

class MpiTransport final : public Transport {
 public:
  /// Takes the group over, and frees it.
  MpiTransport(MpiEngine& engine, MPI_Comm group, const Context& context);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }

  void broadcast(const Call& call, const Tensor& tensor, int root) override;
  void reduce(const Call& call, const Tensor& in, const Tensor& out, int root, ReduceOp op) override;
  void all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) override;
  void gather(const Call& call, const Tensor& in, const Tensor& out, int root) override;
  void all_gather(const Call& call, const Tensor& shard, const Tensor& full) override;
  void scatter(const Call& call, const Tensor& in, const Tensor& out, int root) override;
  void reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp op) override;
  void all_to_all(const Call& call, const Tensor& in, const Tensor& out) override;
  void send(const Call& call, const Tensor& tensor, int destination, int tag) override;
  void recv(const Call& call, const Tensor& tensor, int source, int tag) override;
  void barrier(const Call& call) override;
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override;
  void cancel() override { engine_.cancel(); }

 private:
  /// What one segment of a reduction is received into, and the messages that fill it.
  struct Slot {
    MpiRequests requests;
    std::vector<Tensor> buffers;  // by rank; this rank's own stays undefined
  };

  Tensor part(const Tensor& tensor, int rank) const { return part_of(tensor, rank, size_); }
  std::vector<Slot> make_slots(const Tensor& full) const;
  void post_segment(Slot& slot, const Tensor& full, Interval segment);
  void add_segment(Slot& slot, const Tensor& full, Interval segment, const Tensor& out, ReduceOp op);
  /// own (this rank's part, by part_of) = the reduction of all full.
  void reduce_parts(const Call& call, const Tensor& full, const Tensor& own, ReduceOp op);
  /// Every rank's part of full, from it to all; in place.
  void gather_parts(const Call& call, const Tensor& full);

  MpiEngine& engine_;
  MPI_Comm group_;
  Context context_;
  Reduction reduction_;
  int rank_ = 0, size_ = 1;
};

}  // namespace nought
