// MpiTransport: the collectives of one MPI group: through shared windows between ranks of one host, as non-blocking
// messages between hosts.
//
// Reductions are direct exchanges: each rank sends part j to rank j, which adds what it gets in rank order. Parts
// travel in segments: some are on their way while one is added. What ranks of the host sent is added where it lies, in
// their windows; what came from other hosts is added from small buffers.
#pragma once

#include "nought/comm/mpi_engine.h"
#include "nought/comm/mpi_neighbours.h"
#include "nought/comm/reduction.h"

namespace nought {

class MpiTransport final : public Transport {
 public:
  /// Takes the group over, and frees it. `neighbours` are those of the group.
  MpiTransport(MpiEngine& engine, MPI_Comm group, const Context& context, std::shared_ptr<const Neighbours> neighbours);
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
  std::shared_ptr<Stream> make_stream() const override { return engine_.make_stream(); }
  void cancel() override { engine_.cancel(); }

 private:
  /// A tensor that goes to some ranks and, if `kept` is defined, to this one.
  struct Outgoing {
    Tensor tensor;
    std::vector<int> to;
    Tensor kept = {};
  };
  struct Incoming {
    Tensor tensor;
    int from = 0;
  };
  /// What one segment of a reduction is received into from other hosts, and the messages that fill it.
  struct Slot {
    MpiRequests requests;
    std::vector<Tensor> buffers;  // by rank; undefined for ranks of this host
  };

  void place_ranks(const Neighbours& neighbours);
  Tensor part(const Tensor& tensor, int rank) const { return part_of(tensor, rank, size_); }
  bool is_local(int rank) const { return window_ranks_[static_cast<size_t>(rank)] >= 0; }
  int window_rank(int rank) const { return window_ranks_[static_cast<size_t>(rank)]; }

  /// Blocks until all that is received is here and all that is sent may be overwritten. No rank of the group sends more
  /// than `tensors_sent` different tensors to ranks of its host.
  void exchange(const Call& call, int tensors_sent, const std::vector<Outgoing>& outgoing,
                const std::vector<Incoming>& incoming);
  void send_chunk(const Call& call, const std::vector<SharedWindows::Piece>& pieces);
  /// Its view of the window, to be released.
  Tensor receive_chunk(const Call& call, int from, DType dtype, int64_t numel);
  void copy_chunk(const Call& call, int from, const Tensor& to, bool streaming);

  int64_t segment_length(DType dtype) const;
  std::vector<Slot> make_slots(const Tensor& full) const;
  void send_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment);
  void add_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment, const Tensor& own, ReduceOp op);
  /// The ranks of the host get this rank's segment of full, and this rank one of theirs.
  void spread_segment(const Call& call, const Tensor& full, Interval segment);
  void collect_segment(const Call& call, const Tensor& full, Interval segment);
  /// own (this rank's part, by part_of) = the reduction of all full. With `spread` own lies in full, and the parts of
  /// the host's other ranks get their results too.
  void reduce_parts(const Call& call, const Tensor& full, const Tensor& own, ReduceOp op, bool spread);

  MpiEngine& engine_;
  MPI_Comm group_;
  Context context_;
  Reduction reduction_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<const Neighbours> neighbours_;
  std::vector<int> window_ranks_;  // by rank of the group, -1 on other hosts and for all without windows
  // Ranks of the group, the next one first, so that none is flooded.
  std::vector<int> all_peers_, local_peers_, remote_peers_;
  int most_local_peers_ = 0;  // of any rank of the group
};

}  // namespace nought
