#include "nought/base/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "nought/base/error.h"

namespace nought {

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < kUnits.size()) value /= 1024.0, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

int64_t parse_bytes(std::string_view text, std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, double>, 12> kUnits{{{"", 1},
                                                                               {"B", 1},
                                                                               {"KB", 1e3},
                                                                               {"MB", 1e6},
                                                                               {"GB", 1e9},
                                                                               {"TB", 1e12},
                                                                               {"PB", 1e15},
                                                                               {"KiB", 0x1p10},
                                                                               {"MiB", 0x1p20},
                                                                               {"GiB", 0x1p30},
                                                                               {"TiB", 0x1p40},
                                                                               {"PiB", 0x1p50}}};
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string_view unit = end;
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& each) { return each.first == unit; });
  const bool known = end != copy.c_str() && found != kUnits.end();
  require<ConfigError>(known && number >= 0 && number * found->second < 9e18,
                       "{}: expected a size such as \"2GiB\" or \"512 MiB\", found \"{}\"", name, text);
  return static_cast<int64_t>(number * found->second);
}

std::string format_count(double count) {
  static constexpr std::array kUnits{"", "K", "M", "B", "T", "P", "E"};
  size_t unit = 0;
  while (std::abs(count) >= 1000.0 && unit + 1 < kUnits.size()) count /= 1000.0, ++unit;
  return unit == 0 ? fmt::format("{:g}", count) : fmt::format("{:.{}f}{}", count, count < 10 ? 2 : 1, kUnits[unit]);
}

std::string format_rate(double value, std::string_view unit) {
  static constexpr std::array kPrefixes{"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) value /= 1000.0, ++prefix;
  return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit);
}

std::string format_token_rate(double tokens_per_second) {
  return format_count(std::round(tokens_per_second)) + " tokens/s";
}

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (total >= 3600) return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
  if (total >= 60) return fmt::format("{}m{:02}s", total / 60, total % 60);
  return fmt::format("{}s", total);
}

double parse_duration(std::string_view text, std::string_view name) {
  const std::string copy(text);
  const char* at = copy.c_str();
  double seconds = 0, largest = 3601;  // units come in descending order
  bool known = !text.empty();
  while (known && *at != '\0') {
    char* end = nullptr;
    const double number = '0' <= *at && *at <= '9' ? std::strtod(at, &end) : -1;
    const char unit = number < 0 ? '?' : *end;
    const bool bare = unit == '\0' && at == copy.c_str();
    const double factor = unit == 'h' ? 3600 : unit == 'm' ? 60 : unit == 's' || bare ? 1 : largest;
    known = factor < largest;
    if (!known) break;
    seconds += number * factor;
    largest = factor;
    at = bare ? end : end + 1;
  }
  require<ConfigError>(known && seconds > 0 && seconds < 1e9,
                       "{}: expected a time such as \"90s\", \"2m30s\" or \"1h\", found \"{}\"", name, text);
  return seconds;
}

std::string one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  return line;
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

namespace {

/// Fewer letters are found in names that have nothing else in common.
constexpr size_t kShortestPart = 5;

/// Distances of `a` to what ends at each character of b; `row` has those of "".
std::vector<size_t> edit_distances(std::string_view a, std::string_view b, std::vector<size_t> row) {
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  return edit_distances(a, b, std::move(row)).back();
}

size_t edit_distance_within(std::string_view pattern, std::string_view text) {
  const std::vector<size_t> row = edit_distances(pattern, text, std::vector<size_t>(text.size() + 1, 0));
  return *std::min_element(row.begin(), row.end());
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;  // further away than this is another word
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  if (!best.empty() || name.size() < kShortestPart) return best;
  // A part of a long name is far from it, and means it all the same.
  for (const std::string& candidate : candidates)
    if (candidate.find(name) != std::string::npos && (best.empty() || candidate.size() < best.size())) best = candidate;
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string best = nearest_name(name, candidates);
  return best.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", best);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace nought
