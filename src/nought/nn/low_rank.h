// LowRankProducts: the products of low rank that an adapter adds to a linear layer.
#pragma once

#include <string>
#include <vector>

#include "nought/autograd/functions.h"
#include "nought/autograd/magnitudes.h"
#include "nought/nn/adapter.h"
#include "nought/nn/linear_cut.h"
#include "nought/parallel/tensor_ranks.h"

namespace nought {

/// How A or B of a layer with so many inputs begins.
Init start_of_factor(const LowRank& of, char factor, int64_t in);

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
    TensorRanks slicing = {};                    // LinearCut::none: x and y are slices of the tokens of so many ranks
    WeightLayout layout = WeightLayout::out_in;  // how the layers' weight lies
  };
  LowRankProducts() = default;
  /// Declares the factors in the Unit, behind what it has already.
  LowRankProducts(Unit& unit, const ModelAdapter& adapter, const Options& options);

  bool empty() const { return columns_.empty(); }
  bool trained() const { return a_.trained(); }
  /// The layers' own product y with these beside it, in place of y.
  Var add_to(Tape& tape, const Var& y, const Var& x) const;

  /// Whether it multiplies outputs by magnitudes: then decomposed() is the layers' product, this one and the bias.
  bool is_decomposed() const { return !magnitudes_.empty(); }
  /// weight: of the layers, joined.
  Var decomposed(Tape& tape, const Var& x, const WeightView& weight, const ParameterView& bias,
                 const Fp8Layer& fp8) const;

 private:
  void declare_biases(Unit& unit, const ModelAdapter& adapter, const Options& options);
  void declare_magnitudes(Unit& unit, const ModelAdapter& adapter, const Options& options);
  /// Collective where ranks share the inputs.
  ColumnFactors factors_of(const Context& context, const Tensor& weight) const;
  LowRankDropout dropout_on(const Tape& tape, int64_t rows) const;

  ParameterView a_;  // the A of all of them
  std::vector<LowRankColumns> columns_;
  std::vector<ParameterView> biases_;         // what the B of each of these has, if they have any
  std::vector<MagnitudeColumns> magnitudes_;  // what each of these has, if they are decomposed
  WeightLayout layout_ = WeightLayout::out_in;
  TensorRanks sharers_;     // they share the inputs
  int bias_parts_ = 1;      // see declare_biases()
  LowRankDropout dropout_;  // without rows
  int slice_ = 0;           // the rows of x are those of this slice of the tokens
};

}  // namespace nought
