// Where the ranks of a test's run stand, and the layouts that the sweeps over all meshes go through.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/comm/grid.h"
#include "nought/parallel/context_ranks.h"
#include "nought/parallel/pipeline_ranks.h"
#include "nought/parallel/pipeline_rules.h"

namespace nought::test {

struct MeshLayout {
  GridSizes sizes = {};            // the ranks that share matrices share those of experts too
  bool sequence_parallel = false;  // between products each of them has a slice of the tokens
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;  // where there are pipeline stages
  std::optional<ContextMethod> method = {};  // where ranks share sequences; not given: the model chooses
  int64_t chunks = 0;                        // pipeline stages of a rank; 0: as many as the schedule has
  StagePartition partition = {};             // of pipeline stages

  int ranks() const { return Grid(grid()).ranks(); }
  GridSizes grid() const;
  Pipeline pipeline() const;
  PipelineCut cut() const { return cut_of(pipeline()); }
  int stages() const { return static_cast<int>(pipeline().ranks * pipeline().chunks); }
  /// The layers of a model that has a Unit for each pipeline stage: two if that is enough.
  int layers() const { return std::max(2, stages() - 2); }
  std::string str() const;
};

/// So many data-parallel ranks at a ZeRO stage.
inline MeshLayout sharded(int ranks, int stage) { return {.sizes = {.shard = ranks}, .stage = stage}; }

inline constexpr std::array kAllSchedules{PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::interleaved, PipelineSchedule::zbh1, PipelineSchedule::zbv};
inline constexpr std::array kContextMethods{ContextMethod::ring, ContextMethod::gather, ContextMethod::heads};

/// The axes along which there are several ranks.
std::vector<Axis> axes_with_ranks(const GridSizes& sizes);

/// Every factorisation of the ranks into tensor x pipeline x replicate x shard, with experts over every size inside.
std::vector<GridSizes> factorisations(int ranks, bool experts);

// Sixteen pipeline stages would take so deep a model that rounding grows in it: no rank of eight holds two of them
// here.
inline constexpr int kMostStages = 8;

/// Each factorisation once. ZeRO stages, schedules and slices of the tokens take turns.
std::vector<MeshLayout> sampled_meshes(int ranks, bool experts);

/// Each factorisation with every ZeRO stage and schedule, with slices and without.
std::vector<MeshLayout> every_mesh(int ranks, bool experts);

/// A few meshes of four ranks for tests that are not about every one.
std::vector<MeshLayout> some_meshes(bool experts);

}  // namespace nought::test
