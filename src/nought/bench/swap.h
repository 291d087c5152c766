// How fast a folder holds states that are offloaded to files: a sweep over DeepSpeed's section "aio".
#pragma once

#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/bench/report.h"
#include "nought/measure/swap_rates.h"

namespace nought {

struct SwapSweep {
  std::string folder;
  double seconds = 45;                                     // about so long; at least one sample of each is taken
  int samples = 3;                                         // at most
  bool quick = false;                                      // fewer settings
  int64_t least_bytes = 32 << 20, most_bytes = 256 << 20;  // of the file; the rate of plain writes decides between them
};

struct SwapReport {
  std::vector<SwapRates> plain, settings;
  bool direct = true;         // the page cache is bypassed
  std::string note = {};      // why io_uring is missing; "" if it is there
  int64_t file_bytes = 0;     // of the file, which a sample writes and reads once
  int64_t written_bytes = 0;  // in all

  /// The setting that writes and reads the same bytes in the least time; of those within 5% of it the one with the
  /// least bytes on their way.
  const SwapRates& best() const;
};

/// Writes and reads a file in `folder`, as SwapFile does, with every setting in turn, beside plain pwrite and pread of
/// 1 MiB, with and without the page cache. Needs most_bytes of memory. IoError where the folder is missing or has no
/// room.
SwapReport bench_swap(Memory& memory, const SwapSweep& sweep);

/// The section "aio" of ds_config.json.
OrderedJson aio_section(const AioOptions& options);
/// A line for each, and the section of ds_config.json to paste.
std::string to_table(const SwapReport& report);
/// Two figures for each, whose limit is the plain calls that bypass the page cache, if it can be bypassed.
std::vector<Figure> to_figures(const SwapReport& report);

}  // namespace nought
