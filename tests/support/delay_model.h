// A model whose passes only wait: the timeline of a pipeline without the noise of computing.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "nought/nn/model.h"
#include "nought/parallel/pipeline_ranks.h"

namespace nought::test {

/// A Unit for each pipeline stage. Forward passes, backward passes and weight gradients take as long as each other.
class DelayModel final : public Model {
 public:
  DelayModel(const Mesh& mesh, const Pipeline& pipeline, std::chrono::microseconds pass, int64_t hidden = 16)
      : stages_(mesh, cut_of(pipeline)), hidden_(hidden), pass_(pass) {
    for (int stage = 0; stage < stages_.stages(); ++stage) {
      Unit& unit = add_unit("stage." + std::to_string(stage));
      unit.give_to({.axis = Axis::pipeline, .owner = stages_.rank_of(stage)}, stages_.rank);
      weights_.emplace_back(unit.add(unit.name() + ".weight", {16}, Init::zeros()));
    }
  }

  /// What passes take from now on.
  void set_pass(std::chrono::microseconds pass) { pass_ = pass; }

  Var loss(Tape&, const Batch&, double) override { fail("it has chunks"); }
  std::shared_ptr<MicroBatchState> begin(const Context&, const Batch&, double) override {
    return std::make_shared<MicroBatchState>();
  }
  Shape hidden_shape(const MicroBatchState&) const override { return {hidden_}; }
  std::vector<Section> sections() override {
    std::vector<Section> all;
    for (Chunk& chunk : chunks()) all.push_back(std::move(chunk.sections.front()));
    return all;
  }
  std::vector<Chunk> chunks() override {
    std::vector<Chunk> all;
    for (int index = 0; index < stages_.chunks(); ++index) {
      const int stage = stages_.stage_of(index);
      Chunk chunk;
      chunk.sections.push_back(section(stage));
      if (stage > 0) chunk.from = stages_.rank_of(stage - 1), chunk.wanted = true;
      if (stage < stages_.last_stage()) chunk.to = stages_.rank_of(stage + 1);
      all.push_back(std::move(chunk));
    }
    return all;
  }

 private:
  Section section(int stage) {
    const WeightView weight = weights_[static_cast<size_t>(stage)];
    const bool last = stage == stages_.last_stage();
    return {.unit = units()[static_cast<size_t>(stage)].get(),
            .body = [this, weight, last](Tape& tape, const Var& x, MicroBatchState&) {
              std::this_thread::sleep_for(pass_);
              const Context& context = tape.context();
              const Tensor y = last ? context.zeros({1}, DType::f64) : context.zeros({hidden_}, DType::f32);
              const auto backward = [this, x, weight](Gradients& gradients, const Tensor&) {
                std::this_thread::sleep_for(pass_);
                if (x.requires_grad()) gradients.give(x, gradients.context().zeros({hidden_}, DType::f32));
                gradients.later(weight, [this](const Context& later, const GradSink& into) {
                  std::this_thread::sleep_for(pass_);
                  if (!into.accumulate) later.zero(into.into);
                });
              };
              return tape.record(y, {x, weight}, backward);
            }};
  }

  PipelineRanks stages_;
  int64_t hidden_;
  std::chrono::microseconds pass_;
  std::vector<WeightView> weights_;
};

}  // namespace nought::test
