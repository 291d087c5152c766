// What an operator does to values, its conjugate does to gradients: <f(x), y> = <x, f*(y)>, over the ranks. What every
// rank holds alike counts once.
#include "nought/parallel/conjugate.h"

#include <numeric>

#include "support/gradient_check.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/parallel/token_slices.h"

namespace nought::conjugate_test {
namespace {

constexpr int64_t kRows = 3;

/// Which sides of an operator are the same on every rank.
struct Alike {
  bool input = false, output = false;
};

using Operator = std::function<Var(Tape&, const Var&, const TensorRanks&)>;

double dot(const Tensor& a, const Tensor& b) {
  return std::inner_product(a.data<double>(), a.data<double>() + a.numel(), b.data<double>(), 0.0);
}

void expect_adjoint(int size, Shape shape, Alike alike, const Operator& f) {
  run_ranks(size, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = size});
    const TensorRanks ranks(mesh);
    const auto seed = [&](bool same, uint64_t base) { return base + (same ? 0 : static_cast<uint64_t>(world.rank())); };
    Tape tape(context);
    const Tensor x = test::random(context, shape, seed(alike.input, 1));
    const Tensor own = context.empty(shape, DType::f64);  // functions in place overwrite their input
    context.copy(x, own);
    const Var in = tape.input(own), out = f(tape, in, ranks);
    const Tensor y = test::random(context, out.value.shape(), seed(alike.output, 100));
    const double once = world.rank() == 0 ? 1 : 0;
    std::array<double, 2> sums{dot(out.value, y) * (alike.output ? once : 1), 0};
    tape.backward(out, y);
    sums[1] = dot(x, tape.gradient(in)) * (alike.input ? once : 1);
    all_reduce_values(world, context, sums);
    EXPECT_NE(sums[0], 0);
    EXPECT_NEAR(sums[0], sums[1], 1e-10 * std::abs(sums[0])) << size << " ranks";
  });
}

TEST(Conjugate, a_copy_to_ranks_and_the_sum_of_their_gradients_are_adjoint) {
  for (const int size : {2, 3, 4}) expect_adjoint(size, {kRows, 5}, {.input = true}, copy_to_ranks);
}

TEST(Conjugate, the_sum_over_ranks_and_the_gradient_that_all_get_are_adjoint) {
  for (const int size : {2, 3, 4})
    expect_adjoint(size, {kRows, 5}, {.output = true},
                   [](Tape& tape, const Var& x, const TensorRanks& ranks) { return sum_over_ranks(tape, x, ranks); });
}

/// Slices of 5 and 8 tokens end with a rank's padding, and of 1 token most ranks have padding alone.
TEST(Conjugate, gathering_slices_and_scattering_the_sum_of_their_gradients_are_adjoint) {
  for (const int size : {2, 3, 4})
    for (const int64_t tokens : {1, 5, 8, 12})
      expect_adjoint(size, {ceil_div(tokens, size), 3}, {}, [&](Tape& tape, const Var& x, const TensorRanks& ranks) {
        return gather_tokens(tape, x, {ranks, tokens});
      });
}

TEST(Conjugate, scattering_a_sum_and_gathering_its_gradients_are_adjoint) {
  for (const int size : {2, 3, 4})
    for (const int64_t tokens : {1, 5, 8, 12})
      expect_adjoint(size, {tokens, 3}, {}, [&](Tape& tape, const Var& x, const TensorRanks& ranks) {
        return scatter_sum(tape, x, {ranks, tokens});
      });
}

TEST(Conjugate, gathering_slices_for_what_is_alike_and_taking_a_slice_of_its_gradient_are_adjoint) {
  for (const int size : {2, 3, 4})
    for (const int64_t tokens : {1, 5, 8, 12})
      expect_adjoint(size, {ceil_div(tokens, size), 3}, {.output = true},
                     [&](Tape& tape, const Var& x, const TensorRanks& ranks) {
                       return gather_for_all(tape, x, {ranks, tokens});
                     });
}

TEST(Conjugate, slices_hold_the_tokens_in_order_and_rows_of_zeros_behind_them) {
  run_ranks(3, [](Communicator& world, const Context& context) {  // 4 tokens: 2, 2 and none
    const Mesh mesh(world, {.tensor = 3});
    const TokenSlices slices{TensorRanks(mesh), 4};
    Tape tape(context);
    const Tensor x = context.empty({4, 2}, DType::f64);
    for (int i = 0; i < 8; ++i) x.data<double>()[i] = i;
    const Var slice = scatter_sum(tape, tape.input(x), slices);
    const std::vector<std::vector<double>> sums{{0, 3, 6, 9}, {12, 15, 18, 21}, {0, 0, 0, 0}};
    EXPECT_EQ(slice.value.to_vector<double>(), sums[static_cast<size_t>(world.rank())]);
    const Var again = tape.input(slice.value);
    const Var all = gather_tokens(tape, again, slices);
    EXPECT_EQ(all.value.to_vector<double>(), (std::vector<double>{0, 3, 6, 9, 12, 15, 18, 21}));
    tape.backward(all, x);  // the same gradient on each of the ranks
    EXPECT_EQ(tape.gradient(again).to_vector<double>(), sums[static_cast<size_t>(world.rank())])
        << "rows of no token have no gradient";
  });
}

