#include "nought/simulate/rows.h"

#include <cmath>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr double kGigabytes = 1e9, kTeraflops = 1e12;

double row_number(const Json& row, const char* key, const std::string& place) {
  require<ConfigError>(row.contains(key) && !row[key].is_null(), "{}: {} is missing", place, key);
  require<ConfigError>(row[key].is_number() && row[key].get<double>() > 0 && std::isfinite(row[key].get<double>()),
                       "{}: {} must be a number above 0, got {}", place, key, describe_json(row[key]));
  return row[key].get<double>();
}

double row_number(const Json& row, const char* key, double fallback, const std::string& place) {
  const bool absent = !row.contains(key) || row[key].is_null() || (row[key].is_number() && row[key] == 0);
  return absent ? fallback : row_number(row, key, place);
}

std::string row_text(const Json& row, const char* key, const std::string& place) {
  require<ConfigError>(row.contains(key), "{}: {} is missing", place, key);
  require<ConfigError>(row[key].is_string(), "{}: {} must be a string, got {}", place, key, describe_json(row[key]));
  return row[key].get<std::string>();
}

/// The chip is what stands before the first "-" of the name.
Cluster cluster_of_row(const Json& hardware, const std::string& name, const std::string& place) {
  const auto rate = [&](const char* key) { return row_number(hardware, key, place); };
  Cluster cluster{.name = name, .chip = name.substr(0, name.find('-'))};
  cluster.flops.bf16 = rate("bf16_tflops") * kTeraflops;
  cluster.flops.fp8 = row_number(hardware, "fp8_tflops", 0, place) * kTeraflops;
  cluster.memory = rate("hbm_gb") * kGigabytes;
  cluster.memory_bandwidth = rate("hbm_tb_per_s") * kTeraflops;
  cluster.link.bandwidth = rate("link_gb_per_s") * kGigabytes;
  cluster.link.domain = static_cast<int>(rate("node_gpus"));
  constexpr int kRack = 8;  // ranks beyond which a domain is a rack, whose hosts have 4
  cluster.ranks_per_host = cluster.link.domain > kRack ? 4 : cluster.link.domain;
  cluster.network.bandwidth = rate("nic_gb_per_s") * kGigabytes;
  constexpr double kCapped = 500.0 / 700;  // of the power that the data sheet's peak is for
  if (name.ends_with("500w")) cluster.efficiency = std::sqrt(kCapped);
  require_complete(cluster, place);
  return cluster;
}

Recomputed recomputed_of(const std::string& text) {
  if (text == "none" || text.empty()) return Recomputed::none;
  if (text == "full") return Recomputed::full;
  if (text == "selective") return Recomputed::attention;
  if (text == "selective-ac") return Recomputed::products;
  if (text == "unknown") return Recomputed::full;
  return Recomputed::light;  // a list of modules: "norms+mla-up"
}

SimulatedRun run_of_row(const Json& row, const ModelShape& model, const Cluster& cluster, const std::string& place) {
  const auto axis = [&](const char* key) { return row_number(row, key, 1, place); };
  SimulatedRun run;
  run.model = model;
  run.sequence = row_number(row, "sequence", place);
  run.global_batch = row_number(row, "global_batch", place);
  run.micro_batch = row_number(row, "micro_batch", 1, place);
  run.tp = axis("tp"), run.pp = axis("pp"), run.vp = axis("vp"), run.cp = axis("cp"), run.ep = axis("ep");
  const double ranks = row_number(row, "gpus", place);
  run.dp = row_number(row, "dp", ranks / (run.tp * run.pp * run.cp), place);
  require<ConfigError>(run.ranks() == ranks, "{}: tp {} x pp {} x cp {} x dp {} are {} ranks, and gpus says {}", place,
                       run.tp, run.pp, run.cp, run.dp, run.ranks(), ranks);
  require<ConfigError>(run.micro_batches() >= 1 && std::fmod(run.global_batch, run.dp * run.micro_batch) == 0,
                       "{}: global_batch {} is no multiple of dp {} x micro_batch {}", place, run.global_batch, run.dp,
                       run.micro_batch);
  run.sequence_parallel = row.value("sequence_parallel", false);
  run.zero_stage = static_cast<int>(row_number(row, "zero_stage", 0, place));
  require<ConfigError>(run.zero_stage <= 3, "{}: zero_stage must be 0 to 3, got {}", place, run.zero_stage);
  run.recompute = recomputed_of(row.value("recompute", "none"));
  run.offload_states = row.contains("offload") && row["offload"].is_string();
  const std::string precision = row.value("precision", "bf16");
  if (precision.find("fp8") != std::string::npos || precision.find("fp4") != std::string::npos)
    run.products = Products::fp8;
  const std::string schedule = row.value("schedule", "");
  if (run.vp > 1) run.schedule = SimulatedSchedule::interleaved;
  if (schedule == "DualPipe") run.schedule = SimulatedSchedule::dual_pipe;
  run.software =
      software_of_table(row.value("table", ""), generation_of(cluster.chip, place) != "a100", run.zero_stage);
  if (!row.value("compiled", true)) run.software.eager = 2;
  if (row.value("async_tp", false)) run.software.hides_tensor = true;
  if (row.contains("reduce_dtype")) run.software.gradient_bytes = row["reduce_dtype"] == "fp32" ? 4 : 2;
  return run;
}

}  // namespace

std::vector<SimulatedRow> simulate_rows(const Json& file, const std::string& name,
                                        const std::map<std::string, FittedConstants>& fitted) {
  for (const char* key : {"hardware", "models", "rows"})
    require<ConfigError>(file.is_object() && file.contains(key), "{}: {} is missing: expected hardware, models, rows",
                         name, key);
  std::vector<SimulatedRow> result;
  for (const Json& row : file["rows"]) {
    const std::string id = row_text(row, "id", fmt::format("{}: rows[{}]", name, result.size()));
    const std::string place = name + ": " + id;
    const std::string model = row_text(row, "model", place), hardware = row_text(row, "hardware", place);
    require<ConfigError>(file["models"].contains(model), "{}: models has no \"{}\"", place, model);
    require<ConfigError>(file["hardware"].contains(hardware), "{}: hardware has no \"{}\"", place, hardware);
    const Cluster cluster = cluster_of_row(file["hardware"][hardware], hardware, name + ": hardware." + hardware);
    const SimulatedRun run =
        run_of_row(row, shape_of(file["models"][model], model, name + ": models." + model), cluster, place);
    const std::string generation = generation_of(cluster.chip, place);
    require<ConfigError>(fitted.contains(generation), "no constants are fitted for {}", generation);
    result.push_back({id, simulate_step(run, cluster, fitted.at(generation))});
  }
  return result;
}

OrderedJson to_json(const std::vector<SimulatedRow>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const SimulatedRow& row : rows) {
    OrderedJson parts = OrderedJson::object();
    for (const StepPart& part : row.step.parts()) parts[part.name] = part.seconds();
    list.push_back({{"id", row.id}, {"step_seconds", row.step.seconds}, {"parts", parts}});
  }
  return {{"rows", list}};
}

}  // namespace nought
