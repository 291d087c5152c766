// A model without a loss whose parameters the tensor axis of a mesh cuts, by rows, by columns and tensor by tensor, and
// whose experts lie on the experts' axes; and updates of it with gradients that every mesh knows.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "support/rank_values.h"
#include "support/whole_tensors.h"

#include "nought/nn/model.h"
#include "nought/parallel/expert_ranks.h"
#include "nought/zero/micro_batch.h"
#include "nought/zero/placement.h"
#include "nought/zero/sharded_model.h"

namespace nought::test {

class CutUnits final : public Model {
 public:
  explicit CutUnits(const Mesh& mesh) {
    const auto add = [&](Unit& unit, const char* name, Shape global, std::vector<Cut> cuts) {
      const Placement placement{global, std::move(cuts)};
      const Shape held = PlacedTensor(placement, mesh.grid()).held_by(mesh.world().rank()).local();
      unit.add(name, held, Init::normal(0.5), ParameterOptions{.placement = placement});
    };
    Unit& first = add_unit("first");
    add(first, "rows", {14, 6}, {{.axis = Axis::tensor, .dim = 0, .granule = 2}});
    add(first, "shared", {5, 7}, {});
    add(first, "columns", {5, 12}, {{.axis = Axis::tensor, .dim = 1}});
    Unit& second = add_unit("second");
    add(second, "fused", {12, 3}, {{.axis = Axis::tensor, .dim = 0, .fused = {8, 4}}});
    add(second, "vector", {9}, {{.axis = Axis::tensor, .dim = 0}});
    add_experts(add_unit("experts"), ExpertRanks(ModelRanks(mesh)));
    // A tensor of one expert: all ranks but its own hold nothing in this Unit.
    ExpertRanks(ModelRanks(mesh)).add_one(add_unit("lonely"), "one", 0, 1, {.global = {7, 3}}, Init::normal(0.5));
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }

 private:
  static constexpr int64_t kExperts = 4;

  /// Experts one by one and all together, and a router between them that every rank holds.
  static void add_experts(Unit& unit, const ExpertRanks& ranks) {
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto name = [&](const char* matrix) { return std::to_string(e) + "." + matrix; };
      ranks.add_one(unit, name("gate"), e, kExperts, {.global = {6, 5}, .dim = 0}, Init::normal(0.5));
      ranks.add_one(unit, name("down"), e, kExperts, {.global = {5, 6}, .dim = 1}, Init::normal(0.5));
    }
    unit.add("router", {kExperts, 5}, Init::normal(0.5), ParameterRole::router);
    const ExpertRanks::Whole gate_up{.global = {kExperts, 5, 12}, .dim = 2, .fused = {6, 6}};
    ranks.add_all(unit, "gate_up", gate_up, Init::normal(0.5));
    ranks.add_all(unit, "bias", {.global = {kExperts, 5}}, Init::normal(0.5), ParameterRole::bias);
  }
};

/// Meshes with experts over ranks of their own; in that of three, one rank holds none of the four.
inline const std::vector<GridSizes> kExpertMeshes{{.shard = 2, .expert = 2},
                                                  {.shard = 4, .expert = 2},
                                                  {.shard = 3, .expert = 3},
                                                  {.tensor = 2, .expert_tensor = 2},
                                                  {.shard = 2, .tensor = 2, .expert = 2, .expert_tensor = 2},
                                                  {.shard = 4, .tensor = 2, .expert = 2, .expert_tensor = 2},
                                                  {.replicate = 3},
                                                  {.replicate = 2, .shard = 2, .expert = 2},
                                                  {.replicate = 2, .shard = 4, .expert = 2, .host_ranks = 2}};

inline int ranks_of(const GridSizes& sizes) { return Grid(sizes).ranks(); }
inline std::string str(const GridSizes& sizes) {
  return fmt::format("replicate {} x shard {} x context {} x tensor {}, expert {}", sizes.replicate, sizes.shard,
                     sizes.context, sizes.tensor, sizes.expert);
}

/// The gradient of a step: of element i of the flattened global tensor.
inline float cut_gradient(const std::string& parameter, int64_t i, int step) {
  return value_at<float>(step, i + 1000 * std::accumulate(parameter.begin(), parameter.end(), int64_t{0}));
}

/// Walks back over the Units of a leased model by hand: the gradients of `step` are those of the first of the ranks
/// that share a parameter out, on one of the replicas; the others have zeros. Returns the squares of the norm, by Unit,
/// of all ranks.
inline std::vector<double> walk_back(ShardedModel& model, int step) {
  const Mesh& mesh = model.mesh();
  const auto& units = model.model().units();
  const Batch none;
  MicroBatch micro_batch(model, none, {});
  for (const auto& unit : units) micro_batch.before_forward(*unit), micro_batch.after_forward(*unit);
  for (size_t u = units.size(); u-- > 0;) {
    micro_batch.before_backward(*units[u]);
    for (size_t p = 0; p < units[u]->parameters().size(); ++p) {
      const Parameter& parameter = units[u]->parameters()[p];
      if (!parameter.trainable) continue;
      const Communicator& replicas = mesh.group(Group::replicas);
      const bool is_first = mesh.group(sharing_group(parameter.placement.axes())).rank() == 0 &&
                            replicas.rank() == step % replicas.size();
      const GradSink sink = micro_batch.gradient(*units[u], p, p);
      std::vector<float> values;
      for (const Interval& interval : global_elements(parameter, mesh, {0, parameter.shape.numel()}))
        for (int64_t i = interval.begin; i < interval.end; ++i)
          values.push_back(is_first ? cut_gradient(parameter.name, i, step) : 0.0f);
      model.context().upload<float>(values, sink.into);
    }
    micro_batch.after_backward(*units[u]);
  }
  std::vector<double> squares = model.context().to_host<double>(model.finish_gradients());
  all_reduce_values(mesh.group(Group::norm), model.context(), squares);
  return squares;
}

}  // namespace nought::test
