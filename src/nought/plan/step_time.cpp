#include "nought/plan/step_time.h"

#include <algorithm>
#include <map>

#include "nought/base/text.h"
#include "nought/comm/traffic_sums.h"
#include "nought/plan/formulas.h"
#include "nought/plan/pass_times.h"
#include "nought/plan/step_work.h"

namespace nought {

namespace {

/// Reads and writes of files that may run beside `beside` seconds of other work, if they are hidden at all. Returns how
/// many seconds of these they take.
double add_files(std::vector<StepPart>& parts, const StateTraffic& bytes, std::string_view whose,
                 const MachineRates& rates, bool hides_reads, bool hides_writes, double beside) {
  if (rates.read <= 0 || rates.write <= 0) return 0;
  StepPart read{
      .name = fmt::format("{} from files", whose), .amount = static_cast<double>(bytes.read), .rate = rates.read};
  StepPart written{
      .name = fmt::format("{} to files", whose), .amount = static_cast<double>(bytes.written), .rate = rates.write};
  const double most = (hides_reads ? read.seconds() : 0) + (hides_writes ? written.seconds() : 0);
  const double share = most > 0 ? std::min(1.0, beside / most) : 0;  // one drive does both
  if (hides_reads) read.hidden = share * read.seconds();
  if (hides_writes) written.hidden = share * written.seconds();
  for (const StepPart& part : {read, written})
    if (part.amount > 0) parts.push_back(part);
  return read.hidden + written.hidden;
}

/// The share of the passes that walks back: twice a forward pass, and another one where blocks are computed again.
double backward_share(Recompute mode) { return mode == Recompute::full ? 3.0 / 4 : 2.0 / 3; }

/// Efficiencies of what is kept outside of the caches.
std::vector<CrossingPart> crossing(const ModelConfig& config, const Layout& layout, const MachineRates& rates) {
  std::vector<CrossingPart> all;
  const auto add = [&](std::string name, std::string source, double intensity, double bandwidth) {
    if (bandwidth > 0)
      all.push_back(
          {std::move(name), std::move(source), intensity, bandwidth, efficiency(intensity, bandwidth, rates.flops)});
  };
  const auto tokens = static_cast<double>(layout.micro_batch * layout.seq_length / layout.context_ranks);
  const bool in_files = layout.sharding.offload_optimizer.tier.pool == Pool::file;
  const double both = rates.read > 0 && rates.write > 0 ? 2 / (1 / rates.read + 1 / rates.write) : 0;
  const bool read = layout.sharding.offload_param.tier.pool == Pool::file;
  add("parameters, gradients", read ? "files" : "memory", parameters_intensity(tokens),
      read ? rates.read : rates.memory);
  add("optimizer states", in_files ? "files" : "memory",
      optimizer_intensity(tokens * static_cast<double>(layout.accumulation)), in_files ? both : rates.memory);
  const bool kept = layout.recompute.tier.pool == Pool::file;
  if (layout.recompute.mode == Recompute::full)
    add("saved inputs", kept ? "files" : "memory", checkpoints_intensity(static_cast<double>(config.hidden_size), 1),
        kept ? both : rates.memory);
  return all;
}

std::string amount_text(const StepPart& part) {
  if (part.of == Amount::seconds) return "";
  if (part.of == Amount::operations) return format_count(part.amount);
  return part.of == Amount::flops ? format_rate(part.amount, "FLOP") : format_bytes(static_cast<int64_t>(part.amount));
}

std::string rate_text(const StepPart& part) {
  if (part.of == Amount::seconds) return "";
  if (part.of == Amount::operations) return format_count(part.rate) + "/s";
  return part.of == Amount::flops ? format_rate(part.rate, "FLOP/s")
                                  : format_bytes(static_cast<int64_t>(part.rate)) + "/s";
}

std::string_view key_of(Amount amount) {
  switch (amount) {
    case Amount::bytes:
      return "bytes";
    case Amount::flops:
      return "flops";
    case Amount::operations:
      return "operations";
    case Amount::seconds:
      return "waited";
  }
  return "?";
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1000 * seconds) : fmt::format("{:.3g} s", seconds);
}

}  // namespace

