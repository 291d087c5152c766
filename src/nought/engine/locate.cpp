#include "nought/engine/locate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nought/comm/first_rank.h"
#include "nought/engine/passes.h"
#include "nought/kernels/watch.h"

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

/// The first rank that has found something in a forward pass; where there is none, the first of the last pipeline stage
/// that has: walking back, what it found gets to the stages before. The end if nobody has.
std::vector<std::string>::const_iterator first_stage(const std::vector<std::string>& texts, const Grid& grid) {
  const auto forward = [](const std::string& text) { return text.find(", forward, ") != std::string::npos; };
  const auto found = std::find_if(texts.begin(), texts.end(), forward);
  if (found != texts.end()) return found;
  auto last = texts.end();
  for (auto text = texts.begin(); text != texts.end(); ++text) {
    const auto stage = [&](auto of) { return grid.coordinate(static_cast<int>(of - texts.begin()), Axis::pipeline); };
    if (!text->empty() && (last == texts.end() || stage(text) > stage(last))) last = text;
  }
  return last;
}

/// What was found, and after how many exchanges with the ranks that share matrices with this one or hold other experts.
/// These ranks make the same exchanges in the same order.
struct Found {
  std::string what;
  int64_t exchanges_before = 0;
};

/// What this rank has exchanged with them so far.
int64_t exchanges(const Mesh& mesh) {
  int64_t calls = 0;
  for (const Group group : {Group::tensor, Group::expert_tensor, Group::experts})
    for (const Traffic::Count& count : mesh.group(group).traffic().counts) calls += count.calls;
  return calls;
}

/// The first result with such a value that this rank computes.
Found bad_result(ShardedModel& model, const StepSchedule& schedule, std::span<const Batch> micro_batches,
                 double gradient_scale) {
  Found found;
  const Context& context = model.context();
  const Context watched{
      context.memory,
      make_watching_kernels(context.kernels,
                            [&](std::string_view operation, std::string_view result, const Tensor& values) {
                              if (!found.what.empty()) return;
                              const std::string what = nonfinite_in(context, values);
                              if (what.empty()) return;
                              found.exchanges_before = exchanges(model.mesh());
                              found.what = fmt::format("{}, {}: {} {} {} {}", model.at_work(), operation, result,
                                                       values.shape().str(), name_of(values.dtype()), what);
                            }),
      context.stream};
  // What was found ends nothing here: the other ranks count on this one's part in the collectives.
  Passes passes(model, schedule, micro_batches, {.gradient_scale = gradient_scale, .context = &watched});
  for (size_t place = 0; has_micro_batch(schedule.instructions()[place].action); ++place) passes.run(place);
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

/// What the first rank that has found something says, with its number; the same on every rank. Among the ranks that
/// share its matrices or hold other experts it is the one that found it earliest: what one computes gets to the others
/// by the next exchange.
std::string first_of_ranks(ShardedModel& model, const Found& mine) {
  const Mesh& mesh = model.mesh();
  const std::string own = mine.what.empty() ? "" : fmt::format("{} {}", mine.exchanges_before, mine.what);
  const std::vector<std::string> texts = texts_of_ranks(mesh.group(Group::decisions), model.context(), own);
  const auto found =
      mesh.grid().size(Axis::pipeline) > 1
          ? first_stage(texts, mesh.grid())
          : std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
  if (found == texts.end()) return "";
  const auto exchanges_before = [&](int rank) {
    const std::string& text = texts[static_cast<size_t>(rank)];
    return text.empty() ? std::numeric_limits<int64_t>::max() : std::stoll(text);
  };
  const bool experts = mesh.grid().size(Axis::expert) > 1;
  const Axes axes = experts ? Axes{Axis::expert_tensor, Axis::expert} : Axes{Axis::tensor};
  const std::vector<int> exchanging = mesh.grid().group(static_cast<int>(found - texts.begin()), axes);
  const int first = *std::min_element(exchanging.begin(), exchanging.end(),
                                      [&](int a, int b) { return exchanges_before(a) < exchanges_before(b); });
  const std::string& text = texts[static_cast<size_t>(first)];
  return fmt::format("rank {}: {}", first, text.substr(text.find(' ') + 1));
}

}  // namespace

std::string locate_nonfinite(ShardedModel& model, const StepSchedule& schedule, std::span<const Batch> micro_batches,
                             double gradient_scale) {
  model.discard_gradients();
  if (std::string parameter = bad_parameter(model); !parameter.empty()) return parameter;
  std::string found = first_of_ranks(model, bad_result(model, schedule, micro_batches, gradient_scale));
  model.finish_gradients();
  model.model().step_values(model.context());  // what the passes have noted is no part of the next step
  if (found.empty()) found = bad_sum(model);
  model.discard_gradients();
  return found.empty() ? "no value of the step when it was repeated" : found;
}

}  // namespace nought
