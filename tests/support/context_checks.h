// What attention over context ranks must do over whatever ranks it connects: run by thread ranks in the unit tests and
// by processes under mpirun.
#pragma once

#include <string>
#include <vector>

#include "nought/parallel/context_attention.h"

namespace nought::test {

/// One call of attention over rows of documents.
struct ContextCase {
  int64_t rows = 1, length = 16;
  std::vector<AttentionSpan> documents = {};  // none: whole rows
  PackedHeads heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 8};
  bool causal = true, sinks = false;
  int64_t window = 0;
  double softcap = 0;
  DType dtype = DType::f64;
  uint64_t seed = 1;

  AttentionOptions options() const;
  std::string str() const;
};

/// Documents of random lengths, some of one token, that fill the rows; one per row if `most` is 1.
std::vector<AttentionSpan> random_documents(int64_t rows, int64_t length, int64_t most, uint64_t seed);
/// Random rows, documents, layouts of heads, masks, windows, sinks and caps.
ContextCase random_case(uint64_t seed, DType dtype);

/// Every token of all rows, in order.
std::vector<int32_t> all_tokens(const ContextCase& of);
/// The rows of these tokens of a random matrix that every rank knows.
Tensor random_rows(const Context& context, const std::vector<int32_t>& tokens, int64_t width, DType dtype,
                   uint64_t seed);

/// Rows of values, [tokens, width], as numbers.
struct ContextResults {
  std::vector<double> out, d_qkv, d_sinks;
};
/// By attention() on one rank.
ContextResults attend_whole(const Context& context, const ContextCase& of);
/// By context_attention(): the rows of this rank's tokens, and its part of the gradient of the sinks.
ContextResults attend_part(const Context& context, const ContextCase& of, const ContextTokens& tokens);
/// The rank of `world` by this method.
ContextTokens context_tokens(Communicator& world, const ContextCase& of, ContextMethod method,
                             int64_t gathered_heads = 0);

/// The results of this rank are those of one rank, within the rounding of the dtype; and the same bits again. All ranks
/// of the world call it. Throws Error.
void check_context_attention(Communicator& world, const Context& context, const ContextCase& of, ContextMethod method,
                             int64_t gathered_heads = 0);

}  // namespace nought::test
