// nought bisect: the first step at which two runs differ.
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/base/nonce.h"
#include "nought/cli/commands.h"
#include "nought/cli/run_replay.h"
#include "nought/cli/stop_signals.h"
#include "nought/io/file_format.h"
#include "nought/report/divergence.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr FileFormat kBisectFormat{"nought-bisect", 1};

struct BisectOptions {
  std::vector<std::string> runs;
  std::string folder;  // for replays; "": that of temporary files
  bool no_replay = false, json = false;
};

/// Two folders of replays, which go with this object.
class ReplayFolders {
 public:
  explicit ReplayFolders(const std::string& folder)
      : path_((folder.empty() ? fs::temp_directory_path() : fs::path(folder)) / ("nought-bisect-" + random_nonce())) {
    std::error_code error;
    fs::create_directories(path_, error);
    require<IoError>(!error, "--folder {}: cannot be made: {}", path_.string(), error.message());
  }
  ~ReplayFolders() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ReplayFolders(const ReplayFolders&) = delete;
  ReplayFolders& operator=(const ReplayFolders&) = delete;
  fs::path of(int round, int run) const { return fs::absolute(path_) / fmt::format("{}-{}", round, run); }

 private:
  fs::path path_;
};

/// What is known after the folders were read and steps replayed.
struct Bisection {
  RunDivergence found;
  std::array<fs::path, 2> equal_in;  // the folders with the checkpoints of found.equal
  int64_t replayed = 0;              // steps, of both runs together
  std::string stopped;               // why the interval is not narrowed down further
  int signal = 0;                    // by which the user ended it
  bool is_narrow() const { return !found.different || *found.different == found.equal + 1; }
};

/// Replays both runs between the last step that is equal and the first that is not, with at most kParts checkpoints on
/// the way, and takes what is found there into account.
void narrow(const std::vector<RunFolder>& runs, const ReplayFolders& folders, int round, Bisection& bisection) {
  constexpr int64_t kParts = 16;
  RunDivergence& found = bisection.found;
  const int64_t from = found.equal, length = *found.different - from;
  const int64_t every = ceil_div(length, kParts), last = (*found.different - 1) / every * every;
  std::vector<RunFolder> again;
  for (int i = 0; i < 2; ++i) {
    const RunFolder& run = runs[static_cast<size_t>(i)];
    RunFolder source = run;
    source.path = bisection.equal_in[static_cast<size_t>(i)];
    bisection.signal = replay_run(source, {.from = from, .to = last, .every = every}, folders.of(round, i));
    if (bisection.signal != 0) return;
    bisection.replayed += last - from;
    again.push_back(read_run_folder(folders.of(round, i)));
    if (const auto other = first_difference(run.steps, again.back().steps)) {
      bisection.stopped = fmt::format(
          "{} does not repeat itself: step {} has {} in its replay, in this order; the same program, files and machine "
          "are needed for that",
          run.path.string(), other->step, other->how);
      return;
    }
  }
  RunDivergence inner = find_divergence(again[0], again[1]);
  const int64_t before = found.equal;
  if (inner.equal > before) found.equal = inner.equal, bisection.equal_in = {again[0].path, again[1].path};
  if (inner.different && *inner.different < *found.different) found.different = inner.different, found.how = inner.how;
  if (inner.incomparable > 0)
    bisection.stopped = "the runs have other layouts, so their checkpoints cannot be compared by checksums";
  else if (found.equal == before && *found.different - found.equal == length)
    bisection.stopped = "replays came to the same steps";
}

Bisection bisect(const BisectOptions& options) {
  require<ConfigError>(options.runs.size() == 2, "bisect takes the output folders of two runs, got {}",
                       options.runs.size());
  const std::vector<RunFolder> runs = read_run_folders(options.runs);
  Bisection bisection{
      .found = find_divergence(runs[0], runs[1]), .equal_in = {runs[0].path, runs[1].path}, .stopped = {}};
  require<ConfigError>(bisection.found.steps > 0 || bisection.found.checkpoints > 0, "{} and {} have no step in common",
                       options.runs[0], options.runs[1]);
  if (bisection.is_narrow()) return bisection;
  if (options.no_replay) bisection.stopped = "--no-replay";
  std::optional<ReplayFolders> folders;
  if (bisection.stopped.empty()) folders.emplace(options.folder);
  try {
    for (int round = 0; bisection.stopped.empty() && bisection.signal == 0 && !bisection.is_narrow(); ++round)
      narrow(runs, *folders, round, bisection);
  } catch (const Error& failure) {
    bisection.stopped = failure.what();
  }
  return bisection;
}

std::string to_text(const Bisection& bisection) {
  const RunDivergence& found = bisection.found;
  std::string text = fmt::format("compared  the losses of {} steps and {} checkpoint{}", found.steps, found.checkpoints,
                                 found.checkpoints == 1 ? "" : "s");
  if (found.incomparable > 0) text += fmt::format(", {} of which other layouts have cut", found.incomparable);
  if (bisection.replayed > 0) text += fmt::format("; replayed {} steps", bisection.replayed);
  text += "\n";
  if (!found.different) return text + "result    no difference\n";
  if (bisection.is_narrow())
    return text + fmt::format("result    step {} is the first that differs: {}\n", *found.different, found.how);
  const std::string equal =
      found.equal > 0 ? fmt::format("equal after step {}", found.equal) : "not known to be equal after any step";
  return text + fmt::format("result    {}, and step {} differs: {}\nwhy       not narrowed down: {}\n", equal,
                            *found.different, found.how, bisection.stopped);
}

OrderedJson to_json(const Bisection& bisection) {
  const RunDivergence& found = bisection.found;
  return {{"format", kBisectFormat.str()},
          {"equal_after", found.equal},
          {"first_different", found.different ? OrderedJson(*found.different) : OrderedJson()},
          {"exact", bisection.is_narrow()},
          {"how", found.how},
          {"steps_compared", found.steps},
          {"checkpoints_compared", found.checkpoints},
          {"checkpoints_of_other_layouts", found.incomparable},
          {"steps_replayed", bisection.replayed},
          {"not_narrowed_because", bisection.stopped}};
}

int run_bisect(const BisectOptions& options) {
  const Bisection bisection = bisect(options);
  if (bisection.signal != 0) return exit_code_of(bisection.signal);
  fmt::print("{}", options.json ? to_json(bisection).dump(2) + "\n" : to_text(bisection));
  return bisection.found.different ? 1 : 0;
}

}  // namespace

void add_bisect(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "bisect",
                                  "Finds the first step at which two runs differ, by losses, checkpoints and replays; "
                                  "exits with 1 if they do",
                                  {"nought bisect out other", "nought bisect out other --no-replay --json"});
  const auto options = std::make_shared<BisectOptions>();
  command->add_option("RUN_DIR", options->runs, "The output folders of two runs")->required();
  command->add_flag("--no-replay", options->no_replay,
                    "Only compare what lies in the folders; without it, both runs are made again between the last "
                    "checkpoints that are equal and the first difference");
  command
      ->add_option("--folder", options->folder,
                   "Where replays write, at most 16 checkpoints of each run at a time; default: the folder of "
                   "temporary files")
      ->type_name("DIR");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([&invocation, options] { invocation.action = [options] { return run_bisect(*options); }; });
}

}  // namespace nought
