#include "nought/engine/spike.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "nought/base/host.h"
#include "nought/comm/first_rank.h"
#include "nought/engine/engine.h"

namespace nought {

namespace {

constexpr int64_t kRemembered = 20, kFirstJudged = 10;  // steps

/// One computation of a step.
struct Outcome {
  std::vector<double> sums;  // over all ranks
  double own_loss = 0;
  double loss = 0, grad_norm = 0;
};

/// Bit by bit: nan equals itself.
bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

void SpikeWatch::Mean::add(double number) {
  if (!std::isfinite(number)) return;
  value += (number - value) / static_cast<double>(std::min(++count, kRemembered));
}

bool SpikeWatch::exceeds(double number, const Mean& mean) const {
  return !std::isfinite(number) || (mean.count >= kFirstJudged && number > factor_ * mean.value);
}

bool SpikeWatch::is_spike(double loss, double grad_norm) const {
  return exceeds(loss, loss_) || exceeds(grad_norm, grad_norm_);
}

void SpikeWatch::add(double loss, double grad_norm) { loss_.add(loss), grad_norm_.add(grad_norm); }

void Engine::repeat(Run& run) {
  model_.abandon_early_update();
  model_.discard_gradients();
  model_.model().restore(state_before_);
  Run again = begin(run.schedule, run.batches, run.total_weight);
  execute(again, Action::update);
  again.result.stop = again.result.stop || run.result.stop;
  again.result.shared = std::move(run.result.shared);
  run.result = std::move(again.result);
  run.sums = std::move(again.sums);
  run.loss_sum = again.loss_sum;
}

std::string Engine::culprits(double own_before, double own_now) {
  const bool differs = !same_bits({&own_before, 1}, {&own_now, 1});
  const std::vector<std::string> hosts =
      texts_of_ranks(model_.mesh().group(Group::decisions), model_.context(), differs ? host_name() : "");
  std::string found;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    if (!hosts[rank].empty()) found += fmt::format("{}rank {} on {}", found.empty() ? "" : ", ", rank, hosts[rank]);
  return found.empty() ? "a rank in its backward pass or in a reduction, as all ranks have their losses again" : found;
}

void Engine::repeat_if_spike(Run& run) {
  if (scaler_.scales() && !run.result.finite()) return;
  if (!spikes_->is_spike(run.result.loss, run.result.grad_norm)) {
    spikes_->add(run.result.loss, run.result.grad_norm);
    return;
  }
  const auto outcome = [&]() -> Outcome {
    const std::vector<double> own = model_.context().to_host<double>(run.loss_sum);
    return {run.sums, std::accumulate(own.begin(), own.end(), 0.0), run.result.loss, run.result.grad_norm};
  };
  const auto agree = [](const Outcome& a, const Outcome& b) { return same_bits(a.sums, b.sums); };
  const int64_t step = model_.optimizer().updates() + skipped_ + 1;
  std::vector<Outcome> seen{outcome()};
  const std::string what =
      fmt::format("step {}: the loss is {:.4g} and the gradient norm {:.4g}, on average they were {:.4g} and {:.4g}",
                  step, seen[0].loss, seen[0].grad_norm, spikes_->loss(), spikes_->grad_norm());
  repeat(run);
  seen.push_back(outcome());
  if (agree(seen[0], seen[1])) {
    run.result.spike = what + "; computed again, every bit is the same: it is the data or the model, not the hardware";
  } else {
    repeat(run);
    seen.push_back(outcome());
    const bool first_was_right = agree(seen[0], seen[2]);
    const std::string who = culprits(seen[first_was_right ? 2 : 0].own_loss, seen[1].own_loss);
    if (!first_was_right && !agree(seen[1], seen[2]))
      fail<Error>(
          "{}; three computations from the same state gave three results: the hardware is faulty ({}); the weights are "
          "those of the step before",
          what, who);
    run.result.spike =
        first_was_right
            ? fmt::format(
                  "{}; of two repetitions one differs: a transient fault of the hardware ({}); the step stays as "
                  "it was",
                  what, who)
            : fmt::format(
                  "{}; computed again they are {:.4g} and {:.4g}, twice: a transient fault of the hardware ({}); "
                  "the update uses the repetition",
                  what, seen[2].loss, seen[2].grad_norm, who);
  }
  spikes_->add(run.result.loss, run.result.grad_norm);
}

}  // namespace nought
