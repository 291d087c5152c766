// PowerSgd: the sum of gradients over the ranks, sent as factors of low rank (arXiv 1905.13727), as torch's powerSGD
// hook does it.
//
// M [n, m] is a matrix of gradients (a parameter's first dimension, and the others folded) plus what was left out
// before: ranks send P = M Q [n, r], then Q = M' P [m, r] with P orthonormal; its sum is P Q'. Each rank keeps its
// share of what that leaves out. Q is the start of the next step's. Smaller parameters travel as they are. There are
// three collectives for all parameters together: the rest, all P, all Q; all ranks end with the same bits.
#pragma once

#include <string>
#include <vector>

#include "nought/zero/power_sgd_options.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/reducer.h"

namespace nought {

class PowerSgd {
 public:
  /// The reducer has whole gradients. ranks: those that hold all of the parameters.
  PowerSgd(const Context& context, Communicator& ranks, const PowerSgdOptions& options, DType gradient_dtype,
           const std::vector<std::unique_ptr<Unit>>& units, Reducer& reducer);

  /// Whether the step after so many updates is compressed.
  bool compresses(int64_t updates) const { return updates >= options_.start_iter; }
  /// This rank's own gradients become the sums over all ranks, nearly. Collective.
  void reduce(int64_t updates);
  /// The step was given up: what was left out so far may not be finite, and is forgotten.
  void forget_errors();
  /// What a resumed run needs for the same bits.
  std::vector<RankLocalTensor> rank_local_tensors() const;
  /// How many matrices are sent as factors.
  size_t matrices() const { return matrices_.size(); }

 private:
  struct Matrix {
    std::string name;
    SegmentIndex at;
    Interval range;  // of the segment's gradients
    int64_t rows = 0, columns = 0, rank = 0;
    Interval in_p, in_q, in_error;
  };
  /// A parameter that travels as it is.
  struct Rest {
    SegmentIndex at;
    Interval range, in_rest;
  };
  void add(const Unit& unit, SegmentIndex at, const Parameter& parameter);
  Tensor gradient(const Matrix& matrix) const;
  Tensor p_of(const Matrix& matrix, const Tensor& p) const {
    return p.flat(matrix.in_p.begin, matrix.in_p.end).reshape({matrix.rank, matrix.rows});
  }
  Tensor q_of(const Matrix& matrix) const {
    return q_.flat(matrix.in_q.begin, matrix.in_q.end).reshape({matrix.rank, matrix.columns});
  }
  /// What is sent: the gradient and what was left out before, f32.
  Tensor sent(const Matrix& matrix) const;
  void write_back(const Matrix& matrix, const Tensor& p) const;
  void reduce_rest() const;
  void sum(const Tensor& tensor) const { ranks_.wait(ranks_.all_reduce(tensor), *context_.stream); }

  Context context_;
  Communicator& ranks_;
  PowerSgdOptions options_;
  DType dtype_;
  Reducer& reducer_;
  std::vector<Matrix> matrices_;
  std::vector<Rest> rests_;
  int64_t p_ = 0, errors_ = 0, rest_ = 0;  // elements
  int64_t q_elements_ = 0;
  Tensor q_, error_;  // f32; the second is undefined without error feedback
};

}  // namespace nought
