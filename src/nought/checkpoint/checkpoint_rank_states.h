// The states of a checkpoint that belong to one rank each (zero/rank_local_tensor.h): written beside the blocks by the
// rank that has them, and read by the same rank of a run with the same mesh.
//
// Another layout has no use for them. Then nothing is read, and a line says what is dropped and what starts anew; a
// caller whose result would be wrong without them throws it as an error instead.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"
#include "nought/comm/mesh.h"
#include "nought/io/safetensors_writer.h"
#include "nought/zero/rank_local_tensor.h"

namespace nought {

/// How the states lie in the file of their rank. Error if two have one name.
std::vector<TensorSpec> specs_of(const std::vector<RankLocalTensor>& states);
/// Writes them to `file`, the writer's, and returns their entries of the manifest, which have a checksum each.
Json write_rank_states(const Context& context, int rank, const std::vector<RankLocalTensor>& states,
                       std::string_view file, SafetensorsWriter& writer);
/// What a manifest says of the states of all ranks, which their mesh goes with.
Json rank_states_json(const Mesh& mesh, Json entries);

/// Fills the states that `rank_states`, the manifest's, has of this rank of this mesh. Returns "", or a line for the
/// user if some were not filled, or if some of the checkpoint's were not wanted. IoError if a tensor is damaged.
std::string fill_rank_states(const std::filesystem::path& checkpoint, const Json& rank_states, const Context& context,
                             const Mesh& mesh, const std::vector<RankLocalTensor>& states);

}  // namespace nought
