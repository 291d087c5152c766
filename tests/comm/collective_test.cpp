#include "nought/comm/collective.h"

#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/kernels/kernels.h"

namespace nought::collective_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Collective, every_kind_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (int i = 0; i <= Collective::send_recv; ++i) names.insert(name_of(static_cast<Collective::Kind>(i)));
  EXPECT_EQ(names.size(), size_t{Collective::send_recv} + 1);
  EXPECT_EQ(name_of(Collective::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(Collective::split, kNumCollectives) << "Traffic counts the kinds before it";
}

/// What a rank of 3 calls: `n` elements are one rank's.
Collective call_of(Collective::Kind kind, int rank, int root = 1) {
  constexpr int kRanks = 3;
  constexpr int64_t n = 4;
  const Context context = Context::reference();
  const auto tensor = [&](int64_t count) { return context.zeros({count}, DType::f32); };
  const bool is_root = rank == root;
  switch (kind) {
    case Collective::broadcast:
      return {.kind = kind, .out = tensor(n), .root = root};
    case Collective::gather:
      return {.kind = kind, .in = tensor(n), .out = is_root ? tensor(kRanks * n) : Tensor(), .root = root};
    case Collective::all_gather:
      return {.kind = kind, .in = tensor(n), .out = tensor(kRanks * n)};
    case Collective::all_to_all:
      return {.kind = kind, .in = tensor(kRanks * n), .out = tensor(kRanks * n)};
    default: {  // each rank sends as many rows to a rank as that one's number says
      const RowCounts counts{{0, 1, 2}, {rank, rank, rank}};
      return {.kind = Collective::all_to_all_v,
              .in = tensor(3 * n).reshape({3, n}),
              .out = tensor(3 * rank * n).reshape({3 * rank, n}),
              .counts = counts};
    }
  }
}

constexpr Collective::Kind kMoves[] = {Collective::broadcast, Collective::gather, Collective::all_gather,
                                       Collective::all_to_all, Collective::all_to_all_v};

TEST(Collective, what_goes_to_a_rank_is_what_it_takes_from_there) {
  for (const Collective::Kind kind : kMoves)
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) {
        if (from == to && kind == Collective::broadcast) continue;  // root has it
        const Tensor sent = call_of(kind, from).to(to, from, 3), taken = call_of(kind, to).from(from, to, 3);
        const auto count = [](const Tensor& tensor) { return tensor ? tensor.numel() : -1; };
        EXPECT_EQ(count(sent), count(taken)) << name_of(kind) << " from " << from << " to " << to;
      }
}

TEST(Collective, elements_sent_are_those_that_go_to_others) {
  for (const Collective::Kind kind : kMoves)
    for (int rank = 0; rank < 3; ++rank) {
      const Collective call = call_of(kind, rank);
      EXPECT_NO_THROW(call.check(rank, 3));
      int64_t elements = 0;
      for (int peer = 0; peer < 3; ++peer)
        if (const Tensor sent = call.to(peer, rank, 3); sent && peer != rank) elements += sent.numel();
      EXPECT_EQ(call.elements_sent(rank, 3), elements) << name_of(kind) << " on rank " << rank;
    }
}

TEST(Collective, visit_lists_the_tensors_that_a_rank_uses) {
  const Tensor x = Context::reference().zeros({4}, DType::f32);
  const auto roles = [&](Collective::Kind kind, int rank) {
    Collective call{.kind = kind, .in = x, .out = x, .root = 1};
    std::vector<Role> roles;
    std::as_const(call).visit(rank, [&](const Tensor& tensor, Role role) {
      EXPECT_TRUE(&tensor == &call.in || &tensor == &call.out);
      roles.push_back(role);
    });
    call.visit(rank, [](Tensor& tensor, Role) { tensor = Tensor(); });
    EXPECT_EQ(call.in.defined() + call.out.defined() + roles.size(), 2u) << "the mutable form lists the same";
    return roles;
  };
  EXPECT_THAT(roles(Collective::broadcast, 1), ElementsAre(Role::in));
  EXPECT_THAT(roles(Collective::broadcast, 0), ElementsAre(Role::out));
  EXPECT_THAT(roles(Collective::all_reduce, 0), ElementsAre(Role::in_out));
  EXPECT_THAT(roles(Collective::gather, 0), ElementsAre(Role::in));
  EXPECT_THAT(roles(Collective::gather, 1), ElementsAre(Role::in, Role::out));
  EXPECT_THAT(roles(Collective::send, 0), ElementsAre(Role::in));
  EXPECT_THAT(roles(Collective::recv, 0), ElementsAre(Role::out));
  EXPECT_THAT(roles(Collective::send_recv, 0), ElementsAre(Role::in, Role::out));
  EXPECT_THAT(roles(Collective::barrier, 0), IsEmpty());
}

}  // namespace
}  // namespace nought::collective_test
