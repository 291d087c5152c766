#include "nought/cli/host_links.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/json.h"
#include "nought/base/nonce.h"
#include "nought/base/process.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"
#include "nought/cli/child_process.h"
#include "nought/comm/mesh.h"
#include "nought/io/atomic_file.h"

extern char** environ;

namespace nought {

namespace {

constexpr int kRounds = 20;                   // of short messages, there and back
constexpr int64_t kProbe = 64 << 10;          // elements of the first long message
constexpr int64_t kLong = 256 << 10;          // of each further one
constexpr double kSeconds = 0.2, kMost = 16;  // so long they are sent, and so many at most

/// One end of a link.
class End {
 public:
  End(Communicator& world, const Context& context, int other) : world_(world), context_(context), other_(other) {
    short_ = context.zeros({1}, DType::f32, Category::communication);
    long_ = context.zeros({kLong}, DType::f32, Category::communication);
  }

  HostLink measure() {
    HostLink link;
    round_trip();
    link.seconds = seconds_of([&] {
                     for (int i = 0; i < kRounds; ++i) round_trip();
                   }) /
                   (2 * kRounds);
    const double probe = seconds_of([&] { send_long(1, kProbe); });
    const double each = probe * static_cast<double>(kLong) / static_cast<double>(kProbe);
    const auto count = static_cast<int>(std::clamp(kSeconds / each, 1.0, kMost));
    send(context_.upload<float>({1}, std::array{static_cast<float>(count)}));
    const double seconds = seconds_of([&] { send_long(count, kLong); });
    link.bytes_per_second = static_cast<double>(count * kLong) * sizeof(float) / seconds;
    return link;
  }
  void answer() {
    for (int i = 0; i < 1 + kRounds; ++i) receive(short_), send(short_);
    receive_long(1, kProbe);
    receive(short_);
    receive_long(static_cast<int>(context_.to_host<float>(short_).at(0)), kLong);
  }

 private:
  void send(const Tensor& tensor) { world_.send(tensor, other_).wait(); }
  void receive(const Tensor& tensor) { world_.recv(tensor, other_).wait(); }
  void round_trip() { send(short_), receive(short_); }
  /// Until the other has them all.
  void send_long(int count, int64_t elements) {
    for (int i = 0; i < count; ++i) send(long_.flat(0, elements));
    receive(short_);
  }
  void receive_long(int count, int64_t elements) {
    for (int i = 0; i < count; ++i) receive(long_.flat(0, elements));
    send(short_);
  }

  Communicator& world_;
  const Context& context_;
  int other_;
  Tensor short_, long_;
};

/// A host file with one slot for each host, for as long as this lives.
class OneSlotEach {
 public:
  explicit OneSlotEach(const std::vector<Host>& hosts) {
    std::string text;
    for (const Host& host : hosts) text += host.name + " slots=1\n";
    write_text_atomically(path_, text);
  }
  ~OneSlotEach() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  OneSlotEach(const OneSlotEach&) = delete;
  OneSlotEach& operator=(const OneSlotEach&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("nought-hosts-" + random_nonce());
};

/// A line of the text that begins so, without the beginning.
std::string line_with(const std::string& text, std::string_view beginning) {
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with(beginning)) return line.substr(beginning.size());
  return "";
}

void end_all(pid_t child) {
  for (const int pid : descendants_of(child)) kill(pid, SIGKILL);
  kill(child, SIGKILL);
}

}  // namespace

std::vector<HostLink> measure_links(Communicator& world, const Context& context) {
  const int hosts = world.size(), links = hosts == 2 ? 1 : hosts;
  std::vector<double> values(static_cast<size_t>(2 * links));
  for (int from = 0; from < links && hosts > 1; ++from) {
    const int to = (from + 1) % hosts;
    world.barrier().wait();
    if (world.rank() == from) {
      const HostLink link = End(world, context, to).measure();
      values[2 * static_cast<size_t>(from)] = link.seconds;
      values[2 * static_cast<size_t>(from) + 1] = link.bytes_per_second;
    } else if (world.rank() == to) {
      End(world, context, from).answer();
    }
  }
  all_reduce_values(world, context, values, ReduceOp::sum);
  std::vector<HostLink> measured;
  for (size_t i = 0; i < values.size() && hosts > 1; i += 2) measured.push_back({values[i], values[i + 1]});
  return measured;
}

std::string links_line(const std::vector<HostLink>& links) {
  Json rows = Json::array();
  for (const HostLink& link : links) rows.push_back({link.seconds, link.bytes_per_second});
  return Json{{"links", rows}}.dump();
}

std::vector<HostLink> links_in(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("links") || !json["links"].is_array()) return {};
  std::vector<HostLink> links;
  for (const Json& row : json["links"])
    if (row.is_array() && row.size() == 2 && row[0].is_number() && row[1].is_number())
      links.push_back({row[0], row[1]});
  return links;
}

MeasuredLinks links_between(const std::vector<Host>& hosts, std::chrono::seconds patience) {
  const OneSlotEach file(hosts);
  const EndingSignals signals;
  Pipe out, err;
  ChildProgram self{.path = "/proc/self/exe",
                    .arguments = {"nought", "doctor", "--measure-links", "--hostfile", file.path()},
                    .environment = {},
                    .out = out.write_end(),
                    .err = err.write_end()};
  for (char** variable = environ; *variable != nullptr; ++variable) self.environment.emplace_back(*variable);
  const pid_t child = start_child("a measurement", std::move(self), signals);
  out.close_write_end(), err.close_write_end();
  for (const int each : {out.read_end(), err.read_end()}) fcntl(each, F_SETFL, O_NONBLOCK);

  MeasuredLinks measured;
  std::string said, errors;
  const auto until = std::chrono::steady_clock::now() + patience;
  bool late = false;
  for (bool ended = false; !ended;) {
    ended = waitpid(child, nullptr, WNOHANG) == child;
    read_available(out.read_end(), said), read_available(err.read_end(), errors);
    if (measured.signal == 0) measured.signal = signals.take();
    late = std::chrono::steady_clock::now() > until;
    if (!ended && (late || measured.signal != 0)) end_all(child);
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  measured.links = links_in(said);
  if (!measured.links.empty() || measured.signal != 0) return measured;
  measured.problem = line_with(errors, "nought: error: ");
  if (late)
    measured.problem = fmt::format("ranks on these hosts did not hear of each other within {} s", patience.count());
  if (measured.problem.empty()) measured.problem = "ranks on these hosts ended without a message";
  measured.problem +=
      "; see that no firewall is between the hosts, and name a network that all have by --mca btl_tcp_if_include "
      "(OMPI_MCA_btl_tcp_if_include, OMPI_MCA_oob_tcp_if_include)";
  return measured;
}

}  // namespace nought
