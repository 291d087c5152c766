#include "nought/observe/run_record.h"

#include "nought/base/host.h"
#include "nought/base/open_file.h"
#include "nought/base/timing.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

/// The bytes of each category that has any.
OrderedJson by_category(const std::array<int64_t, kNumCategories>& bytes) {
  OrderedJson json = OrderedJson::object();
  for (size_t c = 0; c < kNumCategories; ++c)
    if (bytes[c] > 0) json[std::string(name_of(static_cast<Category>(c)))] = bytes[c];
  return json;
}

OrderedJson memory_json(const std::vector<RankMemory>& ranks) {
  OrderedJson list = OrderedJson::array();
  for (const RankMemory& rank : ranks)
    list.push_back({{"peak_total", rank.peak_total},
                    {"peak", by_category(rank.peak)},
                    {"at_peak", by_category(rank.at_peak)},
                    {"host_peak", rank.host_peak},
                    {"host", by_category(rank.host)},
                    {"file_peak", rank.file_peak},
                    {"file", by_category(rank.file)},
                    {"fragmentation", rank.fragmentation}});
  return list;
}

/// What a rank is predicted to send in a step, by axes of the mesh and kind of collective.
OrderedJson traffic_json(const std::vector<Mesh::GroupTraffic>& groups) {
  OrderedJson list = OrderedJson::array();
  for (const Mesh::GroupTraffic& group : groups)
    for (size_t kind = 0; kind < kNumCollectives; ++kind)
      if (const Traffic::Count& count = group.traffic.counts[kind]; count.calls > 0)
        list.push_back({{"axes", group.axes},
                        {"collective", name_of(static_cast<Collective::Kind>(kind))},
                        {"bytes", count.bytes},
                        {"calls", count.calls}});
  return list;
}

OrderedJson resolved_json(const RunPlan& plan) {
  OrderedJson rows = OrderedJson::array();
  for (const Resolved& row : plan.resolved)
    rows.push_back({{"key", row.key}, {"value", row.value}, {"reason", row.reason}});
  return rows;
}

OrderedJson summary_json(const RunSummary& run) {
  return {{"family", run.family},
          {"start", run.start},
          {"parameters", run.parameters},
          {"frozen", run.frozen},
          {"dtype", run.dtype},
          {"tokenizer", run.tokenizer},
          {"train_tokens", run.train_tokens},
          {"samples", run.samples},
          {"world_size", run.world_size},
          {"zero_stage", run.zero_stage},
          {"mesh", run.mesh},
          {"max_steps", run.max_steps},
          {"tokens_per_step", run.tokens_per_step},
          {"flops_per_token", run.flops_per_token},
          {"peak_flops", run.peak_flops},
          {"peak_name", run.peak_name},
          {"notes", run.notes}};
}

/// The starts that an earlier record lists; none if there is no record that can be read.
OrderedJson earlier_starts(const std::filesystem::path& path) {
  const OrderedJson earlier =
      OrderedJson::parse(bytes_if_there(path).value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!earlier.is_object() || !earlier.contains("starts") || !earlier["starts"].is_array()) return OrderedJson::array();
  return earlier["starts"];
}

}  // namespace

RunRecorder::RunRecorder(const RunPlan& plan, RunBeginning beginning, const RunPrediction& predicted)
    : path_(std::filesystem::path(plan.output_dir) / kRunRecordFile) {
  record_["format"] = kRunRecordFormat.str();
  record_["program"] = plan.program;
  record_["status"] = "running";
  record_["error"] = "";
  record_["starts"] = OrderedJson::array();
  record_["ended"] = nullptr;
  record_["arguments"] = std::move(beginning.arguments);
  record_["directory"] = std::filesystem::current_path().string();
  record_["host"] = host_name();
  record_["machine"] = std::move(beginning.machine);
  record_["settings"] = OrderedJson(beginning.settings);
  record_["resolved"] = resolved_json(plan);
  record_["warnings"] = plan.warnings;
  record_["predicted"] = {{"memory", memory_json(predicted.memory)},
                          {"memory_assumes", predicted.assumed},
                          {"step_seconds", predicted.seconds},
                          {"traffic", traffic_json(predicted.traffic)}};
  record_["measured"] = OrderedJson::object();
}

void RunRecorder::on_start(const RunSummary& summary) {
  record_["run"] = summary_json(summary);
  if (summary.first_step > 0) record_["starts"] = earlier_starts(path_);
  record_["starts"].push_back({{"step", summary.first_step},
                               {"time", seconds_since_1970()},
                               {"ranks", summary.world_size},
                               {"program", record_["program"]}});
  write_text_atomically(path_, record_.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  started_ = true;
}

void RunRecorder::on_collectives(const std::vector<CollectiveTotal>& totals) {
  OrderedJson rows = OrderedJson::array();
  for (const CollectiveTotal& total : totals)
    rows.push_back({{"name", total.name}, {"bytes", total.bytes}, {"calls", total.calls}, {"seconds", total.seconds}});
  record_["measured"]["collectives"] = std::move(rows);
}

void RunRecorder::on_interrupt(int64_t, const std::filesystem::path&) { end("interrupted"); }

void RunRecorder::on_finish(const std::vector<RankMemory>& memory, const std::filesystem::path&) {
  record_["measured"]["memory"] = memory_json(memory);
  end("finished");
}

void RunRecorder::on_failure(const std::string& message) noexcept {
  if (!started_) return;
  try {
    record_["error"] = message;
    end("failed");
  } catch (const std::exception&) {  // the error that ended the run is the one to tell
  }
}

void RunRecorder::end(std::string_view status) {
  record_["status"] = status;
  record_["ended"] = seconds_since_1970();
  write_text_atomically(path_, record_.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace nought
