// LowRankProducts: the products of low rank that an adapter adds to a linear layer.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/low_rank.h"
#include "nought/nn/adapter.h"
#include "nought/nn/linear_cut.h"
#include "nought/parallel/tensor_ranks.h"

namespace nought {

/// The products for the layers that one product computes, such as q, k and v, of which an adapter may know some. Ranks
/// that share the layer share them: of a layer whose outputs are cut, each has all of A and its rows of B; of one whose
/// inputs are cut, its columns of A and all of B, and the sum over the ranks that follows takes both products.
class LowRankProducts {
 public:
  struct Options {
    int64_t in = 0;                   // elements of a row of x, over all ranks
    std::vector<std::string> names;   // names of the layers
    std::vector<int64_t> out, width;  // elements of a row of y for each: over all ranks, and on this one
    std::vector<int64_t> fused = {};  // see Cut
    LinearCut cut = LinearCut::none;
    TensorRanks ranks = {};
    TensorRanks slicing = {};  // LinearCut::none: x and y are slices of the tokens of so many ranks
  };
  LowRankProducts() = default;
  /// Declares the factors in the Unit, behind what it has already.
  LowRankProducts(Unit& unit, const ModelAdapter& adapter, const Options& options);

  bool empty() const { return columns_.empty(); }
  bool trained() const { return a_.trained(); }
  /// The layers' own product y with these beside it, in place of y.
  Var add_to(Tape& tape, const Var& y, const Var& x) const {
    return add_low_rank(tape, y, x, a_, columns_, dropout_on(tape, x.value.rows()));
  }

 private:
  LowRankDropout dropout_on(const Tape& tape, int64_t rows) const;

  ParameterView a_;  // the A of all of them
  std::vector<LowRankColumns> columns_;
  LowRankDropout dropout_;  // without rows
  int slice_ = 0;           // the rows of x are those of this slice of the tokens
};

}  // namespace nought
