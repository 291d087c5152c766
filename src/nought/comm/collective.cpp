#include "nought/comm/collective.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "nought/comm/transport.h"

namespace nought {
namespace {

void check_rank(Collective::Kind kind, std::string_view role, int rank, int size) {
  require<CommError>(0 <= rank && rank < size, "{}: {} {} is not a rank of a group of {}", name_of(kind), role, rank,
                     size);
}

void check_peer(Collective::Kind kind, int peer, int tag, int rank, int size) {
  check_rank(kind, "peer", peer, size);
  require<CommError>(peer != rank, "{}: rank {} is itself; copy() moves data within a rank", name_of(kind), peer);
  require<CommError>(0 <= tag && tag < 32767, "{}: tag {} is not in [0, 32767)", name_of(kind), tag);
}

/// ShapeError unless both are defined, have one dtype, and `whole` has `parts` times as many elements as `part`.
void check_parts(Collective::Kind kind, const Tensor& whole, const Tensor& part, int parts, int size) {
  require<ShapeError>(whole.defined() && part.defined(), "{} needs two tensors, got {} and {}", name_of(kind), whole,
                      part);
  require<ShapeError>(whole.dtype() == part.dtype() && whole.numel() == parts * part.numel(),
                      "{} in group of {}: {} must have the dtype and {} times the elements of {}", name_of(kind), size,
                      whole, parts, part);
}

void check_apart(const Collective& call) {
  require<ShapeError>(call.in.numel() == 0 || call.in.raw() != call.out.raw(), "{}: in and out must be two tensors",
                      name_of(call.kind));
}

/// ShapeError unless the rows of all_to_all_v() are as many as the counts say.
void check_rows(const Collective& call, int rank, int size) {
  const Tensor &in = call.in, &out = call.out;
  const RowCounts& counts = call.counts;
  const auto check = [&](std::string_view name, const Tensor& rows, const std::vector<int64_t>& count) {
    require<ShapeError>(std::ssize(count) == size && *std::min_element(count.begin(), count.end()) >= 0,
                        "all_to_all_v in group of {}: {} has the counts [{}], expected {} that are at least 0", size,
                        name, fmt::join(count, ", "), size);
    const int64_t sum = std::accumulate(count.begin(), count.end(), int64_t{0});
    require<ShapeError>(rows.defined() && rows.rank() > 0 && rows.dim(0) == sum,
                        "all_to_all_v: {} is {}, the counts say {} rows", name, rows, sum);
  };
  check("in", in, counts.sent);
  check("out", out, counts.received);
  const auto differ_in_rows = [&] {
    if (in.rank() != out.rank() || in.dtype() != out.dtype()) return false;
    for (int i = 1; i < in.rank(); ++i)
      if (in.dim(i) != out.dim(i)) return false;
    return true;
  };
  require<ShapeError>(differ_in_rows(), "all_to_all_v: in is {} and out {}, they must differ in their rows alone", in,
                      out);
  const auto own = static_cast<size_t>(rank);
  require<ShapeError>(counts.sent[own] == counts.received[own],
                      "all_to_all_v: rank {} sends itself {} rows and receives {}", rank, counts.sent[own],
                      counts.received[own]);
  check_apart(call);
}

}  // namespace

std::string_view name_of(Collective::Kind kind) {
  static constexpr std::array<std::string_view, kNumCollectives + 2> kNames{
      "broadcast",  "reduce",       "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
      "all_to_all", "all_to_all_v", "send",       "recv",   "barrier",    "split",   "send_recv"};
  return kNames[static_cast<size_t>(kind)];
}

void Collective::check(int rank, int size) const {
  if (kind == broadcast || kind == gather) check_rank(kind, "root", root, size);
  if (kind == send || kind == recv) check_peer(kind, root, tag, rank, size);
  if (kind == all_to_all_v) return check_rows(*this, rank, size);
  if (kind == send_recv) {
    check_peer(send, root, tag, rank, size), check_peer(recv, source, tag, rank, size);
    check_parts(send, in, in, 1, size), check_parts(recv, out, out, 1, size);
    return;
  }
  if (!uses_in() && !uses_out(rank)) return;
  const bool joins = kind == all_gather || (kind == gather && rank == root), cuts = kind == reduce_scatter;
  const Tensor &first = uses_in() ? in : out, &second = uses_out(rank) ? out : in;
  check_parts(kind, joins ? second : first, joins ? first : second, joins || cuts ? size : 1, size);
  if (kind != all_to_all) return;
  require<ShapeError>(in.numel() % size == 0, "all_to_all: {} does not divide into {} parts", in, size);
  check_apart(*this);
}

int64_t Collective::elements_sent(int rank, int size) const {
  const int64_t peers = size - 1;
  const bool is_root = rank == root;
  const int64_t own = reduces() ? part_of(input().numel(), rank, size).size() : 0;
  switch (kind) {
    case broadcast:
      return is_root ? peers * out.numel() : 0;
    case all_reduce:
      return out.numel() - own + peers * own;
    case gather:
      return is_root ? 0 : in.numel();
    case all_gather:
      return peers * in.numel();
    case reduce_scatter:
      return peers * out.numel();
    case all_to_all:
      return in.numel() / size * peers;
    case all_to_all_v:
      return in.numel() - rows_of(in, counts.sent, rank).numel();
    case send:
      return in.numel();
    default:
      return 0;
  }
}

Tensor Collective::to(int peer, int rank, int size) const {
  switch (kind) {
    case broadcast:
      return rank == root ? out : Tensor();
    case gather:
      return peer == root ? in : Tensor();
    case all_gather:
      return in;
    case all_to_all:
      return part_of(in, peer, size);
    case all_to_all_v:
      return rows_of(in, counts.sent, peer);
    default:
      return {};
  }
}

Tensor Collective::from(int peer, int rank, int size) const {
  switch (kind) {
    case broadcast:
      return peer == root && peer != rank ? out : Tensor();
    case gather:
      return rank == root ? part_of(out, peer, size) : Tensor();
    case all_gather:
    case all_to_all:
      return part_of(out, peer, size);
    case all_to_all_v:
      return rows_of(out, counts.received, peer);
    default:
      return {};
  }
}

int64_t Traffic::total_bytes() const {
  int64_t total = 0;
  for (const Count& count : counts) total += count.bytes;
  return total;
}

int64_t Traffic::total_elements() const {
  int64_t total = 0;
  for (const Count& count : counts) total += count.elements;
  return total;
}

}  // namespace nought