std::string StepTime::str() const {
  if (fastest >= 1 && slowest <= 1) return seconds_text(seconds());
  return fmt::format("{} ({} to {})", seconds_text(seconds()), seconds_text(fastest * seconds()),
                     seconds_text(slowest * seconds()));
}

double StepTime::seconds() const {
  double sum = 0;
  for (const StepPart& part : parts) sum += part.seconds() - part.hidden;
  return sum;
}

namespace {

/// Work of so many seconds, if there is any.
void add_work(std::vector<StepPart>& parts, std::string name, double amount, Amount of, double seconds, double share) {
  parts.push_back(
      {.name = std::move(name), .amount = amount, .of = of, .rate = seconds > 0 ? amount / seconds / share : 1});
}

/// What ranks that have more threads than there are cores wait for each other: so many times their own work.
double waits_for_cores(const Layout& layout, const MachineRates& rates) {
  return layout.stages() > 1 ? 1 : std::max(rates.share, 1.0);  // stages wait for each other meanwhile
}

/// What a rank sends in collectives. Messages of a pipeline are in its timeline.
Traffic beside_pipeline(const Prediction& prediction) {
  Traffic traffic = prediction.traffic;
  for (const Mesh::GroupTraffic& group : prediction.traffic_by_axes)
    if (group.axes == name_of(Axis::pipeline)) {
      Traffic messages;
      for (const auto kind : {Collective::send, Collective::recv}) messages.counts[kind] = group.traffic.counts[kind];
      traffic = traffic - messages;
    }
  return traffic;
}

double seconds_of(const Traffic& traffic, const MachineRates& rates) {
  double seconds = 0;
  for (size_t c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective::Kind>(c);
    const Traffic::Count& count = traffic.counts[c];
    const auto bytes = static_cast<double>(count.bytes);
    const bool reduces = collective == Collective::reduce_scatter;
    if (collective != Collective::send)
      seconds += static_cast<double>(count.calls) * rates.call;  // nobody waits for it
    if (collective == Collective::all_reduce)
      seconds += bytes / 2 / rates.reduced + bytes / 2 / rates.gathered;
    else
      seconds += bytes / (reduces ? rates.reduced : rates.gathered);
  }
  return seconds;
}

void add_collectives(std::vector<StepPart>& parts, const Prediction& prediction, const MachineRates& rates,
                     double passes) {
  if (rates.gathered <= 0 || rates.reduced <= 0) return;
  const Traffic traffic = beside_pipeline(prediction);
  const double seconds = seconds_of(traffic, rates);
  if (seconds <= 0) return;
  const double bytes = static_cast<double>(traffic.total_bytes());
  StepPart part{.name = "collectives", .amount = bytes, .rate = bytes / seconds};
  const Layout& layout = prediction.layout;
  if (layout.sharding.overlap && rates.share < 1)
    part.hidden = std::min(seconds, backward_share(layout.recompute.mode) * passes);
  parts.push_back(part);
}

/// When the last pass ends if `share` times the cores would be needed for all ranks to run one at once.
double end_on_cores(const PipelineTimeline& timeline, double share) {
  std::map<double, int> changes;  // by how many the ranks that run a pass change, by time
  for (const std::vector<TimedInstruction>& rank : timeline.ranks)
    for (const TimedInstruction& each : rank)
      if (is_pass(each.instruction.action)) ++changes[each.begin], --changes[each.end];
  double end = 0, last = 0;
  int running = 0;
  for (const auto& [at, change] : changes) {
    end += (at - last) * std::max(1.0, share * running / static_cast<double>(timeline.ranks.size()));
    last = at, running += change;
  }
  return end;
}

/// Where ranks hold different layers: how long this one's passes wait for those of others, and for cores.
void add_waiting(StepTime& time, const ModelConfig& config, const Prediction& prediction, OperationTimes& times) {
  const Layout& layout = prediction.layout;
  if (layout.stages() <= 1) return;
  const MachineRates& rates = times.rates();
  const auto message = static_cast<double>(layout.micro_batch * layout.seq_length * config.hidden_size *
                                           size_of(layout.sharding.dtype)) /
                       layout.context_ranks;
  const double transfer = rates.gathered > 0 ? rates.call + message / rates.gathered : 0;
  time.timeline =
      pipeline_timeline(layout.pipeline, layout.accumulation, modelled_times(config, layout, times), transfer);
  const double waited =
      end_on_cores(*time.timeline, rates.share) - time.timeline->busy(static_cast<size_t>(prediction.place));
  time.parts.push_back(
      {.name = "waiting for stages", .amount = std::max(waited, 0.0), .of = Amount::seconds, .rate = 1});
}

StepTime time_of(const ModelConfig& config, const Prediction& prediction, OperationTimes& times, const StepWork& work) {
  const MachineRates& rates = times.rates();
  StepTime time{.parts = {}, .crossing = crossing(config, prediction.layout, rates)};
  time.note = rates.note;
  time.fastest = rates.fastest, time.slowest = rates.slowest, time.busy = rates.busy;
  std::vector<StepPart>& parts = time.parts;
  const double share = waits_for_cores(prediction.layout, rates);
  add_work(parts, "products", prediction.executed_flops, Amount::flops, work.products, share);
  add_work(parts, "other operations", prediction.other_bytes, Amount::bytes, work.other, share);
  add_work(parts, "the update", prediction.update_bytes, Amount::bytes, work.update, std::max(rates.share, 1.0));
  const double update = parts.back().seconds(), passes = parts[0].seconds() + parts[1].seconds();
  if (rates.operation > 0)
    add_work(parts, "the host, per operation", work.operations, Amount::operations, work.operations * rates.operation,
             share);
  add_collectives(parts, prediction, rates, passes);
  add_waiting(time, config, prediction, times);
  const auto add = [&](const char* name, int64_t bytes, double rate) {
    if (bytes > 0) parts.push_back({.name = name, .amount = static_cast<double>(bytes), .rate = rate});
  };
  const StateTraffic& moved = prediction.states;
  add("device to host", moved.down, rates.memory / 2);  // each byte is read and written
  add("host to device", moved.up, rates.memory / 2);
  const OffloadOptions& options = prediction.layout.sharding.offload_optimizer;
  double left = passes;  // seconds of them beside which nothing is hidden yet
  left -= add_files(parts, moved - prediction.by_update - prediction.of_gradients - prediction.of_inputs, "parameters",
                    rates, true, true, left);
  left -= add_files(parts, prediction.of_inputs, "saved inputs", rates, true, true, left);
  left -= add_files(parts, prediction.of_gradients, "gradients", rates, true, true, left);
  // An update overlapped with passes has a thread of its own, which waits for files while the step goes on.
  const bool beside = options.early || options.delay_after;
  const double share_of_passes = options.delay_after ? 1 : backward_share(prediction.layout.recompute.mode);
  const int64_t tiles = options.tiles();
  add_files(parts, prediction.by_update, "states", rates, beside || (options.reads_ahead && tiles > 1),
            beside || (options.writes_behind && tiles > (options.reads_ahead ? 2 : 1)),
            update + (beside ? std::min(left, share_of_passes * passes) : 0));
  return time;
}

}  // namespace

