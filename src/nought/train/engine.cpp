#include "nought/train/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nought/train/locate.h"

namespace nought {

bool StepResult::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

std::string Engine::explain(const StepResult& result, std::span<const Batch> micro_batches, double total_weight) {
  const int64_t step = model_.optimizer().updates() + skipped_ + 1;
  const double scale = result.loss_scale * gradient_factor_ / total_weight;
  return fmt::format("step {}: the loss is {} and the gradient norm {}; first found at {}", step, result.loss,
                     result.grad_norm, locate_nonfinite(model_, micro_batches, scale));
}

StepResult Engine::compute(std::span<const Batch> micro_batches, double total_weight) {
  require(!micro_batches.empty() && total_weight > 0, "a step needs at least one target");
  const Context& context = model_.context();
  const double factor = scaler_.scale() * gradient_factor_;
  // Losses and norms are added up on the device: all come to the host together, once in a step.
  const Tensor loss_sum = context.zeros({1}, DType::f64, Category::workspace);
  PhaseMemory memory;
  const auto alive = [&] { return context.memory->ledger().current_total(); };
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    model_.begin_micro_batch(i + 1 == micro_batches.size());
    Tape tape(context);
    const Var loss = [&] {
      const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "forward");
      return model_.model().loss(tape, micro_batches[i], factor / total_weight);
    }();
    context.run(AddTo{.x = loss.value, .into = loss_sum});
    memory.forward = alive();
    const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "backward");
    tape.backward(loss);
    memory.backward = alive();
  }
  const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "optimizer");
  const Tensor squares = model_.finish_gradients();
  // One collective where both groups are all ranks, which then agree on whether the step is to be skipped.
  const std::vector<double> sums = sums_on_host(
      model_.mesh(), context, {{Group::norm, squares}, {Group::losses, loss_sum}}, model_.model().step_values(context));
  const auto loss = sums.begin() + squares.numel();
  model_.model().finish_step({loss + 1, sums.end()});
  return {.loss = *loss / total_weight,
          .grad_norm = std::sqrt(std::accumulate(sums.begin(), loss, 0.0)) / factor,
          .loss_scale = scaler_.scale(),
          .memory = memory};
}

StepResult Engine::accumulate(std::span<const Batch> micro_batches, double total_weight) {
  const StepResult result = compute(micro_batches, total_weight);
  if (!result.finite()) fail<Error>("{}", explain(result, micro_batches, total_weight));
  return result;
}

StepResult Engine::step(std::span<const Batch> micro_batches, double total_weight, double lr, double max_norm) {
  const Memory::Step scope(*model_.context().memory);
  StepResult result = compute(micro_batches, total_weight);
  result.skipped = !result.finite();  // the sums are those of all ranks, so all of them agree
  if (result.skipped && !scaler_.scales()) {
    result.nonfinite = explain(result, micro_batches, total_weight);
    if (on_nonfinite_ == OnNonfinite::stop)
      fail<Error>(
          "{}: the weights are those of the step before; lower the learning rate, look at the data, or skip such "
          "steps with training.on_nonfinite = \"skip\"",
          result.nonfinite);
  }
  if (result.skipped) {
    model_.discard_gradients();
    ++skipped_;
  } else {
    const double clip = max_norm > 0 ? std::min(1.0, max_norm / (result.grad_norm + 1e-6)) : 1.0;
    const TimedScope scope(model_.mesh().world().timeline(), TraceEventKind::phase, "optimizer");
    model_.update(lr, clip / (result.loss_scale * gradient_factor_));
  }
  scaler_.update(result.skipped);
  result.memory.update = model_.context().memory->ledger().current_total();
  return result;
}

double Engine::evaluate(std::span<const Batch> micro_batches, double total_weight) {
  const Context& context = model_.context();
  const Tensor loss_sum = context.zeros({1}, DType::f64, Category::workspace);
  for (const Batch& batch : micro_batches) {
    Tape tape(context, /*recording=*/false);
    context.run(AddTo{.x = model_.model().loss(tape, batch, 1).value, .into = loss_sum});
  }
  return sums_on_host(model_.mesh(), context, {{Group::losses, loss_sum}}).front() / total_weight;
}

}  // namespace nought
