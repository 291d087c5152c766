#include "nought/checkpoint/receipt_check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/export_record.h"
#include "nought/checkpoint/weight_hash.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Rows of the configuration that say where something is written, and how often: a replay has others.
constexpr std::array<std::string_view, 13> kPlaces{
    "output_dir",    "save_strategy", "save_steps",  "save_total_limit", "async_save",       "resume_from_checkpoint",
    "receipt",       "logging_steps", "logging_dir", "report_to",        "eval_micro_batch", "update_beside_backward",
    "max_shard_size"};
/// Rows that follow from the number of ranks.
constexpr std::array<std::string_view, 5> kShares{"world_size", "micro_batch", "accumulation", "memory_centric_tiling",
                                                  "virtual_ranks.sums"};

template <size_t n>
bool names(const std::array<std::string_view, n>& all, std::string_view key) {
  return std::ranges::find(all, key) != all.end();
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// The first member in which the two differ, or "".
std::string describe_other_member(const Json& then, const Json& now, bool same_ranks) {
  std::set<std::string> keys;
  for (const Json* each : {&then, &now})
    if (each->is_object())
      for (const auto& [key, value] : each->items()) keys.insert(key);
  for (const std::string& key : keys) {
    if (names(kPlaces, key)) continue;
    if (!same_ranks && (names(kShares, key) || key.ends_with("_size"))) continue;
    const Json before = then.value(key, Json()), after = now.value(key, Json());
    if (before != after) return fmt::format("{} is {}, the receipt says {}", key, text_of(after), text_of(before));
  }
  return "";
}

/// How many steps after each other have lines, by a line of a start; 0: it does not say.
int64_t interval_of(const Json& start) {
  const std::string text = text_of(start.value("/config/receipt"_json_pointer, Json("")));
  int64_t every = 0;
  std::from_chars(text.data(), text.data() + text.size(), every);
  return every;
}

/// IoError unless steps rise from each start on, and none is missing.
void require_steps(const Receipt& receipt) {
  const std::vector<ReceiptLine>& lines = receipt.lines();
  require<IoError>(lines.front().kind() == "start", "the receipt does not begin with the start of a run");
  int64_t every = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t step = lines[i].step();
    if (lines[i].kind() == "start") {
      every = interval_of(lines[i].json);
      continue;
    }
    const int64_t before = lines[i - 1].step();
    require<IoError>(before < step, "line {} of the receipt is of step {}, and the line before it of step {}", i + 1,
                     step, before);
    if (every == 0) continue;
    const int64_t due = (before / every + 1) * every;
    require<IoError>(step <= due, "the receipt has no line of step {}, which stands between lines {} and {}", due, i,
                     i + 1);
  }
}

std::string link_of(const Json& about) { return about.is_object() ? about.value(kReceiptKey, "") : ""; }

}  // namespace

ReceiptLinks check_links(const Receipt& receipt, const fs::path& folder) {
  require_steps(receipt);
  ReceiptLinks links;
  for (const fs::path& checkpoint : list_checkpoints(folder)) {
    const CheckpointInfo info = read_checkpoint_info(checkpoint);
    const ReceiptLine* line = receipt.find(link_of(info.about));
    require<IoError>(line != nullptr && line->step() == info.step,
                     "{} does not belong to this receipt: the hash that it holds is that of no line of step {}",
                     checkpoint.string(), info.step);
    require<IoError>(hash_weights(Checkpoint(checkpoint)) == line->json.at("weights"),
                     "{}: its weights are not those that the receipt says", checkpoint.string());
    links.checkpoints[info.step] = line;
  }
  if (const auto record = read_export_record(folder)) {
    const ReceiptLine* line = receipt.find(record->receipt);
    require<IoError>(line != nullptr && line->step() == record->step,
                     "the weights in {} do not belong to this receipt: the hash that trainer_state.json holds is that "
                     "of no line of step {}",
                     folder.string(), record->step);
    links.exported = true;
  }
  return links;
}

const ReceiptLine& start_before(const Receipt& receipt, const ReceiptLine& line) {
  const ReceiptLine* start = &receipt.lines().front();
  for (const ReceiptLine& each : receipt.lines()) {
    if (each.kind() == "start") start = &each;
    if (&each == &line) break;
  }
  return *start;
}

std::string describe_other_start(const Json& then, const Json& now, bool same_ranks) {
  const auto member = [](const Json& line, const char* key) { return line.value(key, Json()); };
  for (const char* key : {"config", "run"})
    if (std::string other = describe_other_member(member(then, key), member(now, key), same_ranks); !other.empty())
      return other;
  if (member(then, kOtherRanksKey) != member(now, kOtherRanksKey)) return "what it says of other ranks is not so";
  const Json files = member(then, "files"), read = member(now, "files");
  for (const auto& [file, hash] : files.items())
    if (read.value(file, Json()) != hash) return fmt::format("{} is not the file that was read", file);
  if (then.at("weights") != now.at("weights")) return "the weights are not those that the receipt says";
  return "";
}

std::string describe_other_step(const Json& then, const Json& now, double margin) {
  for (const char* key : {"loss", "grad_norm"}) {
    const Json before = then.value(key, Json()), after = now.value(key, Json());
    if (before == after) continue;
    const bool numbers = before.is_number() && after.is_number();
    const bool near = numbers && std::abs(before.get<double>() - after.get<double>()) <=
                                     margin * std::max(1.0, std::abs(before.get<double>()));
    if (!near) return fmt::format("{} is {}, the receipt says {}", key, after.dump(), before.dump());
  }
  if (then.value("samples", Json()) != now.value("samples", Json())) return "other samples were read";
  if (margin == 0 && then.at("weights") != now.at("weights")) return "the weights are others";
  return "";
}

}  // namespace nought
