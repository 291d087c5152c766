#include "nought/bench/swap.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "nought/aio/open_swap.h"
#include "nought/aio/pieces.h"
#include "nought/aio/runner.h"
#include "nought/aio/swap_file.h"
#include "nought/aio/swap_lane.h"
#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/math.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr int64_t kPlainBlock = 1 << 20;
constexpr int64_t kSizeStep = 8 << 20;  // the largest block: all blocks are whole
const SwapFault kNoFault;

/// Another way to the bytes of an open file.
class Plain {
 public:
  Plain(const OpenSwap& file, bool direct)
      : direct_(direct),
        descriptor_(open_file(fmt::format("/proc/self/fd/{}", file.descriptor()), O_RDWR | (direct ? O_DIRECT : 0))) {
    require<IoError>(descriptor_ >= 0, "cannot open {} again: {}", file.name(), std::strerror(errno));
  }
  ~Plain() { ::close(descriptor_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  /// Writes or reads all of it, one block after the other. What was written has left the page cache.
  void run(const Tensor& data, bool write) const {
    for (int64_t at = 0; at < data.bytes();) {
      const auto size = static_cast<size_t>(std::min(kPlainBlock, data.bytes() - at));
      const ssize_t moved =
          write ? ::pwrite(descriptor_, data.raw() + at, size, at) : ::pread(descriptor_, data.raw() + at, size, at);
      require<IoError>(moved > 0 || errno == EINTR, "cannot {} a plain file: {}", write ? "write" : "read",
                       std::strerror(errno));
      at += std::max<ssize_t>(moved, 0);
    }
    if (write && !direct_) reach_drive();
  }
  void reach_drive() const { ::fdatasync(descriptor_); }
  /// Nothing of the file stays in the page cache.
  void forget() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  bool direct_;
  int descriptor_;
};

/// A setting or plain calls, and the seconds in which it writes or reads the whole file.
struct Way {
  SwapRates* rates;
  std::function<double(bool write)> seconds;
};

/// The same of a setting. Where the page cache is in the way, what is written reaches the drive.
double seconds_by(const AioOptions& options, OpenSwap& file, const Plain& cached, const Tensor& data,
                  const Tensor& room, bool write) {
  SwapLane lane(options, options.backend, write, room.raw(), kNoFault, "nought-bench");
  return seconds_of([&] {
    std::vector<SwapPiece> pieces;
    cut(file, {0, data}, write, options.block_size, pieces);
    lane.run(pieces);
    if (write && !file.direct()) cached.reach_drive();
  });
}

std::vector<SwapRates> settings_of(bool quick, bool uring) {
  std::vector<SwapRates> settings;
  for (const AioBackend backend : {AioBackend::io_uring, AioBackend::threads}) {
    if (backend == AioBackend::io_uring && !uring) continue;
    for (const int64_t block :
         quick ? std::vector<int64_t>{1 << 20, 8 << 20} : std::vector<int64_t>{256 << 10, 1 << 20, 8 << 20})
      for (const int depth : quick ? std::vector<int>{2, 8} : std::vector<int>{1, 2, 8, 32})
        // A thread of a pool has one read or write on its way: only the product counts.
        for (const int threads : quick || backend == AioBackend::threads ? std::vector<int>{1} : std::vector<int>{1, 2})
          settings.push_back(
              {std::string(name_of(backend)),
               {.block_size = block, .queue_depth = depth, .intra_op_parallelism = threads, .backend = backend},
               {},
               {}});
  }
  return settings;
}

/// The bytes of the file: what lets all samples be taken in time, if plain calls write and read so fast.
int64_t size_for(const SwapSweep& sweep, size_t settings, double write_rate, double read_rate) {
  const double samples = static_cast<double>(sweep.samples) * static_cast<double>(settings);
  const double bytes = sweep.seconds / samples / (1 / write_rate + 1 / read_rate);
  const auto whole = static_cast<int64_t>(bytes) / kSizeStep * kSizeStep;
  return std::clamp(whole, sweep.least_bytes, sweep.most_bytes);
}

/// The reads or writes of a setting that are on their way at once.
int64_t on_the_way(const SwapRates& setting) {
  return static_cast<int64_t>(setting.options.queue_depth) * setting.options.intra_op_parallelism;
}

/// Takes a sample of every way in turn, until there are enough or the time is over.
void take_samples(const std::vector<Way>& ways, const SwapSweep& sweep, int64_t bytes, SwapReport& report) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < sweep.samples; ++i)
    for (const Way& way : ways) {
      if (i > 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > sweep.seconds)
        return;
      for (const bool write : {true, false})
        (write ? way.rates->write : way.rates->read).values.push_back(static_cast<double>(bytes) / way.seconds(write));
      report.written_bytes += bytes;
    }
}

}  // namespace

