#include "nought/bench/swap.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include "nought/aio/open_swap.h"
#include "nought/aio/runner.h"
#include "nought/aio/swap_file.h"
#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr int64_t kSizeStep = 8 << 20;  // the largest block: all blocks are whole

/// A setting or plain calls, and the seconds in which it writes or reads the whole file.
struct Way {
  SwapRates* rates;
  std::function<double(bool write)> seconds;
};

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
        (!best || each.on_the_way() * each.options.block_size < best->on_the_way() * best->options.block_size))
      best = &each;
  require(best != nullptr, "the best setting of none");
  return *best;
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
  for (const SwapRates& each : report.settings) most = std::max(most, each.on_the_way());
  const Tensor room = aligned(memory, {most * kSwapGrid}, DType::u8, Category::workspace);

  OpenSwap file(sweep.folder, fmt::format("a file in {}", sweep.folder), sweep.most_bytes);
  report.direct = file.direct();
  const PlainCalls cached(file, /*direct=*/false);
  const PlainCalls plain(file, report.direct);
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
    const PlainCalls* const by = report.direct && &each == &report.plain.front() ? &plain : &cached;
    ways.push_back({&each, [&, by](bool write) {
                      cached.forget();
                      return seconds_of([&] { by->run(data, write); });
                    }});
  }
  for (SwapRates& each : report.settings)
    ways.push_back({&each, [&](bool write) {
                      cached.forget();
                      return swap_seconds(each.options, file, cached, data, room, write);
                    }});
  take_samples(ways, sweep, report.file_bytes, report);
  return report;
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
    text += fmt::format("{:<36} {:>9} {:>6} {:>8} {:>13} {:>13}\n", each.name, format_bytes(PlainCalls::kBlock), 1, 1,
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
