// What is read while system calls fail: a folder that has a file for each kind of reader.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/export_record.h"
#include "nought/io/files.h"
#include "nought/io/hub_cache.h"
#include "nought/io/mapped_file.h"
#include "nought/models/config.h"
#include "nought/models/weight_files.h"
#include "nought/observe/metrics.h"
#include "nought/observe/monitors.h"

namespace nought::test {

inline void write_readable_files(const TempFolder& folder) {
  folder.write("run.json", R"({"a": 1})");
  folder.write("text.txt", "a text");
  folder.write("config.json", tiny_llama_json(1).dump());
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const uint64_t size = header.size();
  folder.write("s.safetensors", std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + "12345678");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "s.safetensors"}})");
  folder.write("hub/models--Org--A/refs/main", "abc");
  folder.write("hub/models--Org--A/snapshots/abc/config.json", "{}");
  folder.write("run/checkpoint-3/manifest.json", "{}");
  write_export_record({.step = 3}, folder.path());
  folder.write("run/metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n");
  folder.write("csv/Train_Samples_lr.csv", "step,Train/Samples/lr\n1,0.5\n2,0.25\n");
}

/// Reads them all, and returns a line for each.
inline std::string read_all(const std::filesystem::path& folder) {
  std::string all;
  const auto say = [&](const char* reader, const std::string& found) { all += fmt::format("{}: {}\n", reader, found); };
  say("JSON", read_json_file((folder / "run.json").string()).dump());
  say("text", read_text(folder / "text.txt"));
  say("glob", fmt::format("{}", expand_glob((folder / "*.txt").string()).size()));
  say("mapped", std::string(MappedFile(folder / "text.txt").text()));
  say("config", ModelConfig::from_folder(folder).family);
  say("weights", fmt::format("{}", WeightFiles(folder).entries().size()));
  say("record", fmt::format("{}", read_export_record(folder)->step));
  say("checkpoints", fmt::format("{}", list_checkpoints(folder / "run").size()));
  setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  say("hub", hub_snapshot("Org/A").has_value() ? "found" : "not there");
  RunSummary resumed;
  resumed.first_step = 1;
  MetricsWriter metrics(folder / "run");
  metrics.on_start(resumed);
  say("metrics", bytes_if_there(folder / "run/metrics.jsonl").value_or("none"));
  CsvMonitor monitor(folder / "csv", 1);
  monitor.on_start(resumed);
  monitor.on_step({.step = 2, .lr = 0.125});
  say("rows", bytes_if_there(folder / "csv/Train_Samples_lr.csv").value_or("none"));
  return all;
}

}  // namespace nought::test
