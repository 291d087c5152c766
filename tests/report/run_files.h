// Output folders of runs that tests write by hand: lines of metrics.jsonl and a record.
#pragma once

#include <string>

#include "support/temp_folder.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace nought::test {

/// A line of a step as MetricsWriter has it.
inline nlohmann::json step_line(int64_t step, double loss) {
  return {{"step", step},
          {"loss", loss},
          {"grad_norm", 1.0},
          {"lr", 1e-3},
          {"tokens_per_second", 1000.0},
          {"mfu", 0.25},
          {"bytes_sent", 64},
          {"time", 1000.0 + static_cast<double>(step)},
          {"skipped", false}};
}

/// Steps 1 to `steps` with the losses 2, 1, 2/3, ...
inline std::string step_lines(int64_t steps) {
  std::string lines;
  for (int64_t step = 1; step <= steps; ++step) lines += step_line(step, 2.0 / static_cast<double>(step)).dump() + "\n";
  return lines;
}

/// A record of a run that has finished.
inline nlohmann::json run_record(const nlohmann::json& settings) {
  return {{"format", "nought-run-record-1"},
          {"program", "0.1.0 (abc)"},
          {"status", "finished"},
          {"error", ""},
          {"starts", {{{"step", 0}, {"time", 1000.0}, {"ranks", 2}}}},
          {"arguments", {"train", "run.json"}},
          {"directory", "/somewhere"},
          {"host", "here"},
          {"machine", {{"cpu", "A CPU"}, {"memory_bytes", 1 << 30}}},
          {"run", {{"family", "llama"}, {"max_steps", 20}, {"tokens_per_step", 512}, {"world_size", 2}}},
          {"settings", settings},
          {"resolved",
           {{{"key", "seed"}, {"value", "1"}, {"reason", "training.seed"}},
            {{"key", "dtype"}, {"value", "f32"}, {"reason", "this CPU has no bf16 units"}}}},
          {"warnings", nlohmann::json::array()},
          {"predicted", {{"memory", {{{"peak_total", 1000}, {"at_peak", {{"parameters", 1000}}}}}}}},
          {"measured", {{"memory", {{{"peak_total", 1024}, {"at_peak", {{"parameters", 1024}}}}}}}}};
}

/// Writes NAME/metrics.jsonl and NAME/run_record.json. Returns NAME's path.
inline std::string write_run_files(const TempFolder& folder, const std::string& name, const std::string& lines,
                                   const nlohmann::json& record) {
  folder.write(name + "/metrics.jsonl", lines);
  folder.write(name + "/run_record.json", record.dump());
  return (folder / name).string();
}

}  // namespace nought::test
