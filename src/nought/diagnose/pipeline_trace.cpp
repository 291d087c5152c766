#include "nought/diagnose/pipeline_trace.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

/// The number that the text begins with, which is removed.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// The instruction that is written as in a schedule, "F3" or "F3.1", or whose message is told, "send activation 3".
std::optional<Instruction> instruction_of(std::string_view name) {
  constexpr std::pair<std::string_view, Action> kNames[] = {{"F", Action::forward},
                                                            {"B", Action::backward},
                                                            {"W", Action::weight_gradients},
                                                            {"send activation ", Action::send_activation},
                                                            {"send gradient ", Action::send_gradient}};
  for (const auto& [prefix, action] : kNames) {
    std::string_view rest = name;
    if (!take_prefix(rest, prefix)) continue;
    const std::optional<int64_t> micro_batch = take_number(rest);
    const int64_t chunk = take_prefix(rest, ".") ? take_number(rest).value_or(-1) : 0;
    if (micro_batch && chunk >= 0 && rest.empty()) return Instruction{action, *micro_batch, chunk};
  }
  return {};
}

void start_at_zero(PipelineTimeline& timeline) {
  double first = std::numeric_limits<double>::max();
  for (const auto& rank : timeline.ranks)
    for (const TimedInstruction& each : rank)
      if (is_pass(each.instruction.action)) first = std::min(first, each.begin);
  for (auto& rank : timeline.ranks) {
    for (TimedInstruction& each : rank) each.begin -= first, each.end -= first;
    std::stable_sort(rank.begin(), rank.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
}

void require_same_pipeline(const PipelineTimeline& timeline, int64_t micro_batches, const std::string& file) {
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::set<std::pair<int64_t, int64_t>> forwards;  // by micro-batch and chunk
    for (const TimedInstruction& each : timeline.ranks[rank])
      if (each.instruction.action == Action::forward)
        forwards.emplace(each.instruction.micro_batch, each.instruction.chunk);
    const int64_t expected = micro_batches * timeline.chunks;
    const bool same = std::ssize(forwards) == expected && forwards.rbegin()->first + 1 == micro_batches &&
                      forwards.rbegin()->second + 1 == timeline.chunks;
    require<ConfigError>(
        same,
        "{}: pipeline rank {} has {} forward passes there, and {} in this run: name the trace of a run "
        "with the same configuration and ranks",
        file, rank, forwards.size(), expected);
  }
}

}  // namespace

PipelineTimeline timeline_of_trace(const std::filesystem::path& file, const Pipeline& pipeline, int64_t micro_batches,
                                   int64_t world_size) {
  const Json trace = read_json_file(file);
  require<ConfigError>(trace.is_object() && trace.contains("traceEvents"), "{} is no trace of `nought train --trace`",
                       file.string());
  const int64_t distance = world_size / pipeline.ranks;  // between the first ranks of neighbouring stages
  PipelineTimeline timeline{.chunks = pipeline.chunks, .ranks = {}};
  timeline.ranks.resize(static_cast<size_t>(pipeline.ranks));
  for (const Json& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", "");
    if (category != "pass" && category != "collective") continue;
    const int64_t rank = event.at("pid");
    const auto instruction = instruction_of(event.at("name").get<std::string>());
    if (!instruction || rank % distance != 0 || rank / distance >= pipeline.ranks) continue;
    const double begin = event.at("ts").get<double>() * 1e-6;
    timeline.ranks[static_cast<size_t>(rank / distance)].push_back(
        {*instruction, begin, begin + event.at("dur").get<double>() * 1e-6});
  }
  require_same_pipeline(timeline, micro_batches, file.string());
  start_at_zero(timeline);
  return timeline;
}

}  // namespace nought
