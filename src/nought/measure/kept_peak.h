// The best peak of a core that was ever measured on this machine, kept in a file. A core of a shared machine has half
// of its speed at times, and MFU would be a fraction of something else in every run. And rates that a run only tells,
// and that it need not measure again.
#pragma once

#include <functional>
#include <string>

namespace nought {

/// $XDG_CACHE_HOME/nought/matrix-peak.json, or ~/.cache/nought/matrix-peak.json; "" where neither is known.
std::string kept_peak_file();
/// What tells the peaks in that file apart: the host, its CPU, and the loop that was measured.
std::string kept_peak_key(const std::string& loop);

/// The larger of `flops` and what the file has under the key, which is then kept there. A file that can not be read or
/// written keeps nothing.
double best_peak(const std::string& file, const std::string& key, double flops);
/// What the file has under the key; if that is nothing, what measure() gives, which is then kept there.
double kept_rate(const std::string& file, const std::string& key, const std::function<double()>& measure);

}  // namespace nought
