#include "nought/plan/gpu_time.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "nought/models/flops.h"
#include "nought/plan/pass_times.h"

namespace nought {

namespace {

double products_rate(const GpuRates& gpu, DType dtype) { return size_of(dtype) == 2 ? gpu.products : gpu.products_f32; }

/// A score costs as much as products with 128 elements of a head, whatever heads have: so the rate grows with them.
double attention_rate(const GpuRates& gpu, const ModelConfig& config, DType dtype) {
  constexpr double kScore = 128;
  const auto head = static_cast<double>(config.head_dim);
  return size_of(dtype) == 2 ? gpu.attention * 2 * head / (head + kScore) : gpu.products_f32;
}

/// The parts of the passes.
std::vector<StepPart> passes_of(double flops, double attention_flops, double bytes, const GpuRates& gpu,
                                const ModelConfig& config, DType dtype) {
  return {
      {.name = "products", .amount = flops - attention_flops, .of = Amount::flops, .rate = products_rate(gpu, dtype)},
      {.name = "attention", .amount = attention_flops, .of = Amount::flops, .rate = attention_rate(gpu, config, dtype)},
      {.name = "memory traffic", .amount = bytes, .rate = gpu.memory}};
}

double sum_of(const std::vector<StepPart>& parts) {
  double seconds = 0;
  for (const StepPart& part : parts) seconds += part.seconds() - part.hidden;
  return seconds;
}

/// The seconds of the passes that gradients and parameters may travel beside: at stage 3 all of them, at stage 2 all
/// backward passes, below it the last micro-batch's.
double beside_exchange(const Layout& layout, double passes) {
  if (!layout.sharding.overlap) return 0;
  if (layout.zero_stage == 3) return passes;
  const double backward = passes * (layout.recompute.mode == Recompute::full ? 3.0 / 4 : 2.0 / 3);
  return layout.zero_stage == 2 ? backward : backward / static_cast<double>(layout.accumulation);
}

/// Gradients and parameters travel between ranks that read different samples, beside the passes. What ranks exchange
/// that share matrices, sequences or experts is waited for. Messages of a pipeline are in its timeline.
void add_exchange(std::vector<StepPart>& parts, const Prediction& prediction, const GpuRates& gpu, double passes) {
  double states = 0, activations = 0;
  for (const Mesh::GroupTraffic& group : prediction.traffic_by_axes) {
    const auto bytes = static_cast<double>(group.traffic.total_bytes());
    if (group.axes == name_of(Axis::pipeline)) continue;
    const bool shares_passes = group.axes.starts_with(name_of(Axis::tensor)) || group.axes == name_of(Axis::context) ||
                               group.axes == name_of(Axis::expert);
    (shares_passes ? activations : states) += bytes;
  }
  if (activations > 0) parts.push_back({.name = "exchange in passes", .amount = activations, .rate = gpu.exchange});
  if (states <= 0) return;
  StepPart part{.name = "exchange", .amount = states, .rate = gpu.exchange};
  part.hidden = std::min(part.seconds(), beside_exchange(prediction.layout, passes));
  parts.push_back(part);
}

/// Both directions at once, beside the passes; but new parameters follow the update of states that the host has.
void add_bus(std::vector<StepPart>& parts, const Prediction& prediction, const GpuRates& gpu, double passes) {
  const auto up = static_cast<double>(prediction.states.up), down = static_cast<double>(prediction.states.down);
  if (up + down <= 0) return;
  const Layout& layout = prediction.layout;
  const OffloadOptions& states = layout.sharding.offload_optimizer;
  StepPart part{.name = "bus", .amount = up + down, .rate = gpu.bus * (up + down) / std::max(up, down)};
  double after = 0;
  if (states.tier.pool != Pool::device && !states.early && !states.delay_after) {
    const int parts_of_all =
        layout.zero_stage > 0 ? layout.ranks / layout.replicas : layout.tensor_ranks * layout.stages();
    const double trained =
        static_cast<double>((prediction.parameters - prediction.frozen) * size_of(layout.sharding.dtype));
    after = std::min(up, trained / parts_of_all) / gpu.bus;
  }
  part.hidden = std::min(passes, std::max(part.seconds() - after, 0.0));
  parts.push_back(part);
}

/// How long this rank's passes wait for those of other stages.
void add_waiting(StepTime& time, const ModelConfig& config, const Prediction& prediction, const GpuRates& gpu) {
  const Layout& layout = prediction.layout;
  if (layout.stages() <= 1) return;
  const double message = static_cast<double>(layout.micro_batch * layout.seq_length * config.hidden_size *
                                             size_of(layout.sharding.dtype)) /
                         layout.context_ranks;
  const auto cost = [&](const CountedWork& work) {
    return sum_of(passes_of(work.flops, work.attention_flops, work.bytes + work.product_bytes, gpu, config,
                            layout.sharding.dtype));
  };
  time.timeline = pipeline_timeline(layout.pipeline, layout.accumulation, modelled_times(config, layout, cost),
                                    gpu.launch + message / gpu.exchange);
  double end = 0;
  for (const auto& rank : time.timeline->ranks)
    for (const TimedInstruction& each : rank) end = std::max(end, each.end);
  const double waited = end - time.timeline->busy(static_cast<size_t>(prediction.place));
  time.parts.push_back(
      {.name = "waiting for stages", .amount = std::max(waited, 0.0), .of = Amount::seconds, .rate = 1});
}

StepTime time_at(const ModelConfig& config, const Prediction& prediction, const GpuRates& gpu) {
  const Layout& layout = prediction.layout;
  StepTime time{
      .parts = passes_of(prediction.executed_flops, prediction.attention_flops,
                         prediction.other_bytes + prediction.product_bytes, gpu, config, layout.sharding.dtype),
      .crossing = {},
      .source = fmt::format("rates of an {}; nothing was measured here", gpu.name)};
  std::vector<StepPart>& parts = time.parts;
  const double passes = sum_of(parts);
  parts.push_back({.name = "optimizer", .amount = prediction.update_bytes, .rate = gpu.memory});
  if (prediction.host_bytes > 0)
    parts.push_back({.name = "optimizer on the host", .amount = prediction.host_bytes, .rate = gpu.host_memory});
  const double device = passes + parts[3].seconds();
  StepPart launches{
      .name = "launches", .amount = prediction.operations, .of = Amount::operations, .rate = 1 / gpu.launch};
  launches.hidden = std::min(launches.seconds(), device);
  parts.push_back(launches);
  add_exchange(parts, prediction, gpu, passes);
  add_bus(parts, prediction, gpu, passes);
  add_waiting(time, config, prediction, gpu);
  if (prediction.states.read + prediction.states.written > 0) time.note = "reads and writes of files are not in it";
  return time;
}

Throughput throughput_of(const ModelConfig& config, const std::vector<Prediction>& places, const StepTime& time,
                         const GpuRates& gpu) {
  const Layout& layout = places.front().layout;
  double flops = training_flops_per_token(config, layout.seq_length);
  for (const Prediction& place : places) flops -= place.frozen_flops_per_token;
  Throughput result{.tokens = static_cast<double>(layout.tokens_per_step()) / time.seconds(), .ranks = layout.ranks};
  result.mfu = result.tokens / layout.ranks * flops / gpu.peak;
  const auto shown = [](const StepPart& part) { return part.seconds() - part.hidden; };
  result.limit = std::max_element(time.parts.begin(), time.parts.end(), [&](const StepPart& a, const StepPart& b) {
                   return shown(a) < shown(b);
                 })->name;
  return result;
}

}  // namespace

StepTime gpu_step_time(const ModelConfig& config, const std::vector<Prediction>& places, const GpuRates& gpu) {
  std::optional<StepTime> slowest;
  for (const Prediction& place : places) {
    StepTime time = time_at(config, place, gpu);
    if (!slowest || time.seconds() > slowest->seconds()) slowest = std::move(time);
  }
  slowest->throughput = throughput_of(config, places, *slowest, gpu);
  return std::move(*slowest);
}

}  // namespace nought
