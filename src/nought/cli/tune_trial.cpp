#include "nought/cli/tune_trial.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/process.h"

extern char** environ;

namespace nought {

namespace {

/// The first error that a log says, or its end.
std::string error_in(const std::filesystem::path& log) {
  constexpr std::string_view kPrefix = "nought: error: ";
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    if (!line.empty()) last = line;
  }
  return last;
}

/// The tokens per second of each step, but for the first ones.
std::vector<double> speeds_in(const std::filesystem::path& metrics) {
  std::vector<double> speeds;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", int64_t{0}) > kSettling && json.contains("tokens_per_second") &&
        json["tokens_per_second"].is_number())
      speeds.push_back(json["tokens_per_second"]);
  }
  std::sort(speeds.begin(), speeds.end());
  return speeds;
}

void end_trial(pid_t child) {
  for (const int pid : descendants_of(child)) kill(pid, SIGKILL);
  kill(child, SIGKILL);
}

pid_t start_trial(const TrialCommand& command, const std::vector<std::string>& settings, const EndingSignals& signals) {
  const std::string log = (command.folder / "log.txt").string();
  const FileDescriptor out(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  ChildProgram self{
      .path = "/proc/self/exe", .arguments = {"nought"}, .environment = {}, .out = out.get(), .err = out.get()};
  self.arguments.insert(self.arguments.end(), command.arguments.begin(), command.arguments.end());
  const auto set = [&](const std::string& setting) {
    self.arguments.emplace_back("--set");
    self.arguments.push_back(setting);
  };
  for (const std::string& setting : settings) set(setting);
  set(fmt::format("training.max_steps={}", command.steps));
  set("training.output_dir=" + (command.folder / "out").string());
  set("training.logging_steps=1"), set("training.save_strategy=no"), set("training.eval_strategy=no");
  self.arguments.emplace_back("--overwrite");
  for (char** variable = environ; *variable != nullptr; ++variable) self.environment.emplace_back(*variable);
  return start_child("a trial", std::move(self), signals);
}

}  // namespace

std::string TuneTrial::key() const { return fmt::format("{}", fmt::join(settings, " ")); }

OrderedJson TuneTrial::json() const {
  return {{"settings", settings}, {"tokens_per_second", tokens_per_second}, {"noise", noise}, {"message", message}};
}

TuneTrial TuneTrial::from(const Json& json) {
  TuneTrial trial;
  trial.settings = json.at("settings").get<std::vector<std::string>>();
  trial.tokens_per_second = json.at("tokens_per_second");
  trial.noise = json.at("noise");
  trial.message = json.at("message");
  return trial;
}

TuneTrial run_trial(const TrialCommand& command, std::vector<std::string> settings, const EndingSignals& signals,
                    int& asked) {
  std::filesystem::remove_all(command.folder);
  std::filesystem::create_directories(command.folder);
  TuneTrial trial;
  trial.settings = std::move(settings);
  const pid_t child = start_trial(command, trial.settings, signals);
  const auto end = std::chrono::steady_clock::now() + command.limit;
  int status = 0;
  bool late = false;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (asked == 0) asked = signals.take();
    late = late || std::chrono::steady_clock::now() > end;
    if (asked != 0 || late) end_trial(child);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (late)
    trial.message = fmt::format("not done in {:.0f} s", command.limit.count());
  else if (WIFSIGNALED(status))
    trial.message = fmt::format("killed by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    trial.message = error_in(command.folder / "log.txt");
  const std::vector<double> speeds = speeds_in(command.folder / "out/metrics.jsonl");
  if (trial.message.empty() && speeds.empty()) trial.message = "it made no step that counts";
  if (!trial.message.empty()) return trial;
  const size_t count = speeds.size();
  trial.tokens_per_second = speeds[count / 2];
  trial.noise = (speeds[3 * count / 4] - speeds[count / 4]) / 2 / trial.tokens_per_second;
  return trial;
}

}  // namespace nought