/// What is added behind a product by one rank counts for all tokens: each rank sees their whole gradient.
TEST(Conjugate, the_gradient_of_a_bias_behind_a_sum_is_that_of_all_tokens) {
  run_ranks(2, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = 2});
    const TokenSlices slices{TensorRanks(mesh), 3};
    Unit unit("block");
    const ParameterView bias = unit.add("bias", {2}, Init::zeros(), ParameterRole::bias);
    test::LocalStore store(context, unit, DType::f64);
    Tape tape(context);
    const Var y = scatter_sum(tape, tape.input(test::random(context, {3, 2}, 1)), slices, bias);
    const std::vector<double> rows{1, 10, 2, 20, 4, 40, 99, 99};  // the last is nobody's
    const auto* own = rows.data() + 4 * world.rank();
    tape.backward(y, Tensor::of<double>(*context.memory, {2, 2}, std::span(own, 4)));
    EXPECT_EQ(store.flat_gradients().flat(0, 2).to_vector<double>(), (std::vector<double>{7, 70}));
  });
}

TEST(Conjugate, a_node_that_saves_gathered_tokens_keeps_the_slice) {
  run_ranks(4, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = 4});
    const TokenSlices slices{TensorRanks(mesh), 64};
    Tape tape(context);
    const Var x = tape.input(test::random(context, {16, 8}, static_cast<uint64_t>(world.rank())));
    Var all = gather_tokens(tape, x, slices);
    const std::vector<double> values = all.value.to_vector<double>();
    const Saved saved(all);
    EXPECT_FALSE(x.value.unique());
    EXPECT_TRUE(all.value.unique()) << "nothing but the value itself holds all tokens";
    all.value = {};
    EXPECT_EQ(saved.prepared(context)(context).to_vector<double>(), values);
  });
}

TEST(Conjugate, heads_that_ranks_share_are_gathered_and_their_gradients_added) {
  // 6 query columns of this rank, and its part of the columns of one or of two heads of 12.
  for (const auto& [size, slice] : std::vector<std::pair<int, int64_t>>{{2, 6}, {4, 3}, {4, 6}, {3, 4}})
    expect_adjoint(size, {kRows, 24 + 2 * slice}, {}, [](Tape& tape, const Var& x, const TensorRanks& ranks) {
      return gather_shared_heads(tape, x, {.num_heads = 2, .num_kv_heads = 1, .head_dim = 12}, ranks);
    });
}

TEST(Conjugate, a_shared_head_has_the_columns_of_its_ranks_in_their_order) {
  run_ranks(4, [](Communicator& world, const Context& context) {  // ranks 0 and 1 share a head, and so do 2 and 3
    const Mesh mesh(world, {.tensor = 4});
    Tape tape(context, false);
    const auto value = [](int rank, int column) { return 100.0 * rank + column; };
    Tensor x = context.empty({1, 6}, DType::f64);  // q of 4, k of 2 / 2, v of 2 / 2
    for (int i = 0; i < 6; ++i) x.data<double>()[i] = value(world.rank(), i);
    const PackedHeads heads{.num_heads = 2, .num_kv_heads = 1, .head_dim = 2};
    const Tensor y = gather_shared_heads(tape, Tape::constant(x), heads, TensorRanks(mesh)).value;
    const int me = world.rank(), first = me / 2 * 2;
    EXPECT_EQ(y.to_vector<double>(),
              (std::vector<double>{value(me, 0), value(me, 1), value(me, 2), value(me, 3), value(first, 4),
                                   value(first + 1, 4), value(first, 5), value(first + 1, 5)}));
  });
}

TEST(Conjugate, columns_of_ranks_with_unequal_parts_are_gathered_in_order) {
  run_ranks(3, [](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = 3});
    const TensorRanks ranks(mesh);
    const auto [begin, end] = ranks.part(7);  // 3, 3 and 1
    const Tensor part = context.empty({2, end - begin}, DType::f32);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t i = begin; i < end; ++i)
        part.data<float>()[row * (end - begin) + i - begin] = static_cast<float>(10 * row + i);
    EXPECT_EQ(gather_columns(context, part, 7, ranks).to_vector<float>(),
              (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16}));
  });
}

TEST(Conjugate, one_rank_gets_back_its_input) {
  const Context context = Context::cpu();
  Tape tape(context);
  const Var x = tape.input(test::random(context, {kRows, 5}, 1));
  EXPECT_EQ(copy_to_ranks(tape, x, {}).slot, x.slot);
  EXPECT_EQ(sum_over_ranks(tape, x, {}).slot, x.slot);
  EXPECT_EQ(gather_tokens(tape, x, {{}, kRows}).slot, x.slot);
  EXPECT_EQ(scatter_sum(tape, x, {{}, kRows}).slot, x.slot);
  EXPECT_EQ(gather_for_all(tape, x, {{}, kRows}).slot, x.slot);
}

}  // namespace
}  // namespace nought::conjugate_test
