#include "nought/comm/mpi_transport.h"

#include "nought/comm/mpi_buffers.h"

namespace nought {
namespace {

// Collectives of a group run one after the other and messages between two ranks keep their order, so one tag is enough;
// send and recv have the others.
constexpr int kCollectiveTag = 0;
constexpr int tag_of(int user_tag) { return user_tag + 1; }

/// The part of the tensor that a segment of its indices covers; parts may be shorter than others.
Tensor segment_of(const Tensor& tensor, Interval segment) {
  const Interval inside = intersect(segment, {0, tensor.numel()});
  return inside.empty() ? tensor.flat(0, 0) : tensor.flat(inside.begin, inside.end);
}

}  // namespace

MpiTransport::MpiTransport(MpiEngine& engine, MPI_Comm group, const Context& context)
    : engine_(engine), group_(group), context_(context), reduction_(context.kernels) {
  check_mpi(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
}

MpiTransport::~MpiTransport() {
  if (!engine_.usable()) return;  // after a failure, messages of this group may still be under way
  try {
    const Call call{.name = "the end of a group",
                    .rank = rank_,
                    .size = size_,
                    .timeout = std::chrono::minutes(10),
                    .deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10)};
    engine_.flush(call);
    MPI_Comm_free(&group_);
  } catch (const CommError&) {
    // The engine refuses every later call, which is where it is reported.
  }
}

void MpiTransport::broadcast(const Call& call, const Tensor& tensor, int root) {
  constexpr int64_t kLongest = int64_t{1} << 30;  // MPI counts in int
  MpiRequests requests;
  for (int64_t begin = 0; begin < tensor.bytes(); begin += kLongest) {
    MPI_Request request;
    const int bytes = static_cast<int>(std::min(kLongest, tensor.bytes() - begin));
    check_mpi(MPI_Ibcast(tensor.raw() + begin, bytes, MPI_BYTE, root, group_, &request), "MPI_Ibcast");
    requests.add(request);
  }
  engine_.wait(call, requests);
}

void MpiTransport::gather(const Call& call, const Tensor& in, const Tensor& out, int root) {
  MpiRequests requests;
  if (rank_ == root) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != root) requests.receive(part(out, peer), peer, kCollectiveTag, group_);
    }
    copy(in, part(out, root));
  } else {
    requests.send(in, root, kCollectiveTag, group_);
  }
  engine_.wait(call, requests);
}

void MpiTransport::scatter(const Call& call, const Tensor& in, const Tensor& out, int root) {
  MpiRequests requests;
  if (rank_ == root) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != root) requests.send(part(in, peer), peer, kCollectiveTag, group_);
    }
    copy(part(in, root), out);
  } else {
    requests.receive(out, root, kCollectiveTag, group_);
  }
  engine_.wait(call, requests);
}

void MpiTransport::gather_parts(const Call& call, const Tensor& full) {
  MpiRequests requests;
  for (int step = 1; step < size_; ++step) {  // each rank begins with another peer, so that none is flooded
    const int source = (rank_ + size_ - step) % size_;
    requests.receive(part(full, source), source, kCollectiveTag, group_);
  }
  for (int step = 1; step < size_; ++step) {
    requests.send(part(full, rank_), (rank_ + step) % size_, kCollectiveTag, group_);
  }
  engine_.wait(call, requests);
}

void MpiTransport::all_gather(const Call& call, const Tensor& shard, const Tensor& full) {
  copy(shard, part(full, rank_));
  gather_parts(call, full);
}

void MpiTransport::all_to_all(const Call& call, const Tensor& in, const Tensor& out) {
  MpiRequests requests;
  for (int step = 1; step < size_; ++step) {
    const int source = (rank_ + size_ - step) % size_;
    requests.receive(part(out, source), source, kCollectiveTag, group_);
  }
  for (int step = 1; step < size_; ++step) {
    const int destination = (rank_ + step) % size_;
    requests.send(part(in, destination), destination, kCollectiveTag, group_);
  }
  copy(part(in, rank_), part(out, rank_));
  engine_.wait(call, requests);
}

std::vector<MpiTransport::Slot> MpiTransport::make_slots(const Tensor& full) const {
  const int64_t length = std::min(reduction_segment(full.dtype(), size_), part(full, rank_).numel());
  std::vector<Slot> slots(kReductionSlots);
  for (Slot& slot : slots) {
    for (int peer = 0; peer < size_; ++peer) {
      slot.buffers.push_back(peer == rank_ ? Tensor()
                                           : context_.empty({length}, full.dtype(), Category::communication));
    }
  }
  return slots;
}

