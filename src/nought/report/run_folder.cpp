#include "nought/report/run_folder.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/checkpoint/output_folder.h"
#include "nought/observe/metrics.h"
#include "nought/observe/run_record.h"

namespace nought {

namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/// Calls take(line, number) for each line of a file that ends with a newline. A run may be about to write the last one.
template <class F>
void for_each_line(std::string_view bytes, F&& take) {
  int64_t number = 1;
  for (size_t begin = 0; begin < bytes.size(); ++number) {
    const size_t end = bytes.find('\n', begin);
    if (end == std::string_view::npos) return;
    if (end > begin) take(bytes.substr(begin, end - begin), number);
    begin = end + 1;
  }
}

/// The object with a step on a line; nothing if it is none.
std::optional<Json> parse_line(std::string_view line) {
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  return json;
}

void add_events(const Json& line, int64_t step, std::vector<RunEvent>& events) {
  const std::string nonfinite = text_in(line, "nonfinite");
  if (!nonfinite.empty()) events.push_back({step, "not finite", nonfinite});
  const auto skipped = line.find("skipped");
  if (skipped != line.end() && *skipped == true && nonfinite.empty())
    events.push_back({step, "skipped", "the update was skipped: a loss or gradient was not finite"});
  for (const char* kind : {"spike", "straggler"})
    if (std::string text = text_in(line, kind); !text.empty()) events.push_back({step, kind, std::move(text)});
}

void read_metrics(RunFolder& run, std::string_view bytes) {
  for_each_line(bytes, [&](std::string_view text, int64_t number) {
    const std::optional<Json> line = parse_line(text);
    if (!line) {
      run.problems.push_back(
          fmt::format("{} line {} is no JSON object with a step: it is left out", kMetricsFile, number));
      return;
    }
    const auto step = (*line)["step"].get<int64_t>();
    if (line->contains("sample_text"))
      run.samples.push_back({step, text_in(*line, "sample_prompt"), text_in(*line, "sample_text")});
    else if (line->contains("eval_targets") || line->contains("eval_loss"))
      run.validations.add(step, *line);
    else if (!line->contains("save_seconds"))  // a line of a checkpoint, which stands where its save has ended
      run.steps.add(step, *line), add_events(*line, step, run.events);
    if (line->contains("rank_seconds")) run.rank_seconds = (*line)["rank_seconds"];
  });
}

/// A new table begins where steps do not rise.
void read_discarded(RunFolder& run, std::string_view bytes) {
  for_each_line(bytes, [&](std::string_view text, int64_t) {
    const std::optional<Json> line = parse_line(text);
    if (!line || !line->contains("loss")) return;
    const auto step = (*line)["step"].get<int64_t>();
    if (run.discarded.empty() || run.discarded.back().steps().back() >= step) run.discarded.emplace_back();
    run.discarded.back().add(step, *line);
  });
}

/// The last bytes of a file from the beginning of a line on, or all of them (0); nothing if there is no such file.
std::optional<std::string> end_of_file(const std::filesystem::path& file, int64_t last_bytes) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file, error));
  if (error || last_bytes == 0 || size <= last_bytes) return bytes_if_there(file);
  std::ifstream stream(file, std::ios::binary);
  stream.seekg(size - last_bytes);
  std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  return bytes.erase(0, std::min(bytes.size(), bytes.find('\n') + 1));
}

Json read_record(const std::filesystem::path& file) {
  const std::optional<std::string> bytes = bytes_if_there(file);
  if (!bytes) return Json::object();
  Json record = Json::parse(*bytes, nullptr, /*allow_exceptions=*/false);
  require<IoError>(record.is_object(), "{}: expected a JSON object; it is damaged, remove it to go on without it",
                   file.string());
  require_readable(file, record.value("format", Json()), kRunRecordFormat);
  return record;
}

RunState state_of(const RunFolder& run) {
  if (!run.owner.empty()) return RunState::running;
  const std::string status = run.text("/status");
  for (const RunState state : {RunState::finished, RunState::interrupted, RunState::failed})
    if (status == name_of(state)) return state;
  return RunState::stopped;
}

void add_starts(RunFolder& run) {
  const Json& starts = run.fact("/starts");
  for (const Json& start : starts.is_array() ? starts : Json::array()) {
    const int64_t step = start.is_object() ? start.value("step", int64_t{0}) : 0;
    if (step > 0)
      run.events.push_back({step, "resumed",
                            fmt::format("resumed after step {} on {} rank{}", step, start.value("ranks", 1),
                                        start.value("ranks", 1) == 1 ? "" : "s")});
  }
  if (const std::string error = run.text("/error"); run.state == RunState::failed && !error.empty())
    run.events.push_back({run.steps.empty() ? 0 : run.steps.steps().back(), "error", one_line(error)});
  std::stable_sort(run.events.begin(), run.events.end(),
                   [](const RunEvent& a, const RunEvent& b) { return a.step < b.step; });
}

