#include "nought/comm/mpi_transport.h"

#include <map>

namespace nought {
namespace {

// Collectives of a group run one after the other and messages between two ranks keep their order, so one tag is enough;
// send and recv have the others.
constexpr int kCollectiveTag = 0;
constexpr int tag_of(int user_tag) { return user_tag + 1; }

// So many chunks are written before the first is read: the peers have had the time to write theirs.
constexpr int64_t kChunksAhead = 2;
// What is received and longer than this would not stay in the cache.
constexpr int64_t kLeastStreamedBytes = 256 << 10;

/// The part of the tensor that a segment of its indices covers; parts may be shorter than others.
Tensor segment_of(const Tensor& tensor, Interval segment) {
  const Interval inside = intersect(segment, {0, tensor.numel()});
  return inside.empty() ? tensor.flat(0, 0) : tensor.flat(inside.begin, inside.end);
}

/// Streaming: past the caches.
void copy(const Tensor& from, const Tensor& to, bool streaming) {
  if (!streaming || from.raw() == to.raw()) return copy_now(from, to);
  copy_streaming(to.raw(), from.raw(), static_cast<size_t>(to.bytes()));
}

}  // namespace

MpiTransport::MpiTransport(MpiEngine& engine, MPI_Comm group, const Context& context,
                           std::shared_ptr<const Neighbours> neighbours)
    : engine_(engine),
      group_(group),
      context_(context),
      reduction_(context.kernels),
      neighbours_(std::move(neighbours)) {
  check_mpi(MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(group_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group_, &size_), "MPI_Comm_size");
  local_ranks_.assign(static_cast<size_t>(size_), -1);
  if (neighbours_->slot_bytes > 0) place_ranks(*neighbours_);
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    all_peers_.push_back(peer);
    (is_local(peer) ? local_peers_ : remote_peers_).push_back(peer);
  }
}

void MpiTransport::place_ranks(const Neighbours& neighbours) {
  std::map<int, int> ranks_of_host;
  const int own_host = neighbours.host[static_cast<size_t>(rank_)];
  for (size_t rank = 0; rank < neighbours.host.size(); ++rank) {
    most_local_peers_ = std::max(most_local_peers_, ranks_of_host[neighbours.host[rank]]++);
    if (neighbours.host[rank] == own_host) local_ranks_[rank] = neighbours.local_rank[rank];
  }
}

MpiTransport::~MpiTransport() {
  if (!engine_.usable()) return;  // after a failure, messages of this group may still be under way
  const MpiLock lock;
  MPI_Comm_free(&group_);
}

void MpiTransport::send_chunk(const Call& call, const std::vector<SharedWindows::OutgoingChunk>& outgoing_chunks) {
  if (local_peers_.empty()) return;
  engine_.wait_with_messages(call, !remote_peers_.empty(),
                             [&] { return neighbours_->windows->try_send(outgoing_chunks); });
}

Tensor MpiTransport::receive_chunk(const Call& call, int from, DType dtype, int64_t numel) {
  Tensor chunk;
  engine_.wait_with_messages(call, !remote_peers_.empty(), [&] {
    chunk = neighbours_->windows->try_receive(local_rank(from), dtype, numel);
    return chunk.defined();
  });
  return chunk;
}

void MpiTransport::copy_chunk(const Call& call, int from, const Tensor& to, bool streaming) {
  if (to.numel() == 0) return;
  copy(receive_chunk(call, from, to.dtype(), to.numel()), to, streaming);
  neighbours_->windows->release(local_rank(from));
}

