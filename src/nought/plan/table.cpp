#include "nought/plan/table.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "nought/base/json.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/models/context_choice.h"
#include "nought/models/flops.h"
#include "nought/plan/most_memory.h"

namespace nought {

namespace {

constexpr int kNameWidth = 18, kColumnWidth = 13;

/// A row of right-aligned cells after its name.
template <class Range, class Cell>
std::string row(std::string_view name, const Range& columns, Cell cell) {
  std::string text = fmt::format("{:<{}}", name, kNameWidth);
  for (const auto& column : columns) text += fmt::format("{:>{}}", cell(column), kColumnWidth);
  return text + "\n";
}

/// A row per category in which some column holds something, named after the pool if that is not the device.
template <class Range, class Bytes>
std::string category_rows(const Range& columns, Bytes bytes, std::string_view pool = "") {
  std::string text;
  for (size_t c = 0; c < kNumCategories; ++c) {
    if (std::all_of(columns.begin(), columns.end(), [&](const auto& each) { return bytes(each, c) == 0; })) continue;
    text += row(fmt::format("  {}{}", pool, name_of(static_cast<Category>(c))), columns,
                [&](const auto& each) { return format_bytes(bytes(each, c)); });
  }
  return text;
}

std::string traffic_rows(const std::vector<Prediction>& predictions) {
  std::string text;
  for (size_t c = 0; c < kNumCollectives; ++c) {
    if (std::all_of(predictions.begin(), predictions.end(),
                    [&](const Prediction& each) { return each.traffic.counts[c].bytes == 0; }))
      continue;
    text += row(fmt::format("  {}", name_of(static_cast<Collective::Kind>(c))), predictions,
                [&](const Prediction& each) { return format_bytes(each.traffic.counts[c].bytes); });
  }
  text += row("  total", predictions, [](const Prediction& each) { return format_bytes(each.traffic.total_bytes()); });
  if (std::any_of(predictions.begin(), predictions.end(),
                  [](const Prediction& each) { return each.traffic_before.has_value(); }))
    text += row("  before compression", predictions, [](const Prediction& each) {
      return format_bytes(each.traffic_before.value_or(each.traffic).total_bytes());
    });
  const size_t groups = predictions.front().traffic_by_axes.size();
  for (size_t i = 0; groups > 1 && i < groups; ++i)
    text += row(fmt::format("  {}", predictions.front().traffic_by_axes[i].axes), predictions,
                [i](const Prediction& each) { return format_bytes(each.traffic_by_axes[i].traffic.total_bytes()); });
  return text;
}

/// What a step moves between pools, if it does.
std::string moved_rows(const std::vector<Prediction>& predictions) {
  std::string text;
  const auto add = [&](std::string_view name, int64_t StateTraffic::*bytes) {
    const auto of = [bytes](const Prediction& each) { return each.states.*bytes; };
    if (std::all_of(predictions.begin(), predictions.end(), [&](const Prediction& each) { return of(each) == 0; }))
      return;
    text += row(fmt::format("  {}", name), predictions, [&](const Prediction& each) { return format_bytes(of(each)); });
  };
  add("device to host", &StateTraffic::down);
  add("host to device", &StateTraffic::up);
  add("from files", &StateTraffic::read);
  add("to files", &StateTraffic::written);
  return text.empty() ? text : "\nbytes moved between pools per rank and step\n" + text;
}

/// What the model costs per token, in both conventions (formulas: models/flops.h).
struct TokenFlops {
  double palm, causal;
};
TokenFlops flops_of(const PlanReport& report) {
  const int64_t length = report.predictions.front().layout.seq_length;
  return {training_flops_per_token(report.config, length, /*causal=*/false),
          training_flops_per_token(report.config, length)};
}

/// "8 ranks, 2 of which share each matrix and slice the tokens, 4 hold different experts".
std::string ranks_text(const Layout& layout, ContextMethod method) {
  std::string text = fmt::format("{} rank{}", layout.ranks, layout.ranks == 1 ? "" : "s");
  if (layout.tensor_ranks > 1)
    text += fmt::format(", {} of which share each matrix{}", layout.tensor_ranks,
                        layout.sequence_parallel ? " and slice the tokens" : "");
  if (layout.context_ranks > 1)
    text += fmt::format(", {}{} share each sequence ({})", layout.context_ranks,
                        layout.tensor_ranks > 1 ? "" : " of which", name_of(method));
  const bool shares = layout.tensor_ranks > 1 || layout.context_ranks > 1;
  if (layout.stages() > 1)
    text += fmt::format(", {}{} hold different layers ({})", layout.stages(), shares ? "" : " of which",
                        name_of(layout.pipeline.schedule));
  if (layout.expert_ranks > 1)
    text += fmt::format(", {}{} hold different experts", layout.expert_ranks,
                        shares || layout.stages() > 1 ? "" : " of which");
  if (layout.replicas > 1) text += fmt::format(", {} replicas of all that", layout.replicas);
  return text;
}

/// How ranks that share sequences attend.
ContextChoice choice_of(const PlanReport& report) {
  const Layout& layout = report.predictions.front().layout;
  return choose_context_method(report.config, layout.context_ranks, layout.tensor_ranks, layout.context_method);
}

/// With experts: what a token passes.
std::string active_text(const PlanReport& report) {
  const int64_t idle = idle_parameters(report.config), all = report.predictions.front().parameters;
  return idle == 0 ? "" : fmt::format(", {} of them active", format_count(static_cast<double>(all - idle)));
}

std::string header(const PlanReport& report) {
  const Layout& layout = report.predictions.front().layout;
  const TokenFlops flops = flops_of(report);
  const ContextChoice choice = choice_of(report);
  std::string lines, stages;
  if (layout.context_ranks > 1) lines = fmt::format("attend  {}: {}\n", name_of(choice.method), choice.reason);
  for (const std::string& line : describe_stages(report.config, layout.pipeline, layout.seq_length))
    stages += fmt::format("{:<8}{}\n", stages.empty() ? "cut" : "", line);
  return fmt::format(
      "model   {} with {} parameters in {}{}{}\n"
      "run     {}, micro-batch {} x {} accumulated, sequences of {}: {} tokens per step{}\n"
      "work    {} per token, forward and backward; {} if attention counts masked products too, as PaLM does\n{}\n",
      report.config.family, format_count(static_cast<double>(report.predictions.front().parameters)),
      name_of(layout.sharding.dtype),
      trained_text(report.predictions.front().parameters, report.predictions.front().frozen), active_text(report),
      ranks_text(layout, choice.method), layout.micro_batch, layout.accumulation, layout.seq_length,
      layout.tokens_per_step(), layout.recompute.str().empty() ? "" : fmt::format("; {}", layout.recompute.str()),
      format_rate(flops.causal, "FLOP"), format_rate(flops.palm, "FLOP"), lines + stages);
}

/// What recomputation does to the peak, at one stage.
std::string recompute_rows(const std::vector<Prediction>& modes) {
  const auto activations = static_cast<size_t>(Category::activations);
  return fmt::format("\npeak bytes per rank by recompute, at stage {}\n", modes.front().layout.zero_stage) +
         row("", modes, [](const Prediction& each) { return name_of(each.layout.recompute.mode); }) +
         row("  activations", modes,
             [&](const Prediction& each) { return format_bytes(each.memory.peak[activations]); }) +
         row("  all at once", modes, [](const Prediction& each) { return format_bytes(each.memory.peak_total); }) +
         row("  work", modes, [](const Prediction& each) { return format_rate(each.executed_flops, "FLOP"); });
}

/// One row for each number of ranks that share sequences.
std::string longest_rows(const PlanReport& report) {
  const bool tiled = report.longest.front().tiled.has_value();
  std::string text = fmt::format(
      "\nlongest sequences in {} per rank, micro-batch {}, by the ranks that share each (cp_size, sp_size){}\n",
      format_bytes(report.budgets.device), report.predictions.front().layout.micro_batch,
      tiled ? "; the last column with training.tiled_mlp" : "");
  const auto tokens = [](int64_t length) {
    return length == 0 ? fmt::format("under {}", kLengthStep) : fmt::format("{}", length);
  };
  for (const LongestSequence& each : report.longest)
    text += fmt::format("  {:<12} {:>12}{}{}\n", each.context_ranks, tokens(each.length),
                        each.tiled ? fmt::format(" {:>12}", tokens(*each.tiled)) : "",
                        each.by_positions ? "   all positions that the model has learned" : "");
  return text;
}

/// The rows of memory_table.
std::vector<std::vector<std::string>> memory_rows(const std::vector<MemoryColumn>& columns) {
  std::vector<std::vector<std::string>> rows{{""}};
  for (const MemoryColumn& each : columns) rows[0].push_back(each.title);
  const auto add = [&](std::string_view name, bool if_any, auto bytes) {
    if (if_any &&
        std::all_of(columns.begin(), columns.end(), [&](const MemoryColumn& each) { return bytes(each) == 0; }))
      return;
    rows.push_back({fmt::format("  {}", name)});
    for (const MemoryColumn& each : columns) rows.back().push_back(format_bytes(bytes(each)));
  };
  for (size_t c = 0; c < kNumCategories; ++c)
    add(name_of(static_cast<Category>(c)), true, [c](const MemoryColumn& each) { return each.memory.peak[c]; });
  const auto add_pool = [&](std::string_view pool, std::array<int64_t, kNumCategories> RankMemory::*bytes) {
    for (size_t c = 0; c < kNumCategories; ++c)
      add(fmt::format("{}: {}", pool, name_of(static_cast<Category>(c))), true,
          [c, bytes](const MemoryColumn& each) { return (each.memory.*bytes)[c]; });
  };
  add("all at once", false, [](const MemoryColumn& each) { return each.memory.peak_total; });
  add("fragmentation", false, [](const MemoryColumn& each) { return each.memory.fragmentation; });
  add("on the host", true, [](const MemoryColumn& each) { return each.memory.host_peak; });
  add_pool("host", &RankMemory::host);
  if (std::any_of(columns.begin(), columns.end(), [](const MemoryColumn& each) {
        return each.memory.ram_peak > std::max(each.memory.peak_total, each.memory.host_peak);
      }))
    add("all in RAM", false, [](const MemoryColumn& each) { return each.memory.ram_peak; });
  add("in files", true, [](const MemoryColumn& each) { return each.memory.file_peak; });
  add_pool("file", &RankMemory::file);
  return rows;
}

}  // namespace

std::string memory_table(const std::vector<MemoryColumn>& columns, int width) {
  Table table{.ranks = std::vector<int>(columns.size(), 0), .rows = memory_rows(columns)};
  table.name_columns = kNameWidth, table.cell_columns = kColumnWidth - 2;
  return fit_table(table, width);
}

std::string memory_table(const std::vector<RankMemory>& predicted, const std::vector<RankMemory>& measured, int width) {
  std::vector<MemoryColumn> columns;
  const auto needed = kNameWidth + kColumnWidth * static_cast<int>(measured.size() + predicted.size());
  if (width > 0 && needed > width && measured.size() > 2) {
    if (!predicted.empty()) columns.push_back({"predicted", most_of(predicted)});
    columns.push_back({"least", least_of(measured)});
    columns.push_back({fmt::format("most of {}", measured.size()), most_of(measured)});
  } else {
    const size_t at_one_place = predicted.empty() ? measured.size() : measured.size() / predicted.size();
    for (size_t rank = 0; rank < measured.size(); ++rank) {
      if (!predicted.empty() && rank % at_one_place == 0)
        columns.push_back({"predicted", predicted[rank / at_one_place]});
      columns.push_back({fmt::format("rank {}", rank), measured[rank]});
    }
  }
  return memory_table(columns, width);
}

std::string bound_text(const RankMemory& at_most) {
  return fmt::format(
      "experts: every expert is taken to get as many tokens as any other; a rank needs at most {} if its experts get "
      "all "
      "that tokens can send them",
      format_bytes(at_most.peak_total));
}

namespace {

/// What a rank needs where its experts get all that they can, which budgets have to hold.
std::string most_rows(const std::vector<Prediction>& all) {
  if (!all.front().at_most) return "";
  return row("  at most", all, [](const Prediction& each) { return format_bytes(each.most().peak_total); }) + "  " +
         bound_text(all.front().most()) + "\n";
}

}  // namespace

std::string trained_text(int64_t parameters, int64_t frozen) {
  if (frozen == 0) return "";
  return fmt::format(", {} of them trained", format_count(static_cast<double>(parameters - frozen)));
}

std::string to_text(const PlanReport& report) {
  const std::vector<Prediction>& all = report.predictions;
  std::vector<MemoryColumn> peaks;
  for (const Prediction& each : all) peaks.push_back({fmt::format("stage {}", each.layout.zero_stage), each.memory});
  std::string text = header(report) + "peak bytes per rank\n" + memory_table(peaks) + most_rows(all);
  const auto add_budget = [&](std::string_view name, MemoryBudgets budget, int64_t bytes) {
    if (bytes > 0)
      text += row(fmt::format("  {} {}", name, format_bytes(bytes)), all,
                  [&](const Prediction& each) { return budget.hold(each.most()) ? "fits" : "too much"; });
  };
  add_budget("of", {.device = report.budgets.device}, report.budgets.device);
  add_budget("RAM of", {.host = report.budgets.host}, report.budgets.host);
  if (!report.recompute.empty()) text += recompute_rows(report.recompute);
  if (!report.longest.empty()) text += longest_rows(report);
  text += "\nbytes per rank between two steps\n" +
          category_rows(all, [](const Prediction& each, size_t c) { return each.steady[c]; }) +
          row("  total", all, [](const Prediction& each) { return format_bytes(each.steady_total()); }) +
          category_rows(
              all, [](const Prediction& each, size_t c) { return each.steady_host[c]; }, "host: ") +
          category_rows(
              all, [](const Prediction& each, size_t c) { return each.steady_file[c]; }, "file: ");
  text += "\nbytes sent per rank and step\n" + traffic_rows(all);
  if (all.front().layout.local_steps) {
    const LocalStepsOptions& local = *all.front().layout.local_steps;
    text += row(fmt::format("  at synchronizations / {}", local.sync_every), all, [&](const Prediction& each) {
      return format_bytes(each.at_synchronizations.total_bytes() / local.sync_every);
    });
  }
  for (const std::string& line : report.zero_costs) text += fmt::format("  {}\n", line);
  text += moved_rows(all);
  text += "\nwork per rank and step, recomputation included\n" +
          row("  executed", all, [](const Prediction& each) { return format_rate(each.executed_flops, "FLOP"); });
  if (report.peak_flops > 0)
    text += row("  at the peak", all,
                [&](const Prediction& each) {
                  const double seconds = each.executed_flops / report.peak_flops;
                  return seconds < 1 ? fmt::format("{:.3g} ms", 1000 * seconds) : fmt::format("{:.3g} s", seconds);
                }) +
            fmt::format("  the peak is {}, this machine's {}, for each rank\n",
                        format_rate(report.peak_flops, "FLOP/s"), report.peak_name);
  if (report.idle_share)
    text += fmt::format("  {}: ranks are idle for {:.1f}% of the time of the passes, {}\n",
                        name_of(all.front().layout.pipeline.schedule), 100 * *report.idle_share,
                        report.time ? "as below" : "by FLOPs");
  return report.time ? text + to_text(*report.time) : text;
}

namespace {

int64_t sum_of(const std::array<int64_t, kNumCategories>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

OrderedJson by_category(const std::array<int64_t, kNumCategories>& bytes, int64_t total) {
  OrderedJson json;
  for (size_t c = 0; c < kNumCategories; ++c) json[std::string(name_of(static_cast<Category>(c)))] = bytes[c];
  json["total"] = total;
  return json;
}

OrderedJson to_json(const Traffic& traffic) {
  OrderedJson json;
  for (size_t c = 0; c < kNumCollectives; ++c) {
    const Traffic::Count& count = traffic.counts[c];
    if (count.calls == 0) continue;
    json[std::string(name_of(static_cast<Collective::Kind>(c)))] = {
        {"bytes", count.bytes}, {"elements", count.elements}, {"calls", count.calls}};
  }
  json["total_bytes"] = traffic.total_bytes();
  return json;
}

OrderedJson by_axes(const std::vector<Mesh::GroupTraffic>& groups) {
  OrderedJson json = OrderedJson::object();
  for (const Mesh::GroupTraffic& group : groups) json[group.axes] = to_json(group.traffic);
  return json;
}

}  // namespace

OrderedJson to_json(const PlanReport& report) {
  const Layout& layout = report.predictions.front().layout;
  const TokenFlops flops = flops_of(report);
  OrderedJson json{{"format", kPlanReportFormat.str()},
                   {"family", report.config.family},
                   {"parameters", report.predictions.front().parameters},
                   {"trained_parameters", report.predictions.front().parameters - report.predictions.front().frozen},
                   {"dtype", name_of(layout.sharding.dtype)},
                   {"device", layout.gpu ? "cuda" : "cpu"},
                   {"ranks", layout.ranks},
                   {"replicas", layout.replicas},
                   {"tensor_ranks", layout.tensor_ranks},
                   {"context_ranks", layout.context_ranks},
                   {"context_method", layout.context_ranks > 1 ? Json(name_of(choice_of(report).method)) : Json()},
                   {"expert_ranks", layout.expert_ranks},
                   {"pipeline_ranks", layout.stages()},
                   {"sequence_parallel", layout.sequence_parallel},
                   {"micro_batch", layout.micro_batch},
                   {"accumulation", layout.accumulation},
                   {"seq_length", layout.seq_length},
                   {"recompute", name_of(layout.recompute.mode)},
                   {"mlp_tiles", layout.recompute.mlp_tiles == 0 ? Json("auto") : Json(layout.recompute.mlp_tiles)},
                   {"tokens_per_step", layout.tokens_per_step()},
                   {"flops_per_token", {{"palm_6Psi_12Lhs", flops.palm}, {"causal_6Psi_6Lhs", flops.causal}}},
                   {"device_memory", report.budgets.device},
                   {"host_memory", report.budgets.host},
                   {"peak_flops", report.peak_flops},
                   {"stages", OrderedJson::array()}};
  if (report.idle_share) json["pipeline_idle_share"] = *report.idle_share;
  if (report.gpu) json["gpu"] = to_json(*report.gpu);
  if (report.time) json["time_of_step"] = to_json(*report.time);
  if (layout.stages() > 1)
    for (const StageSummary& each : summarize_stages(report.config, layout.pipeline, layout.seq_length))
      json["pipeline_stages"].push_back({{"first", each.first},
                                         {"last", each.last},
                                         {"parameters", each.parameters},
                                         {"share_of_flops", each.share}});
  for (const Prediction& each : report.predictions)
    json["stages"].push_back(
        {{"stage", each.layout.zero_stage},
         {"peak", by_category(each.memory.peak, each.memory.peak_total)},
         {"at_most", each.at_most ? by_category(each.at_most->peak, each.at_most->peak_total) : OrderedJson()},
         {"at_peak", by_category(each.memory.at_peak, each.memory.peak_total)},
         {"host_peak", each.memory.host_peak},
         {"ram_peak", each.memory.ram_peak},
         {"host", by_category(each.memory.host, each.memory.host_peak)},
         {"file", by_category(each.memory.file, each.memory.file_peak)},
         {"moved_per_step",
          {{"device_to_host", each.states.down},
           {"host_to_device", each.states.up},
           {"read_from_files", each.states.read},
           {"written_to_files", each.states.written}}},
         {"steady", by_category(each.steady, each.steady_total())},
         {"steady_host", by_category(each.steady_host, sum_of(each.steady_host))},
         {"steady_file", by_category(each.steady_file, sum_of(each.steady_file))},
         {"sent_per_step", to_json(each.traffic)},
         {"sent_per_step_by_axes", by_axes(each.traffic_by_axes)},
         {"sent_at_meetings", to_json(each.at_synchronizations)},
         {"micro_batches_in_flight", each.in_flight},
         {"executed_flops_per_step", each.executed_flops}});
  for (const Prediction& each : report.recompute)
    json["recompute_modes"].push_back({{"recompute", name_of(each.layout.recompute.mode)},
                                       {"stage", each.layout.zero_stage},
                                       {"peak", by_category(each.memory.peak, each.memory.peak_total)},
                                       {"executed_flops_per_step", each.executed_flops}});
  for (const LongestSequence& each : report.longest)
    json["longest_sequences"].push_back({{"context_ranks", each.context_ranks},
                                         {"seq_length", each.length},
                                         {"peak", each.peak},
                                         {"seq_length_with_tiled_mlp", each.tiled ? Json(*each.tiled) : Json()}});
  return json;
}

}  // namespace nought
