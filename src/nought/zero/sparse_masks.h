// SparseMasks: which weights a run computes with, where compression_training.sparse_pruning takes others as 0.
//
// A mask is made of the weights that are loaded, a bit for each weight that this rank holds between gathers and
// releases. It belongs to the rank: a checkpoint has it for the same rank of the same mesh (RankLocalTensor).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/compress/sparse_pruning.h"
#include "nought/zero/partition.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/weight_change.h"

namespace nought {

class Model;
class Reducer;
class Residency;

/// For each group what it does to which layers: lines for the user. ConfigError for layers that are not there.
std::vector<std::string> describe_sparse_masks(const SparsePruning& pruning, const Model& model);

class SparseMasks {
 public:
  SparseMasks(const Context& context, const Mesh& mesh, const SparsePruning& pruning, const Model& model);

  /// Makes the masks of the weights as they are now. Collective.
  void make(Residency& residency) const;
  /// What passes do with them.
  std::vector<ChangedWeight> changes() const;
  /// Before the update after so many: weights that are taken as 0 have no gradient.
  void clear_gradients(const Reducer& reducer, const Residency& residency, int64_t updates) const;
  std::vector<RankLocalTensor> tensors() const;

 private:
  struct Masked {
    size_t unit = 0, parameter = 0;
    double dense_ratio = 1;
    Tensor bits;  // of what this rank holds
  };
  void make(const Masked& of, const Tensor& held) const;
  const Parameter& parameter_of(const Masked& of) const;

  Context context_;
  Mesh mesh_;
  SparsePruning pruning_;
  const Model& model_;
  std::vector<Masked> masks_;  // in the order of the model
};

}  // namespace nought
