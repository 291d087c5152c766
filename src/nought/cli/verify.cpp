// nought verify: whether a run went as its receipt says, by steps that are made again.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/nonce.h"
#include "nought/checkpoint/receipt.h"
#include "nought/checkpoint/receipt_check.h"
#include "nought/cli/commands.h"
#include "nought/cli/run_replay.h"
#include "nought/cli/stop_signals.h"
#include "nought/report/run_folder.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

struct VerifyOptions {
  std::string folder, place;  // place: where replays write; "": the folder of temporary files
  int64_t steps = 10, ranks = 0;
};

/// Where replays write; goes with this object.
class ReplayPlace {
 public:
  explicit ReplayPlace(const std::string& folder)
      : path_(fs::absolute((folder.empty() ? fs::temp_directory_path() : fs::path(folder)) /
                           ("nought-verify-" + random_nonce()))) {
    std::error_code error;
    fs::create_directories(path_, error);
    require<IoError>(!error, "--folder {}: cannot be made: {}", path_.string(), error.message());
  }
  ~ReplayPlace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ReplayPlace(const ReplayPlace&) = delete;
  ReplayPlace& operator=(const ReplayPlace&) = delete;
  fs::path from(int64_t step) const { return path_ / fmt::format("from-{}", step); }

 private:
  fs::path path_;
};

/// Lines of steps that one replay makes again, and what it begins with.
struct ReplayedLines {
  const ReceiptLine* start = nullptr;  // that the steps follow
  const ReceiptLine* base = nullptr;   // of the weights that it begins with
  std::vector<const ReceiptLine*> lines = {};
};

/// Each line that a replay can make again, with the step that it begins from.
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

std::map<int64_t, ReplayedLines> choose(const Receipt& receipt, const ReceiptLinks& links, int64_t count) {
  auto all = reachable(receipt, links);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(std::random_device{}()));
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

/// How far numbers of other ranks may be apart (docs/receipts.md); 0: they have the same bits.
double margin_of(const Json& start, bool same_ranks) {
  const Json run = start.value("run", Json::object());
  if (same_ranks || run.contains("virtual_ranks")) return 0;
  return run.value("dtype", "f32") == "f32" ? 1e-4 : 2e-2;
}

/// "" if the replay of the stretch agrees; or how it differs. Sets signal if the user ended it.
std::string differs(const RunFolder& run, const ReplayedLines& stretch, int64_t base, const VerifyOptions& options,
                    const fs::path& folder, int& signal) {
  const Json& start = stretch.start->json;
  const int64_t before = start.value("ranks", int64_t{1}), now = options.ranks == 0 ? before : options.ranks;
  const ReceiptLine* last = *std::ranges::max_element(stretch.lines, {}, [](const auto* each) { return each->step(); });
  signal = replay_run(run,
                      {.from = base,
                       .to = last->step(),
                       .every = last->step(),
                       .ranks = static_cast<int>(now),
                       .settings = {R"(training.receipt={"every": 1})"}},
                      folder);
  if (signal != 0) return "";
  const Receipt again(folder);
  Json begins = start;
  begins["weights"] = stretch.base->json.at("weights");
  if (std::string other = describe_other_start(begins, again.lines().front().json, before == now); !other.empty())
    return fmt::format("the replay from step {}: {}", base, other);
  for (const ReceiptLine* line : stretch.lines) {
    const auto same = std::ranges::find_if(
        again.lines(), [&](const ReceiptLine& each) { return each.kind() == "step" && each.step() == line->step(); });
    require<IoError>(same != again.lines().end(), "the replay did not come to step {}", line->step());
    const std::string other = describe_other_step(line->json, same->json, margin_of(start, before == now));
    if (!other.empty()) return fmt::format("step {}: {}", line->step(), other);
  }
  return "";
}

int run_verify(const VerifyOptions& options) {
  require<ConfigError>(options.steps >= 1, "--steps must be at least 1, got {}", options.steps);
  require<ConfigError>(options.ranks >= 0, "--ranks must be at least 1, got {}", options.ranks);
  const Receipt receipt(options.folder);
  const ReceiptLinks links = check_links(receipt, options.folder);
  fmt::print("receipt   {} lines up to step {}, each with the hash of the line before; the last is {}\n",
             receipt.lines().size(), receipt.lines().back().step(), receipt.last());
  fmt::print("links     {} checkpoint{}{} hold hashes of its lines\n", links.checkpoints.size(),
             links.checkpoints.size() == 1 ? "" : "s", links.exported ? " and the exported weights" : "");
  const std::map<int64_t, ReplayedLines> chosen = choose(receipt, links, options.steps);
  require<ConfigError>(!chosen.empty(),
                       "{}: no step can be made again: the run did not begin here, and no checkpoint before a step of "
                       "the receipt is there",
                       options.folder);
  const RunFolder run = read_run_folder(options.folder);
  const ReplayPlace place(options.place);
  std::string difference;
  for (const auto& [base, stretch] : chosen) {
    int signal = 0;
    difference = differs(run, stretch, base, options, place.from(base), signal);
    if (signal != 0) return exit_code_of(signal);
    if (!difference.empty()) break;
    std::set<int64_t> steps;
    for (const ReceiptLine* line : stretch.lines) steps.insert(line->step());
    const int64_t before = stretch.start->json.value("ranks", int64_t{1});
    const double margin = margin_of(stretch.start->json, options.ranks == 0 || options.ranks == before);
    fmt::print("replayed  steps {} from step {} on {} ranks: {}\n", fmt::join(steps, ", "), base,
               options.ranks == 0 ? before : options.ranks,
               margin == 0 ? "the same bits" : fmt::format("loss and norm are within {}", margin));
    std::fflush(stdout);
  }
  fmt::print("result    {}\n", difference.empty() ? "the run went as its receipt says" : "differs: " + difference);
  return difference.empty() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "verify",
                  "Checks a run by its receipt: the chain of hashes, the checkpoints that belong to it, "
                  "and random steps, which are made again; exits with 1 if they differ",
                  {"nought verify out", "nought verify out --steps 50 --ranks 2"});
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("RUN_DIR", options->folder, "The output folder of a run with training.receipt")->required();
  command->add_option("--steps", options->steps, "How many steps of the receipt are made again")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "Number of processes of the replays; default: as the run had")
      ->type_name("N");
  command
      ->add_option("--folder", options->place,
                   "Where replays write, a checkpoint each; default: the folder of temporary files")
      ->type_name("DIR");
  command->callback([&invocation, options] { invocation.action = [options] { return run_verify(*options); }; });
}

}  // namespace nought
