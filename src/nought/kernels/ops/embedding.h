// Rows of a table by the ids of tokens, and the gradient of the table.
#pragma once

#include "nought/kernels/weight.h"

namespace nought {

/// out[t] [+]= table[ids[t]]. table: [V, H] float or codes, ids: [tokens] i32, out: [tokens, H]. A dense table and out
/// share a dtype; an element of codes is code * scale, rounded once to out's dtype. Error if an id is not in [0, V).
struct Embedding {
  Weight table;
  Tensor ids, out;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    table.visit(v, "table", kReads.of_rows(ids.numel()));
    v("ids", ids, kReads);
    v("out", out, kWrites.adding(accumulate));
    v("accumulate", accumulate);
  }
};

/// d_table[ids[t]] += d_out[t], added in order of t in fp32 and rounded once per row. Without accumulate, all other
/// rows become 0. d_table has d_out's dtype or f32.
struct EmbeddingBackward {
  Tensor d_out, ids, d_table;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("d_out", d_out, kReads);
    v("ids", ids, kReads);
    v("d_table", d_table, accumulate ? kUpdates.of_rows(ids.numel()) : kWrites);
    v("accumulate", accumulate);
  }
};

}  // namespace nought
