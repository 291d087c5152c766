#include "nought/checkpoint/receipt_replay.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"

namespace nought {

namespace {

std::string number_of(int64_t ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

/// Each line that a replay can make again, with the step that it begins after.
std::vector<std::pair<int64_t, const ReceiptLine*>> reachable(const Receipt& receipt, const ReceiptLinks& links) {
  std::vector<std::pair<int64_t, const ReceiptLine*>> found;
  const ReceiptLine& first = receipt.lines().front();
  const bool from_start = first.kind() == "start" && first.step() == 0 && first.json.value("continues", "").empty();
  for (const ReceiptLine& line : receipt.lines()) {
    if (line.kind() != "step") continue;
    std::optional<int64_t> base;
    if (from_start) base = 0;
    for (const auto& [step, saved] : links.checkpoints)
      if (step < line.step()) base = step;
    if (base) found.emplace_back(*base, &line);
  }
  return found;
}

}  // namespace

std::set<int64_t> ReplayedLines::steps() const {
  std::set<int64_t> all;
  for (const ReceiptLine* line : lines) all.insert(line->step());
  return all;
}

std::map<int64_t, ReplayedLines> choose_lines(const Receipt& receipt, const ReceiptLinks& links, int64_t count,
                                              uint64_t seed) {
  auto all = reachable(receipt, links);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(std::min(all.size(), static_cast<size_t>(count)));
  std::map<int64_t, ReplayedLines> chosen;
  for (const auto& [base, line] : all) {
    ReplayedLines& stretch = chosen[base];
    stretch.start = &start_before(receipt, *line);
    stretch.base = base == 0 ? &receipt.lines().front() : links.checkpoints.at(base);
    stretch.lines.push_back(line);
  }
  return chosen;
}

double margin_on(const Json& start, int64_t run_ranks, int64_t ranks) {
  if (ranks == run_ranks) return 0;
  const Json others = start.value(kOtherRanksKey, Json());
  require<ConfigError>(others.is_number(),
                       "on {} this run has another result than on {}, because of {}: verify it on {}", number_of(ranks),
                       number_of(run_ranks),
                       others.is_string() ? others.get<std::string>() : "what its receipt does not say", run_ranks);
  return others.get<double>();
}

std::string describe_margin(double margin, int64_t run_ranks, int64_t ranks) {
  if (margin == 0) return fmt::format("on {}: the same bits", number_of(ranks));
  return fmt::format(
      "on {}, in another order of additions than on {}: losses and norms are within {} of the receipt's, and weights "
      "are not compared",
      number_of(ranks), run_ranks, margin);
}

std::string describe_replay(const ReplayedLines& lines, int64_t base, const Receipt& again, int64_t ranks) {
  const int64_t before = lines.ranks();
  const Json& start = again.lines().front().json;
  Json begins = lines.start->json;
  begins["weights"] = lines.base->json.at("weights");
  if (std::string other = describe_other_start(begins, start, before == ranks); !other.empty())
    return fmt::format("the replay from step {}: {}", base, other);
  const double margin = margin_on(start, before, ranks);
  for (const ReceiptLine* line : lines.lines) {
    const auto same = std::ranges::find_if(
        again.lines(), [&](const ReceiptLine& each) { return each.kind() == "step" && each.step() == line->step(); });
    require<IoError>(same != again.lines().end(), "the replay did not come to step {}", line->step());
    const std::string other = describe_other_step(line->json, same->json, margin);
    if (!other.empty()) return fmt::format("step {}: {}", line->step(), other);
  }
  return "";
}

}  // namespace nought
