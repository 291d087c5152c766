#include "nought/plan/step_time.h"

#include <algorithm>

#include "nought/base/text.h"
#include "nought/plan/formulas.h"

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
  const auto add = [&](std::string name, std::string home, double intensity, double bandwidth) {
    if (bandwidth > 0)
      all.push_back(
          {std::move(name), std::move(home), intensity, bandwidth, efficiency(intensity, bandwidth, rates.flops)});
  };
  const auto tokens = static_cast<double>(layout.micro_batch * layout.seq_length / layout.context_ranks);
  const bool in_files = layout.sharding.offload_optimizer.home == Pool::file;
  const double both = rates.read > 0 && rates.write > 0 ? 2 / (1 / rates.read + 1 / rates.write) : 0;
  const bool read = layout.sharding.offload_param.home == Pool::file;
  add("parameters, gradients", read ? "files" : "memory", parameters_intensity(tokens),
      read ? rates.read : rates.memory);
  add("optimizer states", in_files ? "files" : "memory",
      optimizer_intensity(tokens * static_cast<double>(layout.accumulation)), in_files ? both : rates.memory);
  const bool kept = layout.recompute.pool == Pool::file;
  if (layout.recompute.mode == Recompute::full)
    add("saved inputs", kept ? "files" : "memory", checkpoints_intensity(static_cast<double>(config.hidden_size), 1),
        kept ? both : rates.memory);
  return all;
}

std::string amount_text(const StepPart& part) {
  return part.flops ? format_rate(part.amount, "FLOP") : format_bytes(static_cast<int64_t>(part.amount));
}

std::string rate_text(const StepPart& part) {
  return part.flops ? format_rate(part.rate, "FLOP/s") : format_bytes(static_cast<int64_t>(part.rate)) + "/s";
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1000 * seconds) : fmt::format("{:.3g} s", seconds);
}

}  // namespace

double StepTime::seconds() const {
  double sum = 0;
  for (const StepPart& part : parts) sum += part.seconds() - part.hidden;
  return sum;
}

StepTime step_time(const ModelConfig& config, const Prediction& prediction, const MachineRates& rates) {
  StepTime time{.parts = {}, .crossing = crossing(config, prediction.layout, rates), .note = rates.note};
  std::vector<StepPart>& parts = time.parts;
  parts.push_back({.name = "products", .amount = prediction.executed_flops, .flops = true, .rate = rates.flops});
  parts.push_back({.name = "other operations", .amount = prediction.other_bytes, .rate = rates.memory});
  parts.push_back({.name = "the update", .amount = prediction.update_bytes, .rate = rates.memory});
  const double update = parts.back().seconds(), passes = parts[0].seconds() + parts[1].seconds();
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
  // An update beside passes has a thread of its own, which waits for files while the step goes on.
  const bool beside = options.early || options.delay_after;
  const double share = options.delay_after ? 1 : backward_share(prediction.layout.recompute.mode);
  const int64_t tiles = options.tiles();
  add_files(parts, prediction.by_update, "states", rates, beside || (options.reads_ahead && tiles > 1),
            beside || (options.writes_behind && tiles > (options.reads_ahead ? 2 : 1)),
            update + (beside ? std::min(left, share * passes) : 0));
  return time;
}

std::string to_text(const StepTime& time) {
  const auto row = [](std::string_view name, std::string_view amount, std::string_view rate, std::string_view last) {
    return fmt::format("  {:<21} {:>13} {:>15} {:>10}", name, amount, rate, last);
  };
  std::string text = "\ntime of a step, by rates that were measured here\n";
  for (const StepPart& part : time.parts) {
    text += row(part.name, amount_text(part), rate_text(part), seconds_text(part.seconds()));
    if (part.hidden > 0) text += fmt::format(", {:.0f}% of it hidden", 100 * part.hidden / part.seconds());
    text += '\n';
  }
  text += row("whole step", "", "", seconds_text(time.seconds())) + "\n";
  if (!time.note.empty()) text += fmt::format("  {}\n", time.note);
  if (time.crossing.empty()) return text;
  text += "\nefficiency of what crosses, if nothing of it is hidden (ZeRO-Infinity)\n";
  for (const CrossingPart& part : time.crossing)
    text +=
        row(part.name, fmt::format("{:.0f} FLOP/B", part.intensity),
            format_bytes(static_cast<int64_t>(part.bandwidth)) + "/s", fmt::format("{:.1f}%", 100 * part.efficiency)) +
        fmt::format(" from {}\n", part.home);
  return text;
}

OrderedJson to_json(const StepTime& time) {
  OrderedJson json{{"seconds", time.seconds()}, {"parts", OrderedJson::array()}, {"crossing", OrderedJson::array()}};
  for (const StepPart& part : time.parts)
    json["parts"].push_back({{"name", part.name},
                             {part.flops ? "flops" : "bytes", part.amount},
                             {"per_second", part.rate},
                             {"seconds", part.seconds()},
                             {"hidden_seconds", part.hidden}});
  for (const CrossingPart& part : time.crossing)
    json["crossing"].push_back({{"name", part.name},
                                {"home", part.home},
                                {"flops_per_byte", part.intensity},
                                {"bytes_per_second", part.bandwidth},
                                {"efficiency", part.efficiency}});
  return json;
}

}  // namespace nought
