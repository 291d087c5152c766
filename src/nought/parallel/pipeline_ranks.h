// PipelineRanks: which stages of a model a rank computes, and where the others are.
//
// A model is cut into stages() neighbouring pieces. A rank holds one of them, or several (chunks): then they go round
// the ranks like cards that are dealt (arXiv 2104.04473), or there and back, so that the first rank has the last stage
// too (the V placement of arXiv 2401.10241).
#pragma once

#include <utility>

#include "nought/comm/mesh.h"
#include "nought/parallel/pipeline_rules.h"

namespace nought {

/// How a model is cut into pipeline stages.
struct PipelineCut {
  int chunks = 1;  // stages that each rank holds
  bool v_shaped = false;
  StagePartition partition = {};
};
inline PipelineCut cut_of(const Pipeline& pipeline) {
  return {static_cast<int>(pipeline.chunks), pipeline.v_shaped(), pipeline.partition};
}

/// Plain data, cheap to copy.
struct PipelineRanks {
  int ranks = 1, rank = 0;
  PipelineCut cut = {};

  PipelineRanks() = default;
  PipelineRanks(const Mesh& mesh, PipelineCut how)
      : ranks(mesh.grid().size(Axis::pipeline)), rank(mesh.coordinate(Axis::pipeline)), cut(std::move(how)) {}

  bool several() const { return ranks > 1; }
  int chunks() const { return several() ? cut.chunks : 1; }
  int stages() const { return ranks * chunks(); }
  /// The stage that is a chunk of a rank.
  int stage_of(int chunk, int holder) const {
    return chunk * ranks + (cut.v_shaped && chunk % 2 == 1 ? ranks - 1 - holder : holder);
  }
  int stage_of(int chunk) const { return stage_of(chunk, rank); }
  /// The rank that holds a stage.
  int rank_of(int stage) const {
    const int place = stage % ranks;
    return cut.v_shaped && stage / ranks % 2 == 1 ? ranks - 1 - place : place;
  }
  int last_stage() const { return stages() - 1; }
};

}  // namespace nought
