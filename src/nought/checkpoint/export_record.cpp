#include "nought/checkpoint/export_record.h"

#include <chrono>
#include <ctime>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/io/atomic_file.h"
#include "nought/io/file_format.h"

namespace nought {

namespace {

constexpr FileFormat kRecordFormat{"nought-trainer-state", 1};
constexpr const char* kRecordFile = "trainer_state.json";

}  // namespace

void write_export_record(const ExportRecord& record, const std::filesystem::path& folder) {
  OrderedJson json{{"format", kRecordFormat.str()}, {"global_step", record.step}};
  if (record.best) {
    const Json best = record.best->json();
    json["best_global_step"] = best.at("step");
    json["best_metric_name"] = best.at("metric");
    json["best_metric"] = best.at("value");
  }
  json["written_by"] = record.written_by;
  if (!record.receipt.empty()) json["receipt"] = record.receipt;
  json["written_at"] = utc_now();
  write_text_atomically(folder / kRecordFile, json.dump(2) + "\n");
}

std::optional<ExportRecord> read_export_record(const std::filesystem::path& folder) {
  const std::optional<std::string> text = bytes_if_there(folder / kRecordFile);
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format")) return std::nullopt;
  require_readable(folder / kRecordFile, json.at("format"), kRecordFormat);
  try {
    ExportRecord record{.step = json.at("global_step"),
                        .written_by = json.at("written_by"),
                        .receipt = json.value("receipt", ""),
                        .written_at = json.at("written_at")};
    if (json.contains("best_global_step"))
      record.best = BestModel::from_json({{"step", json.at("best_global_step")},
                                          {"metric", json.at("best_metric_name")},
                                          {"value", json.at("best_metric")}});
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string utc_now() {
  using namespace std::chrono;
  const auto now = time_point_cast<milliseconds>(system_clock::now());
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, now.time_since_epoch().count() % 1000);
}

}  // namespace nought
