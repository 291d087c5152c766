// MpiTransport: the collectives of one MPI group. Ranks of one host exchange data through shared windows, ranks of
// different hosts by non-blocking messages.
//
// Reductions are direct exchanges: each rank sends part j of its tensor to rank j, which adds the parts in rank order.
// A part is cut into segments; some are under way while one is added. What a rank of the same host sent is added where
// it lies, in that rank's window. What came from another host is added from a small buffer.
#pragma once

#include "nought/comm/mpi_engine.h"
#include "nought/comm/mpi_neighbours.h"
#include "nought/comm/reduction.h"

namespace nought {

class MpiTransport final : public Transport {
 public:
  /// Owns the group from now on, and frees it at the end. `neighbours` are those of the group.
  MpiTransport(MpiEngine& engine, MPI_Comm group, const Context& context, std::shared_ptr<const Neighbours> neighbours);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }

  void run(const Call& call, const Collective& collective) override;
  Posted post(const Call& call, const Collective& send) override;
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override;
  std::shared_ptr<Stream> make_stream() const override { return engine_.make_stream(); }
  void cancel() override { engine_.cancel(); }

 private:
  /// A tensor to send to some ranks. If `kept` is defined, it is copied there too.
  struct Outgoing {
    Tensor tensor;
    std::vector<int> to;
    Tensor kept = {};
  };
  struct Incoming {
    Tensor tensor;
    int from = 0;
  };
  /// The buffers that receive one segment of a reduction from other hosts, and the messages that fill them.
  struct Slot {
    MpiRequests requests;
    std::vector<Tensor> buffers;  // by rank; undefined for ranks of this host
  };

  void place_ranks(const Neighbours& neighbours);
  Tensor part(const Tensor& tensor, int rank) const { return part_of(tensor, rank, size_); }
  bool is_local(int rank) const { return local_ranks_[static_cast<size_t>(rank)] >= 0; }
  int local_rank(int rank) const { return local_ranks_[static_cast<size_t>(rank)]; }

  void broadcast(const Call& call, const Tensor& tensor, int root);
  /// What is moved and not added up.
  void move(const Call& call, const Collective& collective);
  void all_reduce(const Call& call, const Tensor& tensor, ReduceOp op);
  void barrier(const Call& call);

  /// Sends and receives, and blocks until everything has arrived and what was sent may be overwritten. `tensors_sent`
  /// is the most different tensors that any rank of the group sends to ranks of its host.
  void exchange(const Call& call, int tensors_sent, const std::vector<Outgoing>& outgoing,
                const std::vector<Incoming>& incoming);
  void send_chunk(const Call& call, const std::vector<SharedWindows::OutgoingChunk>& outgoing_chunks);
  /// The next chunk of a rank of this host, as a view of its window. The caller releases it.
  Tensor receive_chunk(const Call& call, int from, DType dtype, int64_t numel);
  void copy_chunk(const Call& call, int from, const Tensor& to, bool streaming);

  int64_t segment_length(DType dtype) const;
  std::vector<Slot> make_slots(const Tensor& full) const;
  void send_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment);
  void add_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment, const Tensor& own, ReduceOp op);
  /// Sends this rank's segment of `full` to the other ranks of the host.
  void spread_segment(const Call& call, const Tensor& full, Interval segment);
  /// Receives what spread_segment() sent on the other ranks of the host.
  void collect_segment(const Call& call, const Tensor& full, Interval segment);
  /// own = this rank's part (by part_of) of the reduction of all ranks' full. With `spread`, own lies in full, and the
  /// parts of the other ranks of the host are filled in too.
  void reduce_parts(const Call& call, const Tensor& full, const Tensor& own, ReduceOp op, bool spread);

  MpiEngine& engine_;
  MPI_Comm group_;
  Context context_;
  Reduction reduction_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<const Neighbours> neighbours_;
  std::vector<int> local_ranks_;  // by rank of the group: its number on this host; -1 if it is reached by messages
  // The other ranks of the group, from the next one on, so that not all ranks send to the same one first.
  std::vector<int> all_peers_, local_peers_, remote_peers_;
  int most_local_peers_ = 0;  // the most local peers that any rank of the group has
};

}  // namespace nought