StepTime step_time(const ModelConfig& config, const Prediction& prediction, const MachineRates& rates) {
  OperationTimes times(rates);
  return time_of(config, prediction, times,
                 {.products = prediction.executed_flops / rates.flops,
                  .other = prediction.other_bytes / rates.memory,
                  .update = prediction.update_bytes / rates.memory,
                  .operations = prediction.operations});
}

StepTime step_time(const ModelConfig& config, const Prediction& prediction, OperationTimes& times) {
  return time_of(config, prediction, times, work_of_step(config, prediction.layout, prediction.place, times));
}

StepTime slowest_step(const ModelConfig& config, const std::vector<Prediction>& places, OperationTimes& times) {
  std::optional<StepTime> slowest;
  for (const Prediction& place : places) {
    StepTime time = step_time(config, place, times);
    if (!slowest || time.seconds() > slowest->seconds()) slowest = std::move(time);
  }
  return *slowest;
}

namespace {

std::string to_text(const Throughput& throughput) {
  return fmt::format("  {}{}, MFU {:.1f}%, limited by {}\n", format_token_rate(throughput.tokens),
                     throughput.ranks > 1
                         ? fmt::format(" ({} of each GPU)", format_token_rate(throughput.tokens / throughput.ranks))
                         : "",
                     100 * throughput.mfu, throughput.limit);
}

}  // namespace

