#include "nought/kernels/ops/embedding.h"

#include "support/kernel_test.h"
#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>

namespace nought::embedding_test {
namespace {

using namespace test;

class Embeddings : public KernelTest {};

TEST_F(Embeddings, forward_copies_or_adds_rows) {
  for_each_instruction_set([&] {
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      for (int64_t n : {1, 7, 33, 64, 257}) {
        for (bool accumulate : {false, true}) {
          Tensor table = random({31, n}, dtype, 1), ids = random_ids(*memory_, {100}, 31, 2);
          Tensor out = random({100, n}, dtype, 3), expected = clone(out);
          run(Embedding{.table = table, .ids = ids, .out = out, .accumulate = accumulate});
          reference::run(Embedding{.table = table, .ids = ids, .out = expected, .accumulate = accumulate});
          expect_same_bits(out, expected);
        }
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(Embeddings, backward_adds_in_token_order_and_rounds_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (DType table_dtype : {dtype, DType::f32}) {
        for (int64_t vocab : {1, 3, 256, 700}) {
          for (int64_t n : {1, 7, 33}) {
            for (bool accumulate : {false, true}) {
              Tensor d_out = random({257, n}, dtype, 1), ids = random_ids(*memory_, {257}, vocab, 2);
              Tensor d_table = random({vocab, n}, table_dtype, 3), expected = clone(d_table);
              run(EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = d_table, .accumulate = accumulate});
              reference::run(
                  EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = expected, .accumulate = accumulate});
              expect_same_bits(d_table, expected);  // the order of additions is part of the contract
            }
          }
        }
      }
    }
  });
}

TEST_F(Embeddings, gradient_matches_central_differences) {
  Tensor table = random({5, 3}, DType::f64, 1), ids = random_ids(*memory_, {12}, 5, 2);
  Tensor out = empty({12, 3}, DType::f64), d_out = random({12, 3}, DType::f64, 3), d_table = empty({5, 3}, DType::f64);
  reference::run(EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = d_table});
  const auto loss = [&] {
    reference::run(Embedding{.table = table, .ids = ids, .out = out});
    return dot(out, d_out);
  };
  EXPECT_LE(gradient_error(table, d_table, loss), 1e-6);
}

NOUGHT_SIZE(medium);
TEST_F(Embeddings, backward_does_not_depend_on_the_number_of_threads) {
  Tensor d_out = random({2000, 200}, DType::bf16, 1), ids = random_ids(*memory_, {2000}, 50, 2), first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Tensor d_table = empty({64, 200}, DType::bf16);
    run(EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = d_table});
    if (!first) first = d_table;
    expect_same_bits(d_table, first);
  }
}

TEST_F(Embeddings, an_id_out_of_range_is_named_with_its_place) {
  Tensor table = random({10, 4}, DType::f32, 1), out = empty({3, 4}, DType::f32);
  for (int32_t bad : {10, -1}) {
    Tensor ids = of<int32_t>({3, bad, 5});
    const std::string expected = fmt::format("id {} at position 1 is outside [0, 10)", bad);
    EXPECT_THAT(message_of<Error>([&] { run(Embedding{.table = table, .ids = ids, .out = out}); }),
                ::testing::HasSubstr(expected));
    EXPECT_THAT(message_of<Error>([&] { run(EmbeddingBackward{.d_out = out, .ids = ids, .d_table = table}); }),
                ::testing::HasSubstr(expected));
    EXPECT_THAT(message_of<Error>([&] { reference::run(Embedding{.table = table, .ids = ids, .out = out}); }),
                ::testing::HasSubstr(expected));
  }
}

}  // namespace
}  // namespace nought::embedding_test
