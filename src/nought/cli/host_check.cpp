#include "nought/cli/host_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/nonce.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/cli/remote_calls.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kPatience{10};     // what hosts get to answer
constexpr double kClock = 1;                      // seconds by which clocks may differ
constexpr size_t kMostFiles = 100;                // more are asked for by their folders
constexpr int kNoFolder = 113, kNoProgram = 114;  // exit codes of the command

/// A folder in output_dir, in which hosts leave each other files. It goes with this object, and so do folders that were
/// made for it.
class MeetingPlace {
 public:
  MeetingPlace(const std::string& output_dir, std::chrono::milliseconds until_seen)
      : nonce_(random_nonce()), until_seen_(until_seen) {
    if (output_dir.empty()) return;
    for (fs::path each = fs::absolute(output_dir).lexically_normal(); !fs::exists(each) && each != each.root_path();
         each = each.parent_path())
      made_.push_back(each);
    path_ = fs::absolute(output_dir) / (".doctor-" + nonce_);
    std::error_code error;
    fs::create_directories(path_, error);
    require<IoError>(!error, "training.output_dir {} cannot be written: {}", output_dir, error.message());
    write_text_atomically(path_ / nonce_, nonce_);
  }
  ~MeetingPlace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
    for (const fs::path& each : made_) fs::remove(each, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  const fs::path& path() const { return path_; }
  const std::string& nonce() const { return nonce_; }
  /// Whether the file that the host has written comes to be seen here; all of them, in `until_seen` from the first
  /// call.
  bool heard_of(const std::string& host) {
    if (!until_) until_ = std::chrono::steady_clock::now() + until_seen_;
    for (;;) {
      if (bytes_if_there(path_ / (nonce_ + "-" + host)) == nonce_) return true;
      if (std::chrono::steady_clock::now() > *until_) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  std::string nonce_;
  std::chrono::milliseconds until_seen_;
  fs::path path_;
  std::vector<fs::path> made_;  // the innermost first
  std::optional<std::chrono::steady_clock::time_point> until_;
};

/// The files; or their folders, where they are many.
std::vector<std::string> asked_for(const std::vector<std::string>& files) {
  std::vector<std::string> asked = files;
  if (asked.size() > kMostFiles)
    for (std::string& each : asked) each = fs::absolute(each).parent_path().string();
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  return asked;
}

/// What a host runs. It is in the same folder, as ranks are.
std::string command_of(const std::string& program, const HostQuestion& question) {
  return fmt::format("cd {} || exit {}; test -x {} || exit {}; exec {} doctor --answer {}",
                     shell_word(fs::current_path().string()), kNoFolder, shell_word(program), kNoProgram,
                     shell_word(program), shell_word(question.json().dump()));
}

/// The last line that says something.
std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  const auto last = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) { return !line.empty(); });
  return last == lines.rend() ? "" : one_line(*last);
}

/// Why a host gave no facts, and what to do.
std::string why_silent(const std::string& host, const RemoteAnswer& answer, const std::string& program) {
  const std::string way = fmt::format("`{} {} true`", fmt::join(remote_agent(), " "), host);
  if (answer.code < 0)
    return fmt::format("no answer within {} s; see that it is up and that {} works without a question",
                       kPatience.count(), way);
  if (answer.code == kNoFolder)
    return fmt::format("it has no folder {}: ranks start in the same folder; make it, or start from one that all have",
                       fs::current_path().string());
  if (answer.code == kNoProgram)
    return fmt::format("it has no program {}: install the same build at the same path", program);
  const std::string said = last_line(answer.err);
  return fmt::format(
      "it cannot be asked{}, exit code {}; see that it is up, that {} works without a question, and that {} is the "
      "same "
      "build there",
      said.empty() ? "" : fmt::format(" (\"{}\")", said), answer.code, way, program);
}

void compare_files(const std::vector<std::string>& files, HostReport& report) {
  std::vector<std::string> missing, other;
  for (size_t i = 0; i < files.size() && i < report.facts->sizes.size(); ++i) {
    const int64_t here = size_seen(files[i]), there = report.facts->sizes[i];
    if (here >= 0 && there < 0) missing.push_back(files[i]);
    if (here >= 0 && there >= 0 && here != there) other.push_back(files[i]);
  }
  const auto add = [&](const std::vector<std::string>& names, const char* what) {
    if (names.empty()) return;
    const std::string more = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
    report.problems.push_back(
        fmt::format("{}{} {}: every host needs the files of the run at the same paths", names[0], more, what));
  };
  add(missing, "is not there");
  add(other, "has another size than here");
}

