// The checks of a Communicator between real processes: test_comm_mpi CASE [OPTION=N]..., started by mpirun. Prints
// one line that begins with "ok" on rank 0, and leaves with 0, when all is well. Options are fields of MpiOptions: spin
// and nap (us), windows (0 or 1), ranks_per_host.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "support/communicator_checks.h"
#include <unistd.h>

#include "nought/comm/mpi.h"

namespace nought {
namespace {

using Clock = std::chrono::steady_clock;

void check_world(MpiWorld& world) {
  Communicator& group = world.world();
  require(launched_by_mpi(), "mpirun was not recognised");
  require(group.backend() == (group.size() == 1 ? "self" : "mpi"), "the backend calls itself {}", group.backend());
  require(static_cast<int>(world.host_names().size()) == group.size(), "{} host names for {} ranks",
          world.host_names().size(), group.size());
  // These tests run on one host.
  require(world.local_size() == group.size() && world.local_rank() == group.rank(), "local rank {} of {}",
          world.local_rank(), world.local_size());
}

void run_checks(MpiWorld& world, const Context& context) {
  check_world(world);
  test::check_communicator(world.world(), context);
}

/// The last rank fails while the others wait for it; it ends them with its exit code.
void run_throw(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  const Tensor x = context.zeros({1 << 20}, DType::f32);
  group.all_reduce(x).wait();
  if (group.rank() == group.size() - 1) fail("this rank fails, as it was told");
  group.all_reduce(x).wait();
}

/// The last rank dies without a word.
void run_die(MpiWorld& world, const Context&) {
  world.world().barrier().wait();
  if (world.world().rank() == world.world().size() - 1) _exit(9);
  world.world().barrier().wait();
}

/// abort() from the main thread while the communication thread waits in a collective.
void run_abort(MpiWorld& world, const Context&) {
  const Event event = world.world().rank() == 0 ? world.world().barrier() : Event();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (world.world().rank() == 0) MpiWorld::abort(5);
  world.world().recv(Tensor::zeros(*Memory::create(), {1}, DType::u8, Category::activations), 0).wait();
}

/// The last rank does not come: the others are told by name, soon, and every later call fails too.
void run_timeout(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  if (group.rank() == group.size() - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    fail("nobody ended this rank");
  }
  const auto begin = Clock::now();
  const int64_t shard = (1 << 20) / group.size();
  group.set_timeout(std::chrono::milliseconds(300));
  std::string message;
  try {
    group.reduce_scatter(context.zeros({shard * group.size()}, DType::f32), context.zeros({shard}, DType::f32)).wait();
  } catch (const CommError& error) {
    message = error.what();
  }
  const std::string expected = fmt::format(
      "reduce_scatter of 4.00 MiB f32 in group of {} timed out after 0.3s on rank {}", group.size(), group.rank());
  require(message.starts_with(expected), "expected \"{}\", got \"{}\"", expected, message);
  require(Clock::now() - begin < std::chrono::seconds(20), "the timeout came late");
  bool refused = false;
  try {
    group.barrier().wait();
  } catch (const CommError&) {
    refused = true;
  }
  require(refused, "a group that lost a collective goes on");
  std::printf("ok: timed out as told\n");
  std::fflush(stdout);
  MpiWorld::abort(4);
}

/// GB/s of a collective's own traffic (what a rank sends), best of several.
void run_speed(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  const int64_t size = group.size();
  const auto measure = [&](const char* name, int64_t bytes, const std::function<Event()>& call) {
    double best = 1e30, sum = 0;
    constexpr int kRuns = 20;
    for (int i = 0; i < kRuns + 2; ++i) {
      group.barrier().wait();
      const auto begin = Clock::now();
      call().wait();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (i < 2) continue;
      best = std::min(best, seconds);
      sum += seconds;
    }
    if (group.rank() != 0) return;
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    std::printf("%-14s %6.1f MiB  best %6.2f GB/s  mean %6.2f GB/s  (%.0f us)\n", name,
                static_cast<double>(bytes) / (1 << 20), gigabytes / best, gigabytes * kRuns / sum, best * 1e6);
  };
  for (int64_t mebibytes : {0, 4, 64}) {
    const int64_t n = std::max<int64_t>(size, mebibytes << 18) / size * size;
    const Tensor full = context.zeros({n}, DType::f32), shard = context.zeros({n / size}, DType::f32);
    measure("all_reduce", full.bytes(), [&] { return group.all_reduce(full); });
    measure("reduce_scatter", full.bytes(), [&] { return group.reduce_scatter(full, shard); });
    measure("all_gather", full.bytes(), [&] { return group.all_gather(shard, full); });
    measure("broadcast", full.bytes(), [&] { return group.broadcast(full, 0); });
  }
}

using Case = void (*)(MpiWorld&, const Context&);
const std::map<std::string, Case> kCases{{"checks", run_checks}, {"throw", run_throw},     {"die", run_die},
                                         {"abort", run_abort},   {"timeout", run_timeout}, {"speed", run_speed}};

void set_option(MpiOptions& options, const std::string& text) {
  const size_t equals = text.find('=');
  require<ConfigError>(equals != std::string::npos, "\"{}\" is not OPTION=N", text);
  const std::string name = text.substr(0, equals);
  const int value = std::stoi(text.substr(equals + 1));
  if (name == "spin") {
    options.spin = std::chrono::microseconds(value);
  } else if (name == "nap") {
    options.nap = std::chrono::microseconds(value);
  } else if (name == "windows") {
    options.shared_windows = value != 0;
  } else if (name == "ranks_per_host") {
    options.ranks_per_host = value;
  } else {
    fail<ConfigError>("no option is called \"{}\"", name);
  }
}

void run_case(const std::string& name, const MpiOptions& options) {
  const auto found = kCases.find(name);
  require<ConfigError>(found != kCases.end(), "no case is called \"{}\"", name);
  const Context context = Context::cpu();
  MpiWorld world(context, options);
  found->second(world, context);
  world.world().barrier().wait();
  if (world.world().rank() == 0) std::printf("ok: %s on %d ranks\n", name.c_str(), world.world().size());
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  try {
    nought::MpiOptions options;
    for (int i = 2; i < argc; ++i) nought::set_option(options, argv[i]);
    nought::run_case(argc > 1 ? argv[1] : "checks", options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_comm_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