std::string to_text(const StepTime& time) {
  const auto row = [](std::string_view name, std::string_view amount, std::string_view rate, std::string_view last) {
    return fmt::format("  {:<21} {:>13} {:>15} {:>10}", name, amount, rate, last);
  };
  std::string text = fmt::format("\ntime of a step, by {}\n", time.source);
  for (const StepPart& part : time.parts) {
    text += row(part.name, amount_text(part), rate_text(part), seconds_text(part.seconds()));
    if (part.hidden > 0) text += fmt::format(", {:.0f}% of it hidden", 100 * part.hidden / part.seconds());
    text += '\n';
  }
  text += row("whole step", "", "", seconds_text(time.seconds()));
  if (time.fastest < 1 || time.slowest > 1)
    text += fmt::format(", {} to {} by repeated measurements", seconds_text(time.fastest * time.seconds()),
                        seconds_text(time.slowest * time.seconds()));
  text += '\n';
  if (time.busy)
    text += "  the machine was busy: on a quiet one a step takes the time shown, here it may take the longest\n";
  if (time.throughput) text += to_text(*time.throughput);
  if (!time.note.empty()) text += fmt::format("  {}\n", time.note);
  if (time.crossing.empty()) return text;
  text += "\nefficiency of what crosses, if nothing of it is hidden (ZeRO-Infinity)\n";
  for (const CrossingPart& part : time.crossing)
    text +=
        row(part.name, fmt::format("{:.0f} FLOP/B", part.intensity),
            format_bytes(static_cast<int64_t>(part.bandwidth)) + "/s", fmt::format("{:.1f}%", 100 * part.efficiency)) +
        fmt::format(" from {}\n", part.source);
  return text;
}

OrderedJson to_json(const StepTime& time) {
  OrderedJson json{{"seconds", time.seconds()}, {"parts", OrderedJson::array()}, {"crossing", OrderedJson::array()}};
  json["fastest"] = time.fastest * time.seconds(), json["slowest"] = time.slowest * time.seconds();
  json["busy"] = time.busy;
  if (time.throughput)
    json["throughput"] = {{"tokens_per_second", time.throughput->tokens},
                          {"tokens_per_second_of_each", time.throughput->tokens / time.throughput->ranks},
                          {"mfu", time.throughput->mfu},
                          {"limited_by", time.throughput->limit}};
  for (const StepPart& part : time.parts)
    json["parts"].push_back({{"name", part.name},
                             {std::string(key_of(part.of)), part.amount},
                             {"per_second", part.rate},
                             {"seconds", part.seconds()},
                             {"hidden_seconds", part.hidden}});
  for (const CrossingPart& part : time.crossing)
    json["crossing"].push_back({{"name", part.name},
                                {"home", part.source},
                                {"flops_per_byte", part.intensity},
                                {"bytes_per_second", part.bandwidth},
                                {"efficiency", part.efficiency}});
  return json;
}

}  // namespace nought
