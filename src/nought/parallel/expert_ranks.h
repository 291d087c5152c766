// ExpertRanks: the ranks that hold the experts of a layer, as the layer declares them.
//
// Design goals: a layer names all experts and the whole tensors of each, so that files and other meshes know them;
// every rank declares the same parameters in the same order, and holds nothing of an expert that is another rank's; one
// rank is the layer without any of this. Experts lie in rank order. Non-goals: how tokens get to them.
#pragma once

#include <optional>
#include <string>

#include "nought/parallel/model_ranks.h"

namespace nought {

/// Cheap to copy. The mesh that it was made of outlives it.
class ExpertRanks {
 public:
  /// One rank, which holds everything.
  ExpertRanks() = default;
  explicit ExpertRanks(const ModelRanks& ranks) : experts_(ranks.experts), tensor_(ranks.expert_tensor) {}

  int size() const { return experts_ != nullptr ? experts_->size() : 1; }
  int rank() const { return experts_ != nullptr ? experts_->rank() : 0; }
  bool several() const { return experts_ != nullptr; }
  /// Error if there is one rank.
  Communicator& group() const;
  /// The ranks that share the matrices of the experts that this rank holds.
  const TensorRanks& tensor() const { return tensor_; }

  /// Which of so many experts a rank holds.
  Interval held(int64_t experts, int rank) const;
  Interval held(int64_t experts) const { return held(experts, rank()); }
  /// The rank that holds an expert.
  int holder(int64_t expert, int64_t experts) const;

  /// A whole tensor, and how the ranks that share an expert's matrices cut it.
  struct Whole {
    Shape global;
    std::optional<int> dim = {};      // not given: each of them holds all of it
    std::vector<int64_t> fused = {};  // see Cut
    int64_t granule = 1;              // see Cut
    bool partial = false;             // each of them forms a part of its gradient
    /// What is declared of it; then nothing is fused along its dimension. See Placement.
    std::optional<TensorTile> tile = {};
  };
  /// Declares what this rank holds of a tensor of all experts, [experts, ...].
  ParameterView add_all(Unit& unit, std::string name, const Whole& whole, Init init,
                        ParameterRole role = ParameterRole::expert) const;
  /// Declares what this rank holds of a tensor of one of so many experts: an empty part if it is another rank's.
  ParameterView add_one(Unit& unit, std::string name, int64_t expert, int64_t experts, const Whole& whole, Init init,
                        ParameterRole role = ParameterRole::expert) const;

 private:
  ParameterView add(Unit& unit, std::string name, const Whole& whole, std::optional<Cut> over_experts, Init init,
                    ParameterRole role) const;

  Communicator* experts_ = nullptr;
  TensorRanks tensor_;
};

}  // namespace nought
