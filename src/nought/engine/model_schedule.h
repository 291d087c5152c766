// The schedules of the ranks of a mesh, by the pipeline that they form.
#pragma once

#include "nought/comm/mesh.h"
#include "nought/engine/step_schedule.h"
#include "nought/parallel/pipeline_rules.h"

namespace nought {

/// What this rank of a pipeline runs; plain_schedule() and evaluation_schedule() if that has one rank.
Schedules schedule_at(const Mesh& mesh, const Pipeline& pipeline);
/// What an Engine uses unless it is told: 1F1B over the mesh's pipeline ranks, each of which holds one stage.
Schedules default_schedule(const Mesh& mesh);

}  // namespace nought
