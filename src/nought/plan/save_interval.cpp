#include "nought/plan/save_interval.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/nonce.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"
#include "nought/measure/samples.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kBlock = 4 << 20, kMostWritten = 256 << 20;

fs::path nearest_there(const fs::path& folder) {
  std::error_code ignored;
  fs::path path = fs::absolute(folder);
  while (!fs::exists(path, ignored) && path != path.parent_path()) path = path.parent_path();
  return path;
}

std::string short_time(double seconds) {
  return seconds < 60 ? fmt::format("{:.3g} s", seconds) : format_duration(seconds);
}

/// A file that goes with this object.
class ProbeFile {
 public:
  explicit ProbeFile(const fs::path& folder)
      : path_(folder / (".save-rate-" + random_nonce())),
        descriptor_(open_file(path_, O_WRONLY | O_CREAT | O_EXCL, 0600)) {
    require<IoError>(descriptor_ >= 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
  ~ProbeFile() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;

  /// Until the drive has them.
  void write(int64_t bytes) const {
    const std::vector<char> block(kBlock, 'n');
    int reason = 0;
    for (; bytes > 0 && reason == 0; bytes -= kBlock)
      reason = write_all(descriptor_, {block.data(), static_cast<size_t>(std::min(bytes, kBlock))});
    if (reason == 0) reason = flush_file(descriptor_);
    require<IoError>(reason == 0, "cannot write {}: {}", path_.string(), std::strerror(reason));
  }

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace

SaveInterval save_interval(double save, double between_failures, double step) {
  SaveInterval interval{.seconds = std::sqrt(2 * save * between_failures)};
  interval.steps = std::max<int64_t>(1, std::llround(interval.seconds / step));
  interval.saving = save / interval.seconds;
  interval.lost = interval.seconds / (2 * between_failures);
  return interval;
}

std::optional<SaveCost> measured_save(const fs::path& metrics, int64_t bytes) {
  Samples stalls;
  std::istringstream lines(bytes_if_there(metrics).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("save_stall_seconds") && json["save_stall_seconds"].is_number())
      stalls.values.push_back(json["save_stall_seconds"]);
  }
  if (stalls.values.empty() || stalls.median() <= 0) return std::nullopt;
  return SaveCost{.bytes = bytes,
                  .seconds = stalls.median(),
                  .source = fmt::format("the median of {} save{} in {}", stalls.values.size(),
                                        stalls.values.size() == 1 ? "" : "s", metrics.string())};
}

SaveCost save_by_disk(const fs::path& output_dir, int64_t bytes) {
  const fs::path folder = nearest_there(output_dir);
  const int64_t written = std::min(bytes, kMostWritten);
  const ProbeFile file(folder);
  const double seconds = seconds_of([&] { file.write(written); });
  const double rate = static_cast<double>(written) / seconds;
  return {.bytes = bytes,
          .rate = rate,
          .seconds = static_cast<double>(bytes) / rate,
          .source = fmt::format("{} were written to {}", format_bytes(written), folder.string())};
}

std::string describe(const SaveCost& cost, const SaveInterval& interval, double between_failures, double step) {
  const std::string rate = cost.rate > 0 ? fmt::format(" at {}", format_rate(cost.rate, "B/s")) : "";
  std::string text = fmt::format(
      "saving: a checkpoint of {} takes {}{} ({})\n"
      "saving: with a failure every {} save each {} ({} steps of {}): --set training.save_steps={}\n"
      "saving: {:.2g}% of the time goes to saves and {:.2g}% to steps that failures lose (Young: sqrt(2 x save x time "
      "between failures))\n",
      format_bytes(cost.bytes), short_time(cost.seconds), rate, cost.source, short_time(between_failures),
      short_time(interval.seconds), interval.steps, short_time(step), interval.steps, 100 * interval.saving,
      100 * interval.lost);
  if (interval.saving > 0.2)
    text += "saving: a save takes too much of the time between failures for this formula: save faster, or less\n";
  return text;
}

OrderedJson to_json(const SaveCost& cost, const SaveInterval& interval, double between_failures, double step) {
  return {{"checkpoint_bytes", cost.bytes},
          {"save_seconds", cost.seconds},
          {"bytes_per_second", cost.rate > 0 ? OrderedJson(cost.rate) : OrderedJson()},
          {"source", cost.source},
          {"seconds_between_failures", between_failures},
          {"step_seconds", step},
          {"interval_seconds", interval.seconds},
          {"interval_steps", interval.steps},
          {"saving_share", interval.saving},
          {"lost_share", interval.lost}};
}

}  // namespace nought
