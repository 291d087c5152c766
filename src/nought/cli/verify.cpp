// nought verify: whether a run went as its receipt says, by steps that are made again.
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/nonce.h"
#include "nought/checkpoint/receipt.h"
#include "nought/checkpoint/receipt_replay.h"
#include "nought/cli/commands.h"
#include "nought/cli/run_replay.h"
#include "nought/cli/stop_signals.h"
#include "nought/report/run_folder.h"
#include "nought/weights/receipt_export.h"

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

/// Makes the lines again. "" if they agree; or how they differ. Sets signal if the user ended it.
std::string differs(const RunFolder& run, const ReplayedLines& lines, int64_t base, int64_t ranks,
                    const fs::path& folder, int& signal) {
  const int64_t last = *lines.steps().rbegin();
  signal = replay_run(run,
                      {.from = base,
                       .to = last,
                       .every = last,
                       .ranks = static_cast<int>(ranks),
                       .settings = {R"(training.receipt={"every": 1})"}},
                      folder);
  return signal != 0 ? "" : describe_replay(lines, base, Receipt(folder), ranks);
}

int run_verify(const VerifyOptions& options) {
  require<ConfigError>(options.steps >= 1, "--steps must be at least 1, got {}", options.steps);
  require<ConfigError>(options.ranks >= 0, "--ranks must be at least 1, got {}", options.ranks);
  const Receipt receipt(options.folder);
  const ReceiptLinks links = check_links(receipt, options.folder);
  fmt::print("receipt   {} lines up to step {}, each with the hash of the line before; the last is {}\n",
             receipt.lines().size(), receipt.lines().back().step(), receipt.last());
  fmt::print("links     {} checkpoint{}{} hold hashes of its lines, and the checkpoints their weights\n",
             links.checkpoints.size(), links.checkpoints.size() == 1 ? "" : "s",
             links.exported ? " and the exported weights" : "");
  const ExportComparison exported = compare_export(receipt, options.folder);
  require<IoError>(!exported.compared || exported.note.empty(), "the exported weights in {}: {}", options.folder,
                   exported.note);
  fmt::print("exported  {}\n",
             exported.compared ? "the weights are those of its line" : "not compared: " + exported.note);
  const std::map<int64_t, ReplayedLines> chosen = choose_lines(receipt, links, options.steps, std::random_device{}());
  require<ConfigError>(!chosen.empty(),
                       "{}: no step can be made again: the run did not begin here, and no checkpoint before a step of "
                       "the receipt is there",
                       options.folder);
  const RunFolder run = read_run_folder(options.folder);
  const ReplayPlace place(options.place);
  std::string difference;
  for (const auto& [base, lines] : chosen) {
    const int64_t before = lines.ranks(), ranks = options.ranks == 0 ? before : options.ranks;
    const double margin = margin_on(lines.start->json, before, ranks);
    int signal = 0;
    difference = differs(run, lines, base, ranks, place.from(base), signal);
    if (signal != 0) return exit_code_of(signal);
    if (!difference.empty()) break;
    fmt::print("replayed  steps {} from step {} {}\n", fmt::join(lines.steps(), ", "), base,
               describe_margin(margin, before, ranks));
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
