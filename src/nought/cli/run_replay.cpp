#include "nought/cli/run_replay.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/cli/child_process.h"
#include "nought/cli/own_program.h"
#include "nought/cli/remote_calls.h"
#include "nought/cli/stop_signals.h"
#include "nought/config/elastic_ranks.h"

extern char** environ;

namespace nought {

namespace fs = std::filesystem;

namespace {

int recorded_ranks(const RunFolder& run) {
  const Json& starts = run.fact("/starts");  // mpirun may have started the ranks
  return starts.is_array() && !starts.empty() ? static_cast<int>(number_in(starts.back(), "ranks")) : 1;
}

/// What the run was started with, without what says where it begins.
std::vector<std::string> arguments_of(const RunFolder& run, bool with_ranks) {
  const Json& recorded = run.fact("/arguments");
  require<ConfigError>(recorded.is_array() && recorded.size() >= 2 && recorded[0] == "train",
                       "{}: run_record.json does not say by which command the run was started", run.path.string());
  std::set<std::string> with_value{"--rewind", "--trace", "--within", "--min-steps"};
  if (!with_ranks) with_value.insert({"--ranks", "--hostfile", "--restarts", "--min-ranks"});
  std::vector<std::string> words;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const std::string word = recorded[i];
    if (with_value.contains(word))
      ++i;
    else if (word != "--overwrite" && word != "--quiet")
      words.push_back(word);
  }
  if (!with_ranks) return words;
  const bool has_ranks = std::find(words.begin(), words.end(), "--ranks") != words.end() ||
                         std::find(words.begin(), words.end(), "--hostfile") != words.end();
  if (const int ranks = recorded_ranks(run); !has_ranks && ranks > 1)
    words.insert(words.end(), {"--ranks", std::to_string(ranks)});
  return words;
}

/// What other ranks are told, so that they make the batch of the run. ConfigError if they can not.
std::vector<std::string> settings_of_ranks(const RunFolder& run, const std::vector<std::string>& words, int ranks) {
  std::vector<std::string> overrides;
  for (size_t i = 2; i + 1 < words.size(); ++i)
    if (words[i] == "--set") overrides.push_back(words[i + 1]);
  const fs::path file = fs::path(run.text("/directory")) / words.at(1);
  const ElasticRanks all = elastic_ranks(load_run_config(file.string(), overrides), recorded_ranks(run));
  const auto found = std::ranges::find(all.choices, ranks, &ElasticRanks::Choice::ranks);
  if (found != all.choices.end()) return found->settings;
  std::vector<int> numbers;
  for (const ElasticRanks::Choice& each : all.choices) numbers.push_back(each.ranks);
  fail<ConfigError>("{} ranks cannot make the run of {} again, whose batch is {}: {} can", ranks, run.path.string(),
                    all.train_batch, fmt::join(numbers, ", "));
}

std::vector<std::string> settings_of(const RunFolder& run, const ReplaySteps& steps, const fs::path& folder) {
  std::vector<std::string> settings{
      fmt::format("training.output_dir={}", Json(folder.string()).dump()),
      "training.save_strategy=steps",
      fmt::format("training.save_steps={}", steps.every),
      "training.save_total_limit=0",
      "training.async_save=false",
      fmt::format(
          "training.resume_from_checkpoint={}",
          steps.from == 0 ? "false" : Json(fs::absolute(checkpoint_path(run.path, steps.from)).string()).dump())};
  // What was chosen by epochs or by a clock, and other places that a run writes to.
  if (const auto steps_of_run = static_cast<int64_t>(run.number("/run/max_steps")); steps_of_run > 0)
    settings.push_back(fmt::format("training.max_steps={}", steps_of_run));
  for (const auto& [key, value] : run.settings())
    if (key == "training.logging_dir")
      settings.push_back(fmt::format("{}={}", key, Json((folder / "runs").string()).dump()));
    else if (key == "deepspeed.tensorboard.enabled" || key == "deepspeed.csv_monitor.enabled")
      settings.push_back(key + "=false");
  return settings;
}

/// The last line that says something.
std::string last_words(const std::string& text) {
  std::string last;
  for (const std::string& line : split(text, '\n'))
    if (!line.empty()) last = line;
  return one_line(last);
}

}  // namespace

int replay_run(const RunFolder& run, const ReplaySteps& steps, const fs::path& folder) {
  // The paths of a run are those of the folder in which it was started.
  std::string command = fmt::format("cd {} && exec {}", shell_word(run.text("/directory")), shell_word(own_program()));
  const bool other_ranks = steps.ranks > 0 && steps.ranks != recorded_ranks(run);
  const std::vector<std::string> words = arguments_of(run, !other_ranks);
  for (const std::string& word : words) command += " " + shell_word(word);
  std::vector<std::string> settings = settings_of(run, steps, folder);
  settings.insert(settings.end(), steps.settings.begin(), steps.settings.end());
  if (other_ranks) {
    command += fmt::format(" --ranks {}", steps.ranks);
    for (std::string& setting : settings_of_ranks(run, words, steps.ranks)) settings.push_back(std::move(setting));
  }
  for (const std::string& setting : settings) command += " --set " + shell_word(setting);
  const EndingSignals signals;
  Pipe err;
  const FileDescriptor null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ChildProgram child{.path = "/bin/sh",
                     .arguments = {"sh", "-c", command + " --quiet --overwrite"},
                     .environment = {},
                     .out = null.get(),
                     .err = err.write_end()};
  if (steps.from > 0) child.arguments.back() = command + " --quiet";
  for (char** variable = environ; *variable != nullptr; ++variable) child.environment.emplace_back(*variable);
  const pid_t pid = start_child("a replay", std::move(child), signals);
  err.close_write_end();
  fcntl(err.read_end(), F_SETFL, O_NONBLOCK);

  std::string said;
  int status = 0, signal = 0;
  bool asked = false;
  while (waitpid(pid, &status, WNOHANG) != pid) {
    read_available(err.read_end(), said);
    if (signal == 0) signal = signals.take();
    if (!asked && (signal != 0 || is_checkpoint(checkpoint_path(folder, steps.to)))) asked = true, kill(pid, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  read_available(err.read_end(), said);
  if (signal != 0) return signal;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of(WTERMSIG(status));
  const bool saved = is_checkpoint(checkpoint_path(folder, steps.to));
  require<IoError>(saved && (code == 0 || asked), "the replay of {} ended with exit code {}: {}", run.path.string(),
                   code, last_words(said));
  return 0;
}

}  // namespace nought