const SwapRates& SwapReport::best() const {
  const auto rate = [](const SwapRates& each) { return 1 / (1 / each.write.median() + 1 / each.read.median()); };
  double most = 0;
  for (const SwapRates& each : settings) most = std::max(most, rate(each));
  const SwapRates* best = nullptr;
  for (const SwapRates& each : settings)
    if (rate(each) >= 0.95 * most &&
        (!best || on_the_way(each) * each.options.block_size < on_the_way(*best) * best->options.block_size))
      best = &each;
  require(best != nullptr, "the best setting of none");
  return *best;
}

void require_room(const std::string& folder, int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) fail<IoError>("cannot measure {}: {}", folder, std::strerror(errno));
  const int64_t available = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  require<IoError>(available >= bytes,
                   "cannot measure {}: up to {} are written, and {} are free there; free space, or name another folder",
                   folder, format_bytes(bytes), format_bytes(available));
}

SwapReport bench_swap(Memory& memory, const SwapSweep& sweep) {
  require_room(sweep.folder, sweep.most_bytes);
  SwapReport report;
  report.note = uring_refusal();
  report.settings = settings_of(sweep.quick, report.note.empty());
  const Tensor whole = aligned(memory, {sweep.most_bytes}, DType::u8, Category::workspace);
  std::mt19937_64 random(1);
  const auto words = whole.reinterpret(DType::i64).span<int64_t>();
  std::generate(words.begin(), words.end(), [&] { return static_cast<int64_t>(random()); });
  int64_t most = 0;
  for (const SwapRates& each : report.settings) most = std::max(most, on_the_way(each));
  const Tensor room = aligned(memory, {most * kSwapGrid}, DType::u8, Category::workspace);

  OpenSwap file(sweep.folder, fmt::format("a file in {}", sweep.folder), sweep.most_bytes);
  report.direct = file.direct();
  const Plain cached(file, /*direct=*/false);
  const Plain plain(file, report.direct);
  // The room of a new file is written for the first time, which takes longer than what comes after.
  plain.run(whole, /*write=*/true);
  const Tensor probe = whole.flat(0, sweep.least_bytes);
  const auto rate = [&](bool write) {
    return static_cast<double>(probe.bytes()) / seconds_of([&] { plain.run(probe, write); });
  };
  const double write_rate = rate(true), read_rate = rate(false);
  report.file_bytes = size_for(sweep, report.settings.size() + 2, write_rate, read_rate);
  report.written_bytes = sweep.most_bytes + sweep.least_bytes;
  const Tensor data = whole.flat(0, report.file_bytes);

  if (report.direct) report.plain.push_back({"plain pwrite and pread, O_DIRECT", {}, {}, {}});
  report.plain.push_back({"plain pwrite and pread, page cache", {}, {}, {}});
  std::vector<Way> ways;
  for (SwapRates& each : report.plain) {
    const Plain* const by = report.direct && &each == &report.plain.front() ? &plain : &cached;
    ways.push_back({&each, [&, by](bool write) {
                      cached.forget();
                      return seconds_of([&] { by->run(data, write); });
                    }});
  }
  for (SwapRates& each : report.settings)
    ways.push_back({&each, [&](bool write) {
                      cached.forget();
                      return seconds_by(each.options, file, cached, data, room, write);
                    }});
  take_samples(ways, sweep, report.file_bytes, report);
  return report;
}