void flatten(const Json& value, const std::string& path, std::vector<std::pair<std::string, std::string>>& rows) {
  if (!value.is_object() || value.empty()) {
    rows.emplace_back(path, value.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  for (const auto& [key, member] : value.items()) flatten(member, join_path(path, key), rows);
}

}  // namespace

std::string text_in(const Json& object, const std::string& name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double number_in(const Json& object, const std::string& name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

void StepTable::add(int64_t step, const Json& line) {
  const size_t row = steps_.size();
  steps_.push_back(step);
  for (auto& column : columns_) column.second.push_back(kNoNumber);
  size_t guess = 0;  // lines have their names in one order
  for (const auto& [name, value] : line.items()) {
    if (!(value.is_number() || value.is_null()) || name == "step") continue;
    const auto is_named = [&key = name](const auto& column) { return column.first == key; };
    auto found = guess < columns_.size() && is_named(columns_[guess])
                     ? columns_.begin() + static_cast<std::ptrdiff_t>(guess)
                     : std::find_if(columns_.begin(), columns_.end(), is_named);
    if (found == columns_.end()) {
      columns_.emplace_back(name, std::vector<double>(row + 1, kNoNumber));
      found = columns_.end() - 1;
    }
    if (value.is_number()) found->second[row] = value.get<double>();
    guess = static_cast<size_t>(found - columns_.begin()) + 1;
  }
}

std::vector<std::string> StepTable::names() const {
  std::vector<std::string> names;
  for (const auto& column : columns_) names.push_back(column.first);
  return names;
}

const std::vector<double>* StepTable::find(std::string_view name) const {
  const auto found =
      std::find_if(columns_.begin(), columns_.end(), [&](const auto& column) { return column.first == name; });
  return found == columns_.end() ? nullptr : &found->second;
}

double StepTable::last(std::string_view name) const {
  const std::vector<double>* column = find(name);
  if (column == nullptr) return kNoNumber;
  const auto found = std::find_if(column->rbegin(), column->rend(), [](double value) { return !std::isnan(value); });
  return found == column->rend() ? kNoNumber : *found;
}

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::running:
      return "running";
    case RunState::finished:
      return "finished";
    case RunState::interrupted:
      return "interrupted";
    case RunState::failed:
      return "failed";
    case RunState::stopped:
      break;
  }
  return "stopped";
}

const Json& RunFolder::fact(std::string_view path) const {
  static const Json nothing;
  const Json::json_pointer pointer{std::string(path)};
  return record.contains(pointer) ? record.at(pointer) : nothing;
}

double RunFolder::number(std::string_view path, double otherwise) const {
  const Json& value = fact(path);
  return value.is_number() ? value.get<double>() : otherwise;
}

std::string RunFolder::text(std::string_view path) const {
  const Json& value = fact(path);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<std::pair<std::string, std::string>> RunFolder::settings() const {
  std::vector<std::pair<std::string, std::string>> rows;
  if (const Json& settings = fact("/settings"); settings.is_object() && !settings.empty()) flatten(settings, "", rows);
  return rows;
}

RunFolder read_run_folder(const std::filesystem::path& folder, int64_t last_bytes) {
  std::error_code ignored;
  require<ConfigError>(std::filesystem::exists(folder, ignored), "{}: there is no such folder", folder.string());
  require<ConfigError>(std::filesystem::is_directory(folder, ignored), "{} is a file; expected the output_dir of a run",
                       folder.string());
  RunFolder run;
  run.path = folder;
  std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  run.name = whole.filename().string();
  const std::optional<std::string> metrics = end_of_file(folder / kMetricsFile, last_bytes);
  require<ConfigError>(metrics.has_value(), "{}: there is no run, as it has no {}; expected the output_dir of a run",
                       folder.string(), kMetricsFile);
  run.record = read_record(folder / kRunRecordFile);
  read_metrics(run, *metrics);
  read_discarded(run, bytes_if_there(folder / kDiscardedMetricsFile).value_or(""));
  run.owner = OutputFolder::owner_of(folder).value_or("");
  run.state = state_of(run);
  add_starts(run);
  return run;
}

std::vector<RunFolder> read_run_folders(const std::vector<std::string>& folders) {
  std::vector<RunFolder> runs;
  for (const std::string& folder : folders) runs.push_back(read_run_folder(folder));
  const auto is_shared = [&](const RunFolder& run) {
    return std::count_if(runs.begin(), runs.end(), [&](const RunFolder& each) { return each.name == run.name; }) > 1;
  };
  std::vector<bool> shared;
  for (const RunFolder& run : runs) shared.push_back(is_shared(run));
  for (size_t i = 0; i < runs.size(); ++i)
    if (shared[i]) runs[i].name = folders[i];
  return runs;
}

}  // namespace nought
