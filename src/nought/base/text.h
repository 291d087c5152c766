// Text for people: sizes, counts, durations, and the nearest known name for a misspelt one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// "1.50 GiB", "12.0 MiB", "340 B".
std::string format_bytes(int64_t bytes);
/// The bytes in "2GiB", "512 MiB", "1.5e9", "80GB" (KB to PB are powers of 1000, KiB to PiB of 1024); ConfigError with
/// `name` for anything else.
int64_t parse_bytes(std::string_view text, std::string_view name);
/// "10.2M", "1.50B", "20.8P", "340".
std::string format_count(double count);
/// The value with a decimal prefix before its unit: format_rate(434e9, "FLOP/s") is "434 GFLOP/s".
std::string format_rate(double value, std::string_view unit);
/// "1.33K tokens/s", "437 tokens/s".
std::string format_token_rate(double tokens_per_second);
/// "1h02m", "3m05s", "12s".
std::string format_duration(double seconds);
/// The seconds in "90", "90s", "2m30s", "1.5h" or "1h02m"; more than 0. ConfigError with `name` for anything else.
double parse_duration(std::string_view text, std::string_view name);

/// The text with a space in place of every control character. A message is one line, even if it quotes a file.
std::string one_line(std::string_view text);

/// The text with small letters in place of the capital ones of ASCII.
std::string lower_case(std::string text);

/// How many single-character insertions, deletions and substitutions turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);
/// The least edit_distance() of `pattern` to any part of `text`.
size_t edit_distance_within(std::string_view pattern, std::string_view text);
/// The candidate at the smallest edit distance to `name`; if none is near, the shortest that contains it, or "".
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
/// " (did you mean \"x\"?)", or "" when no candidate is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// What stands between the separators, empty strings included: "a,,b" gives "a", "", "b".
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace nought