void MpiTransport::post_segment(Slot& slot, const Tensor& full, Interval segment) {
  const int64_t mine = segment_of(part(full, rank_), segment).numel();
  for (int step = 1; step < size_; ++step) {
    const int source = (rank_ + size_ - step) % size_;
    const Tensor& buffer = slot.buffers[static_cast<size_t>(source)];
    slot.requests.receive(buffer.flat(0, mine), source, kCollectiveTag, group_);
  }
  for (int step = 1; step < size_; ++step) {
    const int destination = (rank_ + step) % size_;
    slot.requests.send(segment_of(part(full, destination), segment), destination, kCollectiveTag, group_);
  }
}

void MpiTransport::add_segment(Slot& slot, const Tensor& full, Interval segment, const Tensor& own, ReduceOp op) {
  const Tensor out = segment_of(own, segment);
  std::vector<Tensor> inputs;
  for (int peer = 0; peer < size_; ++peer) {
    inputs.push_back(peer == rank_ ? segment_of(part(full, rank_), segment)
                                   : slot.buffers[static_cast<size_t>(peer)].flat(0, out.numel()));
  }
  reduction_.run(std::move(inputs), out, op);
}

void MpiTransport::reduce_parts(const Call& call, const Tensor& full, const Tensor& own, ReduceOp op) {
  std::vector<Slot> slots = make_slots(full);
  const int64_t length = reduction_segment(full.dtype(), size_);
  const int64_t count = ceil_div(part(full, 0).numel(), length);  // the first part is the longest
  const auto segment = [&](int64_t i) { return Interval{i * length, (i + 1) * length}; };
  const auto slot = [&](int64_t i) -> Slot& { return slots[static_cast<size_t>(i % kReductionSlots)]; };
  for (int64_t i = 0; i < std::min<int64_t>(count, kReductionSlots); ++i) post_segment(slot(i), full, segment(i));
  for (int64_t i = 0; i < count; ++i) {
    engine_.wait(call, slot(i).requests);
    add_segment(slot(i), full, segment(i), own, op);
    if (i + kReductionSlots < count) post_segment(slot(i), full, segment(i + kReductionSlots));
  }
}

void MpiTransport::reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp op) {
  reduce_parts(call, full, shard, op);
}

void MpiTransport::all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) {
  reduce_parts(call, tensor, part(tensor, rank_), op);
  gather_parts(call, tensor);
}

void MpiTransport::reduce(const Call& call, const Tensor& in, const Tensor& out, int root, ReduceOp op) {
  const int64_t block_length = reduction_segment(in.dtype(), size_) * size_;  // so that a part is one segment
  for (int64_t begin = 0; begin < in.numel(); begin += block_length) {
    const int64_t end = std::min(in.numel(), begin + block_length);
    const Tensor block = in.flat(begin, end);
    const Tensor result = rank_ == root ? out.flat(begin, end) : Tensor();
    const Tensor own = rank_ == root ? part(result, rank_)
                                     : context_.empty(part(block, rank_).shape(), in.dtype(), Category::communication);
    reduce_parts(call, block, own, op);
    MpiRequests requests;
    if (rank_ == root) {
      for (int peer = 0; peer < size_; ++peer) {
        if (peer != root) requests.receive(part(result, peer), peer, kCollectiveTag, group_);
      }
    } else {
      requests.send(own, root, kCollectiveTag, group_);
    }
    engine_.wait(call, requests);
  }
}

void MpiTransport::send(const Call& call, const Tensor& tensor, int destination, int tag) {
  const Tensor message = context_.empty(tensor.shape(), tensor.dtype(), Category::communication);
  copy(tensor, message);
  engine_.post(call, message, destination, tag_of(tag), group_);
}

void MpiTransport::recv(const Call& call, const Tensor& tensor, int source, int tag) {
  MpiRequests requests;
  requests.receive(tensor, source, tag_of(tag), group_);
  engine_.wait(call, requests);
}

void MpiTransport::barrier(const Call& call) {
  MpiRequests requests;
  MPI_Request request;
  check_mpi(MPI_Ibarrier(group_, &request), "MPI_Ibarrier");
  requests.add(request);
  engine_.wait(call, requests);
}

std::unique_ptr<Transport> MpiTransport::split(const Call& call, int color, int key) {
  barrier(call);  // MPI_Comm_split cannot be given up: it begins when all ranks are there
  MPI_Comm group;
  check_mpi(MPI_Comm_split(group_, color, key, &group), "MPI_Comm_split");
  return std::make_unique<MpiTransport>(engine_, group, context_);
}

}  // namespace nought
