#include "nought/prove/proof.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/resume.h"
#include "nought/plan/budgets.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/plan/table.h"
#include "nought/prove/matching.h"
#include "nought/prove/waits.h"
#include "nought/weights/foreign_states.h"

namespace nought {

namespace {

std::string ranks_text(const DryRuns& runs) {
  const size_t chosen = runs.classes.chosen.size(), all = runs.classes.class_of.size();
  return chosen == all ? fmt::format("{} rank{}", all, all == 1 ? "" : "s")
                       : fmt::format("one rank of each of {} classes", chosen);
}

/// "load, 3 steps, validation, saving"
std::string parts_text(const std::vector<HeldBetween>& held) {
  std::vector<std::string> parts;
  int steps = 0;
  for (const HeldBetween& each : held) {
    if (each.before.starts_with("step ")) {
      if (++steps == 1) parts.emplace_back();
    } else if (each.before != "end") {
      parts.push_back(each.before);
    }
  }
  for (std::string& part : parts)
    if (part.empty()) part = fmt::format("{} steps", steps);
  return fmt::format("{}", fmt::join(parts, ", "));
}

Property prove_calls(const DryRuns& runs) {
  Property property{.name = "calls",
                    .claim = "every collective meets the same call of its group, and every send its receive",
                    .covered = {}};
  property.counterexample = find_mismatch(runs.ranks);
  int64_t collectives = 0, messages = 0;
  std::set<std::string> groups;
  for (const Transcript& each : runs.ranks.transcripts)
    for (const TranscriptCall& call : each.calls) {
      (call.message() ? messages : collectives) += 1;
      const std::string& name = each.groups[as_index(call.group)].name;
      groups.insert(name.starts_with("stages ") ? "neighbouring stages" : name);
    }
  property.covered = fmt::format("{} collectives and {} messages of {} in {}: {}", collectives, messages,
                                 ranks_text(runs), parts_text(runs.held.front()),
                                 groups.empty() ? "no groups" : fmt::format("{}", fmt::join(groups, "; ")));
  return property;
}

Property prove_waits(const DryRuns& runs, bool calls_meet) {
  Property property{
      .name = "waits", .claim = "no ranks, streams and groups wait for each other in a circle", .covered = {}};
  if (!calls_meet) {
    property.counterexample = Counterexample{-1, "calls do not meet, so what waits for what is not known"};
    return property;
  }
  const WaitGraph graph = follow_waits(runs.ranks);
  property.counterexample = graph.circle;
  property.covered =
      fmt::format("{} waits for {} calls, of which no message has room to wait in", graph.waits, graph.calls);
  return property;
}

Property prove_lifetimes(const DryRuns& runs) {
  Property property{
      .name = "lifetimes", .claim = "what is leased is released, and nothing grows from step to step", .covered = {}};
  size_t moments = 0;
  for (size_t i = 0; i < runs.held.size(); ++i) {
    moments += runs.held[i].size();
    if (!property.counterexample) property.counterexample = find_leak(runs.held[i], runs.classes.chosen[i]);
  }
  property.covered = fmt::format("leases of all Units and the ledgers of {} at {} moments between parts of the run",
                                 ranks_text(runs), moments);
  return property;
}

Property prove_saved(const DryRuns& runs) {
  Property property{.name = "resume", .claim = "a resume finds every interval that the layout needs", .covered = {}};
  const bool all = runs.classes.chosen.size() == runs.classes.class_of.size();
  property.counterexample = (all ? find_missing : find_missing_by_rank)(runs.saved, runs.asked, runs.classes.chosen);
  int64_t pieces = 0;
  std::set<std::string> states;
  for (const StateIntervals& each : runs.saved) {
    pieces += each.pieces;
    for (const auto& [key, intervals] : each.all()) states.insert(key.substr(0, key.find('/')));
  }
  property.covered = fmt::format("{} pieces of {} that {} write", pieces, fmt::join(states, ", "), ranks_text(runs));
  return property;
}

/// What the checkpoint on disk lacks of what the ranks read.
std::optional<Counterexample> find_missing_on_disk(const DryRuns& runs, const RunPlan& plan, std::string& told) {
  const std::filesystem::path point = resume_point(plan);
  if (holds_foreign_run(point)) {
    told = fmt::format("; {} is of another program, whose states are read as its files have them", point.string());
    return std::nullopt;
  }
  const Json manifest = read_manifest(point);
  std::map<std::string, int64_t> there;  // elements
  for (const Json& block : manifest.at("blocks")) {
    there[state_of_any_worker(block.at("state")) + "/" + block.at("parameter").get<std::string>()] +=
        block.at("end").get<int64_t>() - block.at("begin").get<int64_t>();
  }
  const bool adapter = info_in(manifest, point).base.has_value();
  for (size_t i = 0; i < runs.asked.size(); ++i)
    for (const auto& [key, wanted] : runs.asked[i].all()) {
      const int64_t needed = std::accumulate(wanted.begin(), wanted.end(), int64_t{0},
                                             [](int64_t sum, Interval each) { return sum + each.size(); });
      const auto found = there.find(key);
      if (needed == 0 || (found != there.end() && found->second >= needed)) continue;
      if (adapter && key.starts_with("master/")) continue;  // the model that the adapter was trained on has it
      return Counterexample{runs.classes.chosen[i],
                            fmt::format("{} has {} elements of {}, and rank {} reads {} of it", point.string(),
                                        found == there.end() ? 0 : found->second, key, runs.classes.chosen[i], needed)};
    }
  told = fmt::format("; and {} states of {}", there.size(), point.string());
  return std::nullopt;
}

Property prove_memory(const RunPlan& plan, const ModelConfig& config, const DryRuns& runs) {
  Property property{.name = "memory", .claim = "the peak of every pool stays within its budget", .covered = {}};
  const MemoryBudgets budgets = budgets_of(plan);
  const Layout layout = layout_of(plan);
  std::vector<std::pair<int, RankMemory>> peaks;  // by rank
  bool bound = false;
  if (layout.on_gpu() || (layout.expert_ranks > 1 && config.experts)) {
    for (const Prediction& place : predict_places(config, layout))
      peaks.emplace_back(DryRunPlace{.place = place.place}.rank(layout), place.most()),
          bound |= place.at_most.has_value();
  } else {
    for (size_t i = 0; i < runs.predictions.size(); ++i)
      peaks.emplace_back(runs.classes.chosen[i], runs.predictions[i].memory);
  }
  const auto most = std::max_element(peaks.begin(), peaks.end(), [](const auto& a, const auto& b) {
    return a.second.peak_total < b.second.peak_total;
  });
  for (const auto& [rank, memory] : peaks) {
    if (budgets.hold(memory)) continue;
    property.counterexample =
        Counterexample{rank, fmt::format("rank {} has {} on the device and {} in the host's RAM at the peak, the "
                                         "budgets are {} and {}",
                                         rank, format_bytes(memory.peak_total), format_bytes(memory.ram_peak),
                                         budgets.device > 0 ? format_bytes(budgets.device) : "unlimited",
                                         budgets.host > 0 ? format_bytes(budgets.host) : "unlimited")};
    break;
  }
  property.covered = fmt::format(
      "{} ranks with the longest batches{}; the most is {} on rank {}{}", peaks.size(),
      bound ? " and every row at one rank's experts" : "", format_bytes(most->second.peak_total), most->first,
      budgets.none() ? ". No budget is given: set training.device_memory or host_memory"
                     : fmt::format(", of {}", format_bytes(budgets.device > 0 ? budgets.device : budgets.host)));
  return property;
}

int64_t export_bytes(const RunPlan& plan, const DryRuns& runs) {
  return runs.predictions.front().parameters * size_of(plan.layout.sharding.dtype);
}

/// The bytes are 0 if nobody knows them.
Property prove_machine(const RunPlan& plan, int64_t checkpoint, int64_t exported) {
  Property property{.name = "machine", .claim = "disk, inodes, open files, maps and /dev/shm suffice", .covered = {}};
  const MachineNeeds needs = machine_needs(plan, checkpoint, exported);
  const MachineLimits limits = machine_limits(plan.output_dir);
  property.counterexample = find_shortage(needs, limits, plan.output_dir);
  property.covered = describe_needs(needs, limits);
  return property;
}

}  // namespace

bool Proof::holds() const { return failed() == nullptr; }

const Property* Proof::failed() const {
  const auto found =
      std::find_if(properties.begin(), properties.end(), [](const Property& each) { return !each.holds(); });
  return found == properties.end() ? nullptr : &*found;
}

std::vector<Property> prove_dry_runs(const DryRuns& runs) {
  std::vector<Property> properties{prove_calls(runs)};
  properties.push_back(prove_waits(runs, properties.front().holds()));
  properties.push_back(prove_lifetimes(runs));
  properties.push_back(prove_saved(runs));
  return properties;
}

void require_holds(const std::vector<Property>& properties) {
  for (const Property& each : properties)
    if (!each.holds()) fail<ConfigError>("the run would not go well: {}: {}", each.name, each.counterexample->text);
}

std::string require_proven(const RunPlan& ready, const ModelConfig& config, bool resumes,
                           std::chrono::milliseconds most) {
  const Deadline deadline = std::chrono::steady_clock::now() + most;
  const Layout layout = layout_of(ready);
  std::optional<DryRuns> runs;
  std::string why;
  try {
    runs = run_dry(config, layout, /*with_frozen=*/!ready.adapts(), deadline);
  } catch (const DeadlinePassed&) {
    why = fmt::format("dry runs take longer than {} ms", most.count());
  } catch (const Error& error) {
    why = error.what();  // of the dry run and not of the run, which will say so itself otherwise
  }
  if (!runs) {
    require_holds({prove_machine(ready, 0, 0)});
    return fmt::format(
        "calls and waits of the ranks are not proven before the start: {}; `nought check --ranks {} "
        "--prove` does it",
        why, layout.ranks);
  }
  require_holds(prove_dry_runs(*runs));
  if (std::string told; resumes)
    if (auto missing = find_missing_on_disk(*runs, ready, told))
      require_holds({{.name = "resume", .claim = "", .covered = "", .counterexample = std::move(missing)}});
  require_holds({prove_machine(ready, checkpoint_bytes(*runs), export_bytes(ready, *runs))});
  return "";
}

Proof prove(const RunPlan& ready, const ModelConfig& config, bool resumes) {
  const auto begin = std::chrono::steady_clock::now();
  const Layout layout = layout_of(ready);
  const DryRuns runs = run_dry(config, layout, /*with_frozen=*/!ready.adapts());
  Proof proof{.ranks = layout.ranks, .chosen = runs.classes.chosen, .properties = prove_dry_runs(runs)};
  if (Property& saved = proof.properties.back(); resumes && saved.holds()) {
    std::string told;
    saved.counterexample = find_missing_on_disk(runs, ready, told);
    saved.covered += told;
  }
  proof.properties.push_back(prove_memory(ready, config, runs));
  proof.properties.push_back(prove_machine(ready, checkpoint_bytes(runs), export_bytes(ready, runs)));
  proof.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return proof;
}

std::string to_text(const Proof& proof) {
  const auto held = std::count_if(proof.properties.begin(), proof.properties.end(),
                                  [](const Property& each) { return each.holds(); });
  std::string text = fmt::format("proof: {} of {} properties hold for {} rank{} ({} dry runs in {:.2g}s)\n", held,
                                 proof.properties.size(), proof.ranks, proof.ranks == 1 ? "" : "s", proof.chosen.size(),
                                 proof.seconds);
  for (const Property& each : proof.properties)
    text += each.holds() ? fmt::format("  {}: holds: {}. {}\n", each.name, each.claim, each.covered)
                         : fmt::format("  {}: DOES NOT HOLD: {}\n", each.name, each.counterexample->text);
  return text;
}

OrderedJson to_json(const Proof& proof) {
  OrderedJson json{{"format", kProofFormat.str()}, {"holds", proof.holds()},   {"ranks", proof.ranks},
                   {"dry_runs", proof.chosen},     {"seconds", proof.seconds}, {"properties", OrderedJson::array()}};
  for (const Property& each : proof.properties) {
    OrderedJson property{
        {"name", each.name}, {"claim", each.claim}, {"holds", each.holds()}, {"covered", each.covered}};
    if (each.counterexample)
      property["counterexample"] = {{"rank", each.counterexample->rank}, {"text", each.counterexample->text}};
    json["properties"].push_back(std::move(property));
  }
  return json;
}

}  // namespace nought