void compare(const HostFacts& here, const RunNeeds& needs, HostReport& report) {
  const HostFacts& there = *report.facts;
  if (there.version != here.version)
    report.problems.push_back(
        fmt::format("it has nought {}, and this machine {}: install the same build", there.version, here.version));
  if (std::abs(report.clock) > kClock)
    report.problems.push_back(fmt::format("its clock is {:.1f} s {} this machine's: set both, for instance by chrony",
                                          std::abs(report.clock), report.clock > 0 ? "ahead of" : "behind"));
  if (!there.refusal.empty()) report.problems.push_back(there.refusal);
  const int64_t need = needs.rank_bytes * report.ranks;
  if (need > there.memory)
    report.problems.push_back(
        fmt::format("{} are free of its memory, and {} ranks take {}: give it fewer slots, or see `nought plan` for "
                    "what takes less",
                    format_bytes(there.memory), report.ranks, format_bytes(need)));
  if (there.isa != here.isa)
    report.notes.push_back(
        fmt::format("its CPU has {}, this machine's {}: all ranks use what all have", there.isa, here.isa));
}

/// By how much a clock is outside of the time in which its host was asked.
double ahead(double time, const RemoteAnswer& answer) {
  return time < answer.asked ? time - answer.asked : time > answer.answered ? time - answer.answered : 0;
}

}  // namespace

std::vector<int> ranks_of_hosts(const std::vector<Host>& hosts, int ranks) {
  int left = ranks == 0 ? total_slots(hosts) : ranks;
  std::vector<int> result;
  for (const Host& host : hosts) {
    result.push_back(std::min(left, host.slots));
    left -= result.back();
  }
  return result;
}

std::vector<HostReport> check_hosts(const std::vector<Host>& hosts, const RunNeeds& needs, const std::string& program) {
  MeetingPlace place(needs.output_dir, needs.until_seen);
  const std::vector<int> ranks = ranks_of_hosts(hosts, needs.ranks);
  HostQuestion question{
      .files = asked_for(needs.files), .folder = place.path().string(), .nonce = place.nonce(), .host = {}, .ranks = 1};
  std::vector<HostReport> reports;
  std::vector<RemoteCommand> commands;
  for (size_t i = 0; i < hosts.size(); ++i) {
    reports.push_back({.host = hosts[i], .ranks = ranks[i]});
    question.host = hosts[i].name, question.ranks = std::max(1, ranks[i]);
    if (is_this_host(hosts[i].name))
      reports.back().facts = facts_of_this_host(question);
    else
      commands.push_back({hosts[i].name, command_of(program, question)});
  }
  question.host = "here", question.ranks = 1;
  const HostFacts here = facts_of_this_host(question);
  const std::vector<RemoteAnswer> answers = call_hosts(commands, kPatience);
  size_t asked = 0;
  for (HostReport& report : reports) {
    if (!report.facts) {
      const RemoteAnswer& answer = answers[asked++];
      const Json json = Json::parse(last_line(answer.out), nullptr, /*allow_exceptions=*/false);
      if (answer.code != 0 || !json.is_object()) {
        report.problems.push_back(why_silent(report.host.name, answer, program));
        continue;
      }
      report.facts = HostFacts::from(json);
      report.clock = ahead(report.facts->time, answer);
    }
    compare(here, needs, report);
    compare_files(question.files, report);
    if (!question.folder.empty() && (!report.facts->reads || !place.heard_of(report.host.name)))
      report.problems.push_back(fmt::format(
          "training.output_dir {}: {}: put it on a file system that all hosts share", needs.output_dir,
          report.facts->reads ? "what it writes is not seen here" : "what is written here is not seen there"));
  }
  return reports;
}

std::string describe_problems(const std::vector<HostReport>& reports) {
  std::vector<std::string> hosts;
  for (const HostReport& report : reports)
    if (!report.problems.empty())
      hosts.push_back(fmt::format("host {}: {}", report.host.name, fmt::join(report.problems, "; ")));
  return fmt::format("{}", fmt::join(hosts, "; "));
}

}  // namespace nought
