// Workers: the replicas of a mesh as jobs of their own, which talk to each other only when they are told to.
//
// The ranks of a worker form a mesh without a replicate axis: what runs on it knows nothing of other workers. Ranks
// that have one place in their workers are peers. They have two groups: in one long tensors may be on their way for
// several steps, and the few numbers of each step, which go in the other, do not wait for these.
#pragma once

#include <memory>

#include "nought/comm/mesh.h"

namespace nought {

class Workers {
 public:
  /// sizes.replicate workers. Blocking; all ranks of the world make them together, and the world outlives them.
  /// make_group: see Mesh. ConfigError unless the sizes have as many ranks as the world.
  Workers(Communicator& world, const GridSizes& sizes, const Mesh::MakeGroup& make_group = {});

  int count() const { return count_; }
  /// Which worker this rank is of.
  int index() const { return index_; }
  /// The ranks of this worker.
  const Mesh& mesh() const { return *mesh_; }
  /// The ranks with this rank's place, by worker: for long tensors, and for what is small.
  Communicator& peers() const { return *peers_; }
  Communicator& numbers() const { return *numbers_; }
  /// What this rank sent in all of these groups.
  Traffic traffic() const;

 private:
  int count_ = 1, index_ = 0;
  std::unique_ptr<Communicator> own_, peers_, numbers_;
  std::unique_ptr<Mesh> mesh_;  // stands on own_
};

}  // namespace nought