SwapRates measure_swap(Memory& memory, const std::string& folder, AioOptions options) {
  constexpr int64_t kBytes = 32 << 20;
  require_room(folder, kBytes);
  if (options.backend == AioBackend::automatic)
    options.backend = uring_refusal().empty() ? AioBackend::io_uring : AioBackend::threads;
  SwapRates rates{std::string(name_of(options.backend)), options, {}, {}};
  const Tensor data = aligned(memory, {kBytes}, DType::u8, Category::workspace);
  std::memset(data.raw(), 1, kBytes);
  const Tensor room = aligned(memory, {on_the_way(rates) * kSwapGrid}, DType::u8, Category::workspace);
  OpenSwap file(folder, fmt::format("a file in {}", folder), kBytes);
  const Plain cached(file, /*direct=*/false);
  // The room of a new file is written for the first time, which takes longer than what comes after.
  seconds_by(options, file, cached, data, room, /*write=*/true);
  for (int i = 0; i < 3; ++i)
    for (const bool write : {true, false}) {
      cached.forget();
      (write ? rates.write : rates.read)
          .values.push_back(static_cast<double>(kBytes) / seconds_by(options, file, cached, data, room, write));
    }
  return rates;
}

OrderedJson aio_section(const AioOptions& options) {
  return {{"block_size", options.block_size},
          {"queue_depth", options.queue_depth},
          {"intra_op_parallelism", options.intra_op_parallelism},
          {"single_submit", options.single_submit},
          {"overlap_events", options.overlap_events}};
}

std::string to_table(const SwapReport& report) {
  const auto rate = [](const Samples& samples) { return format_bytes(static_cast<int64_t>(samples.median())) + "/s"; };
  std::string text = fmt::format("{:<36} {:>9} {:>6} {:>8} {:>13} {:>13}\n", "swap files", "block", "depth", "threads",
                                 "write", "read");
  for (const SwapRates& each : report.plain)
    text += fmt::format("{:<36} {:>9} {:>6} {:>8} {:>13} {:>13}\n", each.name, format_bytes(kPlainBlock), 1, 1,
                        rate(each.write), rate(each.read));
  for (const SwapRates& each : report.settings)
    text += fmt::format("{:<36} {:>9} {:>6} {:>8} {:>13} {:>13}{}\n", each.name, format_bytes(each.options.block_size),
                        each.options.queue_depth, each.options.intra_op_parallelism, rate(each.write), rate(each.read),
                        &each == &report.best() ? "  best" : "");
  if (!report.note.empty()) text += fmt::format("io_uring is missing: {}\n", report.note);
  if (!report.direct) text += "the page cache is in the way: the file system does not know O_DIRECT\n";
  const SwapRates& best = report.best();
  text += fmt::format("medians of {} samples in turn, each of a file of {}; {} were written in all, and removed\n",
                      report.settings.front().read.values.size(), format_bytes(report.file_bytes),
                      format_bytes(report.written_bytes));
  text += fmt::format("for ds_config.json: \"aio\": {}\n", aio_section(best.options).dump());
  if (best.options.backend == AioBackend::threads && report.note.empty())
    text += "for RUN.json: \"training\": {\"aio_backend\": \"threads\"}\n";
  return text;
}

std::vector<Figure> to_figures(const SwapReport& report) {
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const Samples& rates, const Samples* limits) {
    Figure figure{.name = name, .work = static_cast<double>(report.file_bytes), .unit = "B", .limit_name = ""};
    for (const double rate : rates.values) figure.seconds.values.push_back(figure.work / rate);
    if (limits) {
      figure.limit_name = report.plain.front().name;
      figure.limits.values.assign(limits->values.begin(),
                                  limits->values.begin() + static_cast<std::ptrdiff_t>(rates.values.size()));
    }
    figures.push_back(std::move(figure));
  };
  for (const SwapRates& each : report.plain) {
    add("write, " + each.name, each.write, nullptr);
    add("read, " + each.name, each.read, nullptr);
  }
  for (const SwapRates& each : report.settings) {
    const std::string setting = fmt::format("{}, {} x {} x {}", each.name, format_bytes(each.options.block_size),
                                            each.options.queue_depth, each.options.intra_op_parallelism);
    add("write, " + setting, each.write, &report.plain.front().write);
    add("read, " + setting, each.read, &report.plain.front().read);
  }
  return figures;
}

}  // namespace nought
