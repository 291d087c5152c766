// Collective: one call of a group of ranks as a struct: its kind, its tensors, and what else the call says.
//
// Design goals: what is called is said once. visit() lists the tensors with what a rank does with them, and to() and
// from() say which of their parts go where; checks, counters of traffic, flight records, every transport and the
// planner read these. A new collective is a Kind, its lines in collective.cpp, and a function of Communicator.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "nought/kernels/operation.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// sum adds in the order of the ranks; pairwise_sum in a binary tree, so that neighbours come first.
enum class ReduceOp : uint8_t { sum, max, min, pairwise_sum };

constexpr bool adds(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::pairwise_sum; }

/// How many rows all_to_all_v() sends to each rank and receives from each, by rank.
struct RowCounts {
  std::vector<int64_t> sent, received;
};

struct Collective {
  /// What each does stands at the function of Communicator that has its name. Flight records keep the numbers, of which
  /// some stood for calls that are gone.
  enum Kind : uint8_t {
    broadcast = 0,
    all_reduce = 2,
    gather,
    all_gather,
    reduce_scatter = 6,
    all_to_all,
    all_to_all_v,
    send,
    recv,
    barrier,
    split,     // Communicator::split(): it is recorded, and has no place in Traffic
    send_recv  // is counted and recorded as a send and a recv
  };

  Kind kind = barrier;
  Tensor in = {}, out = {};  // what a rank gives and what it gets; broadcast and all_reduce work in `out` alone
  int root = -1;             // or the other rank of a message; of send_recv where it goes
  int source = -1;           // send_recv receives from it
  ReduceOp op = ReduceOp::sum;
  int tag = 0;            // messages of one tag meet
  RowCounts counts = {};  // all_to_all_v moves so many rows

  bool reduces() const { return kind == all_reduce || kind == reduce_scatter; }
  /// What ranks add or move.
  const Tensor& input() const { return in ? in : out; }
  /// The tensor whose bytes the call is said to have; undefined for a barrier.
  const Tensor& payload() const { return kind == all_gather ? out : input(); }

  /// Whether the rank reads `in`, and whether it works in `out`: some kinds have one of them, or use it on root alone.
  bool uses_in() const {
    return kind != broadcast && kind != all_reduce && kind != recv && kind != barrier && kind != split;
  }
  bool uses_out(int rank) const {
    return kind == gather ? rank == root : kind != send && kind != barrier && kind != split;
  }
  /// Calls v(tensor, role) for each tensor that the rank uses.
  template <class V>
  void visit(int rank, V&& v) const {
    visit_tensors(*this, rank, v);
  }
  template <class V>
  void visit(int rank, V&& v) {
    visit_tensors(*this, rank, v);
  }

  /// Throws CommError or ShapeError unless a rank of `size` can call it.
  void check(int rank, int size) const;
  /// What leaves the rank; see Traffic.
  int64_t elements_sent(int rank, int size) const;

  /// Where nothing is added up: what `rank` sends to `peer`, and where it puts what comes from there; with itself as
  /// the peer what it keeps. Undefined if there is nothing.
  Tensor to(int peer, int rank, int size) const;
  Tensor from(int peer, int rank, int size) const;

 private:
  template <class Self, class V>
  static void visit_tensors(Self& self, int rank, V& v) {
    const bool tells = self.kind == broadcast && rank == self.root;
    if (self.uses_in()) v(self.in, Role::in);
    if (self.uses_out(rank)) v(self.out, self.kind == all_reduce ? Role::in_out : tells ? Role::in : Role::out);
  }
};

/// How many kinds Traffic counts: the first ones.
inline constexpr int kNumCollectives = 12;
std::string_view name_of(Collective::Kind kind);
/// True if the ranks' tensors in one call may have different sizes.
constexpr bool sizes_differ(Collective::Kind kind) { return kind == Collective::all_to_all_v; }

/// What this rank sent, by collective. In a group of N ranks, each rank sends per call:
///   all_gather, reduce_scatter   N-1 shards
///   all_reduce                   what a reduce_scatter and an all_gather send
///   all_to_all                   (N-1)/N of the tensor
///   all_to_all_v                 the rows for other ranks
///   gather                       its tensor; root sends nothing
///   broadcast                    root sends N-1 times the tensor; the others send nothing. A backend may spread it
///   over
///                                the ranks; it is counted on root all the same.
///   send                         the tensor
struct Traffic {
  /// Payload bytes and elements that left for other ranks, and calls.
  struct Count {
    int64_t bytes = 0, elements = 0, calls = 0;
  };
  std::array<Count, kNumCollectives> counts{};
  const Count& operator[](Collective::Kind kind) const { return counts[static_cast<size_t>(kind)]; }
  int64_t total_bytes() const;
  int64_t total_elements() const;
};

}  // namespace nought
