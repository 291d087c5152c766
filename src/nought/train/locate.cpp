#include "nought/train/locate.h"

#include <algorithm>
#include <cmath>

#include "nought/comm/first_rank.h"
#include "nought/kernels/watch.h"
#include "nought/zero/micro_batch.h"

namespace nought {

namespace {

/// "holds 3 nan and 1 inf", or nothing.
std::string nonfinite_in(const Context& context, const Tensor& results) {
  const Tensor values = context.on_host(results);
  int64_t nan = 0, inf = 0;
  visit_float(values.dtype(), [&](auto tag) {
    for (const auto value : values.span<typename decltype(tag)::type>()) {
      const auto wide = static_cast<double>(value);
      nan += std::isnan(wide), inf += std::isinf(wide);
    }
  });
  if (nan + inf == 0) return "";
  if (nan == 0 || inf == 0) return fmt::format("holds {} {}", nan + inf, nan > 0 ? "nan" : "inf");
  return fmt::format("holds {} nan and {} inf", nan, inf);
}

/// The first parameter with such a value; every rank sees the same.
std::string bad_parameter(ShardedModel& model) {
  std::string found;
  for (size_t i = 0; i < model.model().units().size(); ++i)
    model.with_parameters(i, [&](const Parameter& parameter, const Tensor& values) {
      if (!found.empty()) return;
      const std::string what = nonfinite_in(model.context(), values);
      if (!what.empty()) found = fmt::format("parameter {} {} before the step", parameter.name, what);
    });
  return found;
}

/// The first result with such a value that this rank computes.
std::string bad_result(ShardedModel& model, std::span<const Batch> micro_batches, double gradient_scale) {
  std::string found;
  const Context& context = model.context();
  const Context watched{
      context.memory,
      make_watching_kernels(context.kernels,
                            [&](std::string_view operation, std::string_view result, const Tensor& values) {
                              if (!found.empty()) return;
                              const std::string what = nonfinite_in(context, values);
                              if (!what.empty())
                                found = fmt::format("{}, {}: {} {} {} {}", model.at_work(), operation, result,
                                                    values.shape().str(), name_of(values.dtype()), what);
                            }),
      context.stream};
  // What was found ends nothing here: the other ranks count on this one's part in the collectives.
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    MicroBatch micro_batch(
        model, micro_batches[i],
        {.gradient_scale = gradient_scale, .last = i + 1 == micro_batches.size(), .context = &watched});
    micro_batch.forward();
    micro_batch.backward();
  }
  return found;
}

/// The first parameter whose gradient, summed over ranks and micro-batches, has such a value.
std::string bad_sum(ShardedModel& model) {
  const auto& units = model.model().units();
  std::string found;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::vector<Tensor> gradients = model.gather_gradients(i);
    for (size_t p = 0; p < gradients.size(); ++p) {
      const std::string what = gradients[p] ? nonfinite_in(model.context(), gradients[p]) : "";
      if (found.empty() && !what.empty())
        found = fmt::format("the gradient of {} summed over ranks and micro-batches: {} {}",
                            units[i]->parameters()[p].name, name_of(model.options().gradient_dtype), what);
    }
  }
  return found;
}

/// The text of the first rank that has one, with its number; the same on every rank.
std::string first_of_ranks(ShardedModel& model, const std::string& mine) {
  const std::vector<std::string> texts = texts_of_ranks(model.mesh().group(Group::decisions), model.context(), mine);
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) return fmt::format("rank {}: {}", rank, texts[rank]);
  return "";
}

}  // namespace

std::string locate_nonfinite(ShardedModel& model, std::span<const Batch> micro_batches, double gradient_scale) {
  model.discard_gradients();
  if (std::string parameter = bad_parameter(model); !parameter.empty()) return parameter;
  std::string found = first_of_ranks(model, bad_result(model, micro_batches, gradient_scale));
  model.finish_gradients();
  model.model().step_values(model.context());  // what the passes have noted is no part of the next step
  if (found.empty()) found = bad_sum(model);
  model.discard_gradients();
  return found.empty() ? "no value of the step when it was repeated" : found;
}

}  // namespace nought