void MpiTransport::exchange(const Call& call, int tensors_sent, const std::vector<Outgoing>& outgoing,
                            const std::vector<Incoming>& incoming) {
  MpiRequests requests;
  std::vector<SharedWindows::OutgoingChunk> outgoing_chunks;
  int64_t longest = 0, received = 0;
  for (const Incoming& in : incoming) {
    if (!is_local(in.from)) requests.receive(in.tensor, in.from, kCollectiveTag, group_);
    longest = std::max(longest, in.tensor.bytes());
    received += in.tensor.bytes();
  }
  for (const Outgoing& out : outgoing) {
    outgoing_chunks.emplace_back();
    for (const int peer : out.to) {
      if (is_local(peer)) outgoing_chunks.back().readers.push_back(local_rank(peer));
      if (!is_local(peer)) requests.send(out.tensor, peer, kCollectiveTag, group_);
    }
    longest = std::max(longest, out.tensor.bytes());
  }
  const int64_t chunk_bytes = neighbours_->windows
                                  ? neighbours_->windows->slot_bytes() / std::max(tensors_sent, 1) / 64 * 64
                                  : kLongestSegmentBytes;  // of what is kept, while messages are under way
  const bool streaming = received >= kLeastStreamedBytes;
  const int64_t chunks = ceil_div(longest, chunk_bytes);
  const auto chunk_of = [&](const Tensor& tensor, int64_t i) {
    const int64_t size = size_of(tensor.dtype());
    return segment_of(tensor, {i * chunk_bytes / size, (i + 1) * chunk_bytes / size});
  };
  for (int64_t i = 0; i < chunks + kChunksAhead; ++i) {
    for (size_t k = 0; k < outgoing.size(); ++k) outgoing_chunks[k].data = chunk_of(outgoing[k].tensor, i);
    if (i < chunks) send_chunk(call, outgoing_chunks);
    for (size_t k = 0; k < outgoing.size(); ++k)
      if (outgoing[k].kept.defined()) copy(outgoing_chunks[k].data, chunk_of(outgoing[k].kept, i), streaming);
    if (i < kChunksAhead) continue;
    for (const Incoming& in : incoming)
      if (is_local(in.from)) copy_chunk(call, in.from, chunk_of(in.tensor, i - kChunksAhead), streaming);
  }
  engine_.wait(call, requests);
}

void MpiTransport::run(const Call& call, const Collective& c) {
  switch (c.kind) {
    case Collective::broadcast:
      return remote_peers_.empty() ? move(call, c) : broadcast(call, c.out, c.root);
    case Collective::reduce_scatter:
      return reduce_parts(call, c.in, c.out, c.op, /*spread=*/false);
    case Collective::all_reduce:
      return all_reduce(call, c.out, c.op);
    case Collective::send:
      return post(call, c)(call);
    case Collective::recv: {
      MpiRequests requests;
      requests.receive(c.out, c.root, tag_of(c.tag), group_);
      return engine_.wait(call, requests, /*patient=*/true);
    }
    case Collective::barrier:
      return barrier(call);
    default:
      return move(call, c);
  }
}

void MpiTransport::broadcast(const Call& call, const Tensor& tensor, int root) {
  MpiRequests requests;
  requests.broadcast(tensor, root, group_);
  engine_.wait(call, requests);
}

void MpiTransport::move(const Call& call, const Collective& c) {
  const bool one_for_all = c.kind == Collective::broadcast || c.kind == Collective::all_gather;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  if (const Tensor own = c.to(rank_, rank_, size_))
    outgoing.push_back(
        {.tensor = own, .to = one_for_all ? all_peers_ : std::vector<int>{}, .kept = c.from(rank_, rank_, size_)});
  for (const int peer : all_peers_) {
    const Tensor sent = one_for_all ? Tensor() : c.to(peer, rank_, size_), received = c.from(peer, rank_, size_);
    if (sent) outgoing.push_back({.tensor = sent, .to = {peer}});
    if (received) incoming.push_back({received, peer});
  }
  exchange(call, one_for_all || c.kind == Collective::gather ? 1 : most_local_peers_, outgoing, incoming);
}

int64_t MpiTransport::segment_length(DType dtype) const {
  return reduction_segment(dtype, size_, most_local_peers_, neighbours_->slot_bytes);
}

std::vector<MpiTransport::Slot> MpiTransport::make_slots(const Tensor& full) const {
  const int64_t length = std::min(segment_length(full.dtype()), part(full, rank_).numel());
  std::vector<Slot> slots(kReductionSlots);
  for (Slot& slot : slots) {
    slot.buffers.resize(static_cast<size_t>(size_));
    for (const int peer : remote_peers_)
      slot.buffers[static_cast<size_t>(peer)] = context_.empty({length}, full.dtype(), Category::communication);
  }
  return slots;
}

void MpiTransport::send_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment) {
  const int64_t mine = segment_of(part(full, rank_), segment).numel();
  for (const int peer : remote_peers_) {
    const Tensor& buffer = slot.buffers[static_cast<size_t>(peer)];
    slot.requests.receive(buffer.flat(0, mine), peer, kCollectiveTag, group_);
    slot.requests.send(segment_of(part(full, peer), segment), peer, kCollectiveTag, group_);
  }
  std::vector<SharedWindows::OutgoingChunk> outgoing_chunks;
  for (const int peer : local_peers_)
    outgoing_chunks.push_back({segment_of(part(full, peer), segment), {local_rank(peer)}});
  send_chunk(call, outgoing_chunks);
}

