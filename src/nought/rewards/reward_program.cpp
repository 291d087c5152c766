#include "nought/rewards/reward_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/error.h"

extern char** environ;

namespace nought {

namespace {

using Clock = std::chrono::steady_clock;

std::string line_of(long id, const WrittenAnswer& answer) {
  Json line = answer.columns.is_object() ? answer.columns : Json::object();
  line["id"] = id;
  line["completion"] = std::string(answer.text);
  line["completion_ids"] = std::vector<int32_t>(answer.ids.begin(), answer.ids.end());
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

RewardProgram::~RewardProgram() { stop(); }

void RewardProgram::start() {
  // A socket is written without a signal where nobody reads any more.
  std::array<int, 2> ends{};
  require<IoError>(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
                   "reward {}: no pipe to a program: {}", name_, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& each : command_) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) close(ends[0]), pid_ = -1;
  require<IoError>(error == 0, "reward {}: {} can not be started: {}", name_, command_[0], std::strerror(error));
  socket_ = ends[0];
  fcntl(socket_, F_SETFL, O_NONBLOCK);
  received_.clear();
}

std::string RewardProgram::stop() {
  if (pid_ < 0) return "";
  close(socket_);
  int status = 0;
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto end = Clock::now() + kPatience;
  pid_t ended = 0;
  while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (ended == 0) kill(pid_, SIGKILL), waitpid(pid_, &status, 0);
  pid_ = -1, socket_ = -1;
  return how_it_ended(status);
}

void RewardProgram::take(const std::string& line, std::vector<double>& scores, std::vector<bool>& known) const {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string shown = line.substr(0, 80);
  require<IoError>(json.is_object() && json.contains("id") && json.contains("reward"),
                   "reward {}: {} wrote \"{}\", expected {{\"id\": a number, \"reward\": a number or null}}", name_,
                   command_[0], shown);
  const Json &id = json["id"], &reward = json["reward"];
  const long asked = id.is_number_integer() ? id.get<long>() : -1;
  require<IoError>(first_ <= asked && asked - first_ < std::ssize(scores),
                   "reward {}: {} wrote \"{}\": nobody asked for that id", name_, command_[0], shown);
  const auto at = static_cast<size_t>(asked - first_);
  require<IoError>(!known[at], "reward {}: {} wrote \"{}\": that id has its reward already", name_, command_[0], shown);
  require<IoError>(reward.is_null() || (reward.is_number() && std::isfinite(reward.get<double>())),
                   "reward {}: {} wrote \"{}\": a reward is a finite number, or null", name_, command_[0], shown);
  known[at] = true;
  scores[at] = reward.is_null() ? std::numeric_limits<double>::quiet_NaN() : reward.get<double>();
}

size_t RewardProgram::take_lines(std::vector<double>& scores, std::vector<bool>& known) {
  size_t begin = 0, taken = 0;
  for (size_t end = 0; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = received_.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    take(line, scores, known);
    ++taken;
  }
  received_.erase(0, begin);
  return taken;
}

bool RewardProgram::exchange(const std::string& lines, std::vector<double>& scores) {
  std::vector<bool> known(scores.size());
  const auto end = Clock::now() + std::chrono::duration<double>(seconds_);
  std::array<char, 1 << 16> buffer{};
  for (size_t sent = 0, answered = 0; answered < scores.size();) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    require<IoError>(left > 0, "reward {}: {} has judged {} of {} answers in timeout_seconds {}", name_, command_[0],
                     answered, scores.size(), seconds_);
    pollfd wait{socket_, static_cast<short>(POLLIN | (sent < lines.size() ? POLLOUT : 0)), 0};
    poll(&wait, 1, static_cast<int>(std::min<long>(left, 1000)));
    if ((wait.revents & POLLOUT) != 0) {
      const ssize_t count = send(socket_, lines.data() + sent, lines.size() - sent, MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<size_t>(count);
      if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    }
    if ((wait.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t count = recv(socket_, buffer.data(), buffer.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return false;
    received_.append(buffer.data(), static_cast<size_t>(count));
    answered += take_lines(scores, known);
  }
  return true;
}

std::vector<double> RewardProgram::of(std::span<const WrittenAnswer> answers) {
  std::vector<double> scores(answers.size());
  std::string lines;
  for (size_t i = 0; i < answers.size(); ++i) lines += line_of(first_ + static_cast<long>(i), answers[i]);
  if (pid_ < 0) start();
  while (!exchange(lines, scores)) {
    const std::string ended = stop();
    require<IoError>(!started_again_, "reward {}: {} {} before it had judged all answers, and again after a restart",
                     name_, command_[0], ended);
    started_again_ = true;
    start();
  }
  started_again_ = false;
  first_ += static_cast<long>(answers.size());
  return scores;
}

}  // namespace nought
