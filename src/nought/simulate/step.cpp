#include "nought/simulate/step.h"

#include <algorithm>
#include <cmath>

namespace nought {

namespace {

constexpr double kParameterBytes = 2;  // of bf16
constexpr double kUpdateBytes = 30;    // that an update reads and writes of an element: f32 master and moments
constexpr double kHostUpdateRate = 50e9;

/// What a pipeline stage takes for a micro-batch.
struct Stage {
  PassSeconds forward, backward, head;
  double hidden = 0, layers = 0;

  double total() const { return forward.total() + backward.total() + head.total(); }
};

class StepClock {
 public:
  StepClock(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted)
      : run_(run), fitted_(fitted), clock_(run, cluster, fitted), links_(cluster, fitted) {}

  SimulatedStep step() const;

 private:
  Stage stage(double layers, bool last) const;
  double stage_parameters(double layers, bool embeds) const;
  double messages(double beats) const;
  void add_bubble(SimulatedStep& step, const Stage& middle, const Stage& last) const;
  void add_data(SimulatedStep& step, const Stage& slowest) const;
  double gathered(const Stage& slowest) const;
  double reduced_once(const Stage& slowest, double* hidden) const;
  RankGroup replicas() const { return {run_.dp * run_.cp, run_.tp}; }

  const SimulatedRun& run_;
  const FittedConstants& fitted_;
  LayerClock clock_;
  Links links_;
};

Stage StepClock::stage(double layers, bool last) const {
  const ModelShape& m = run_.model;
  const double experts = m.layers > 0 ? layers * m.expert_layers() / m.layers : 0;
  Stage stage;
  stage.layers = layers;
  const auto add = [&](const LayerSeconds& layer, double count) {
    stage.forward += layer.forward * count;
    stage.backward += layer.backward * count;
    stage.hidden += layer.hidden * count;
  };
  if (layers > experts) add(clock_.layer(false), layers - experts);
  if (experts > 0) add(clock_.layer(true), experts);
  if (last) {
    const LayerSeconds head = clock_.head();
    stage.head += head.forward;
    stage.head += head.backward;
  }
  return stage;
}

/// Elements of a rank of a stage.
double StepClock::stage_parameters(double layers, bool embeds) const {
  const ModelShape& m = run_.model;
  const double experts = m.layers > 0 ? layers * m.expert_layers() / m.layers : 0;
  return (layers * m.attention_parameters() + (layers - experts) * m.mlp_parameters() +
          experts * m.shared_parameters() + (embeds ? m.embedding_parameters() : 0)) /
         run_.tp;
}

/// What a rank waits for messages between stages, of all micro-batches.
double StepClock::messages(double beats) const {
  if (run_.pp <= 1) return 0;
  const double bytes = run_.tokens() * run_.model.hidden * kParameterBytes / run_.tp;
  const double message = links_.message(bytes, run_.tp * run_.cp * run_.dp);
  return 2 * message * run_.vp * (run_.software.hides_pipeline ? run_.pp - 1 : beats + run_.pp - 1);
}

/// How long the slowest rank waits until its first pass, and after its last one.
void StepClock::add_bubble(SimulatedStep& step, const Stage& middle, const Stage& last) const {
  if (run_.pp <= 1) return;
  const double slowest = std::max(middle.total(), last.total());
  const double all = (run_.pp - 1) * middle.total() + last.total();
  step.bubble = (all - slowest) / run_.vp;
  // Weight gradients, half of the products backward, fill the gaps; DualPipe has streams from both ends besides.
  if (run_.schedule == SimulatedSchedule::zbh1) step.bubble -= (run_.pp - 1) * middle.backward.products;
  if (run_.schedule == SimulatedSchedule::zbv) step.bubble = 0;
  if (run_.schedule == SimulatedSchedule::dual_pipe)
    step.bubble = (run_.pp / 2 - 1) * (middle.total() - middle.backward.products);
  step.bubble = std::max(step.bubble, 0.0);
  step.pipeline = messages(run_.micro_batches());
}

/// Stage 3: layers are gathered for both passes of each micro-batch, and their gradients scattered. What the passes do
/// not hide is waited for.
double StepClock::gathered(const Stage& slowest) const {
  const double layer = stage_parameters(1, false);
  const double gather = links_.all_gather(layer * kParameterBytes, replicas());
  const double scatter = links_.reduce_scatter(layer * run_.software.gradient_bytes, replicas());
  const double forward = slowest.forward.total() / slowest.layers;
  const double backward = slowest.backward.total() / slowest.layers;
  const double exposed = std::max(gather - forward, 0.0) + std::max(gather + scatter - backward, 0.0);
  const double hidden = 2 * gather + scatter - exposed;
  return slowest.layers * run_.micro_batches() * (exposed + hidden * fitted_.contention);
}

/// Below stage 3: once a step, behind the last backward and the first forward pass.
double StepClock::reduced_once(const Stage& slowest, double* hidden) const {
  const double elements = stage_parameters(slowest.layers, true);
  const double reduced = elements * run_.software.gradient_bytes, gathered = elements * kParameterBytes;
  double first = links_.reduce_scatter(reduced, replicas());
  const double second = links_.all_gather(run_.zero_stage >= 1 ? gathered : reduced, replicas());
  const bool each_time = run_.zero_stage == 3 || (run_.zero_stage == 2 && run_.pp <= 1);
  if (each_time) first *= run_.micro_batches();
  if (!run_.software.hides_data) return first + second;
  const double room = slowest.backward.total() * (each_time ? run_.micro_batches() : 1);
  const double exposed = std::max(first - room, 0.0) + std::max(second - slowest.forward.total(), 0.0);
  *hidden = first + second - exposed;
  return exposed + *hidden * fitted_.contention;
}

void StepClock::add_data(SimulatedStep& step, const Stage& slowest) const {
  const ModelShape& m = run_.model;
  double hidden = 0;
  // Frameworks with a pipeline keep what they gathered; at stage 2 they reduce sums over all micro-batches.
  step.data = run_.zero_stage == 3 && run_.pp <= 1 ? gathered(slowest) : reduced_once(slowest, &hidden);
  step.hidden += hidden;
  const double experts = m.layers > 0 ? slowest.layers * m.expert_layers() / m.layers * m.expert_parameters() : 0;
  double owned = stage_parameters(slowest.layers, true);
  if (run_.zero_stage >= 1) owned /= run_.dp * run_.cp;
  owned += experts / run_.ep / (run_.zero_stage >= 1 ? std::max(run_.dp * run_.cp * run_.tp / run_.ep, 1.0) : 1);
  step.update = owned * kUpdateBytes / (run_.offload_states ? kHostUpdateRate : clock_.memory_rate());
}

SimulatedStep StepClock::step() const {
  const double most = std::ceil(run_.model.layers / run_.pp);
  const double missing = most * run_.pp - run_.model.layers;
  const Stage last = stage(most - std::ceil(missing / 2), true);
  const Stage middle = run_.pp > 1 ? stage(most, false) : last;
  const Stage& slowest = last.total() > middle.total() ? last : middle;
  const double beats = run_.micro_batches();
  SimulatedStep step;
  PassSeconds passes = slowest.forward;
  passes += slowest.backward;
  step.products = passes.products * beats;
  step.attention = passes.attention * beats;
  step.memory = passes.memory * beats;
  step.head = slowest.head.total() * beats;
  step.tensor = passes.tensor * beats;
  step.context = passes.context * beats;
  step.expert = passes.expert * beats;
  step.hidden = slowest.hidden * beats;
  const double slowed = step.hidden * fitted_.contention;
  add_bubble(step, middle, last);
  add_data(step, slowest);
  step.slowed = slowed;
  step.fixed = fitted_.fixed;
  for (const double part : {step.products, step.attention, step.memory, step.head, step.tensor, step.context,
                            step.expert, step.slowed, step.pipeline, step.data, step.bubble, step.update, step.fixed})
    step.seconds += part;
  return step;
}

}  // namespace

std::vector<StepPart> SimulatedStep::parts() const {
  const std::pair<const char*, double> all[] = {{"products", products},
                                                {"attention", attention},
                                                {"memory traffic", memory},
                                                {"head", head},
                                                {"tensor exchange", tensor},
                                                {"context exchange", context},
                                                {"expert exchange", expert},
                                                {"slowed by hidden exchanges", slowed},
                                                {"pipeline messages", pipeline},
                                                {"bubble", bubble},
                                                {"data exchange", data},
                                                {"optimizer", update},
                                                {"fixed", fixed}};
  std::vector<StepPart> parts;
  for (const auto& [name, took] : all)
    if (took > 0) parts.push_back({.name = name, .amount = took, .of = Amount::seconds, .rate = 1});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const StepPart& a, const StepPart& b) { return a.seconds() > b.seconds(); });
  return parts;
}

SimulatedStep simulate_step(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted) {
  return StepClock(run, cluster, fitted).step();
}

}  // namespace nought