void MpiTransport::add_segment(const Call& call, Slot& slot, const Tensor& full, Interval segment, const Tensor& own,
                               ReduceOp op) {
  engine_.wait(call, slot.requests);
  const Tensor out = segment_of(own, segment);
  if (out.numel() == 0) return;
  std::vector<Tensor> inputs;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      inputs.push_back(segment_of(part(full, rank_), segment));
    } else if (is_local(peer)) {
      inputs.push_back(receive_chunk(call, peer, out.dtype(), out.numel()));
    } else {
      inputs.push_back(slot.buffers[static_cast<size_t>(peer)].flat(0, out.numel()));
    }
  }
  reduction_.run(std::move(inputs), out, op);
  for (const int peer : local_peers_) neighbours_->windows->release(local_rank(peer));
}

void MpiTransport::spread_segment(const Call& call, const Tensor& full, Interval segment) {
  SharedWindows::OutgoingChunk chunk{segment_of(part(full, rank_), segment), {}};
  for (const int peer : local_peers_) chunk.readers.push_back(local_rank(peer));
  send_chunk(call, {chunk});
}

void MpiTransport::collect_segment(const Call& call, const Tensor& full, Interval segment) {
  for (const int peer : local_peers_)
    copy_chunk(call, peer, segment_of(part(full, peer), segment), /*streaming=*/false);
}

void MpiTransport::reduce_parts(const Call& call, const Tensor& full, const Tensor& own, ReduceOp op, bool spread) {
  std::vector<Slot> slots = make_slots(full);
  const int64_t length = segment_length(full.dtype());
  const int64_t count = ceil_div(part(full, 0).numel(), length);  // the first part is the longest
  const auto segment = [&](int64_t i) { return Interval{i * length, (i + 1) * length}; };
  const auto slot = [&](int64_t i) -> Slot& { return slots[static_cast<size_t>(i % kReductionSlots)]; };
  for (int64_t i = 0; i < std::min<int64_t>(count, kReductionSlots); ++i) send_segment(call, slot(i), full, segment(i));
  for (int64_t i = 0; i < count; ++i) {
    add_segment(call, slot(i), full, segment(i), own, op);
    if (spread) spread_segment(call, full, segment(i));
    if (i + kReductionSlots < count) send_segment(call, slot(i), full, segment(i + kReductionSlots));
    // One behind: the peers have had time to add it.
    if (spread && i > 0) collect_segment(call, full, segment(i - 1));
  }
  if (spread && count > 0) collect_segment(call, full, segment(count - 1));
}

void MpiTransport::all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) {
  reduce_parts(call, tensor, part(tensor, rank_), op, /*spread=*/true);
  if (remote_peers_.empty()) return;
  std::vector<Incoming> incoming;
  for (const int peer : remote_peers_) incoming.push_back({part(tensor, peer), peer});
  exchange(call, 1, {{.tensor = part(tensor, rank_), .to = remote_peers_}}, incoming);
}

Transport::Posted MpiTransport::post(const Call&, const Collective& send) {
  const auto requests = std::make_shared<MpiRequests>();
  requests->send(send.in, send.root, tag_of(send.tag), group_);
  return [this, requests](const Call& call) { engine_.wait(call, *requests, /*patient=*/true); };
}

void MpiTransport::barrier(const Call& call) {
  MpiRequests requests;
  requests.barrier(group_);
  engine_.wait(call, requests);
}

std::unique_ptr<Transport> MpiTransport::split(const Call& call, int color, int key) {
  barrier(call);  // MPI_Comm_split cannot be given up: it begins when all ranks are there
  const MpiLock lock;
  MPI_Comm group;
  check_mpi(MPI_Comm_split(group_, color, key, &group), "MPI_Comm_split");
  auto neighbours = std::make_shared<const Neighbours>();
  if (neighbours_->slot_bytes > 0) {
    // Groups work at the same time, so each has windows of its own.
    MPI_Comm host;
    check_mpi(MPI_Comm_split(group, neighbours_->host[static_cast<size_t>(rank_)], /*key=*/0, &host), "MPI_Comm_split");
    neighbours = meet_neighbours(group, host, context_);
    check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  }
  return std::make_unique<MpiTransport>(engine_, group, context_, neighbours);
}

}  // namespace nought
