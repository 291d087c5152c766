// ModelRanks: the groups of ranks over which the layers of a model are cut.
#pragma once

#include <optional>

#include "nought/parallel/context_ranks.h"
#include "nought/parallel/pipeline_ranks.h"
#include "nought/parallel/token_slices.h"

namespace nought {

/// Cheap to copy. The mesh that it was made of outlives it.
struct ModelRanks {
  TensorRanks tensor = {};          // share matrices, heads and the vocabulary
  TensorRanks expert_tensor = {};   // share the matrices of the same experts
  Communicator* experts = nullptr;  // hold different experts, and exchange tokens (Group::experts); null: one holds all
  /// Between the products that the tensor ranks share, each has a slice of the tokens (arXiv 2205.05198).
  bool sequence_parallel = false;
  PipelineRanks pipeline = {};  // hold different layers
  ContextRanks context = {};    // hold the parts of the same sequences
  bool chooses_method = false;  // they attend as the model chooses (models/context_choice.h)
  int rank = 0;                 // this one, among all of the mesh: messages name it

  /// One rank, which holds everything.
  ModelRanks() = default;
  explicit ModelRanks(const Mesh& mesh, bool slices_tokens = false, const PipelineCut& cut = {},
                      std::optional<ContextMethod> method = {})
      : tensor(mesh),
        expert_tensor(mesh, Axis::expert_tensor),
        experts(mesh.group(Group::experts).size() > 1 ? &mesh.group(Group::experts) : nullptr),
        sequence_parallel(slices_tokens && tensor.several()),
        pipeline(mesh, cut),
        context(mesh, method.value_or(ContextMethod::ring)),
        chooses_method(!method && context.several()),
        rank(mesh.world().rank()) {}

  /// The ranks that have slices of the tokens between those products; one if each has all tokens.
  TensorRanks slicing() const { return sequence_parallel ? tensor : TensorRanks(); }
};

}  // namespace nought
