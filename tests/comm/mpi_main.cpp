// The checks of a Communicator between real processes: test_comm_mpi CASE [OPTION=N]..., started by mpirun. Prints
// one line that begins with "ok" on rank 0, and leaves with 0, when all is well. Options are fields of MpiOptions: spin
// and nap (us), windows (0 or 1), ranks_per_host.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "support/communicator_checks.h"
#include "support/mesh_checks.h"
#include <unistd.h>

#include "nought/comm/flight_timeout.h"
#include "nought/comm/mpi_engine.h"

namespace nought {
namespace {

using Clock = std::chrono::steady_clock;

/// Until another rank ends this one.
[[noreturn]] void wait_for_ever() {
  while (true) pause();
}

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

void run_mesh(MpiWorld& world, const Context& context) {
  for (const GridSizes& sizes : test::meshes_of(world.world().size())) test::check_mesh(world.world(), context, sizes);
}

void run_channels(MpiWorld& world, const Context& context) { test::check_channels(world.world(), context); }

/// The last pipeline stage fails while the others wait for its messages; it ends them with its exit code.
void run_channel_throw(MpiWorld& world, const Context& context) {
  const int stages = world.world().size();
  const Mesh mesh(world.world(), {.pipeline = stages});
  const int here = mesh.coordinate(Axis::pipeline), above = (here + 1) % stages;
  const Tensor x = context.zeros({1 << 16}, DType::f32);
  mesh.send(x, above);
  mesh.receive(x, (here + stages - 1) % stages).wait();
  if (here == stages - 1) fail("this stage fails, as it was told");
  mesh.receive(x, above).wait();
}

/// The last pipeline stage sends nothing: who waits for it says so, and ends the job.
void run_channel_timeout(MpiWorld& world, const Context& context) {
  world.world().set_timeout(std::chrono::milliseconds(300));
  const int stages = world.world().size();
  const Mesh mesh(world.world(), {.pipeline = stages});
  if (mesh.coordinate(Axis::pipeline) != stages - 2) wait_for_ever();
  std::string message;
  try {
    mesh.receive(context.zeros({1 << 18}, DType::f32), stages - 1).wait();
  } catch (const CommError& error) {
    message = error.what();
  }
  const std::string expected = "recv of 1.00 MiB f32 in group of 2 timed out after 0.3s on rank 0";
  require(message.starts_with(expected), "expected \"{}\", got \"{}\"", expected, message);
  std::printf("ok: %s\n", message.c_str());
  std::fflush(stdout);
  MpiWorld::abort(4);
}

/// The last rank does not come to a collective of its pair: the others' groups fail too, soon after.
void run_group_timeout(MpiWorld& world, const Context& context) {
  Communicator& all = world.world();
  const auto pair = all.split(all.rank() / 2, all.rank()), everyone = all.split(0, all.rank());
  if (all.rank() == all.size() - 1) wait_for_ever();
  pair->set_timeout(std::chrono::milliseconds(300));
  const auto refused = [&](const Event& event) {
    try {
      event.wait();
    } catch (const CommError&) {
      return true;
    }
    return false;
  };
  const Event blocked = everyone->barrier();  // on another thread; its own time limit is minutes away
  const bool lost = refused(pair->all_reduce(context.zeros({4}, DType::f32)));
  require(lost == (all.rank() == all.size() - 2), "rank {}: the pair's sum {}", all.rank(), lost ? "failed" : "ended");
  if (!lost) wait_for_ever();  // until the rank that lost its partner ends all
  require(refused(blocked), "a collective goes on after the engine has lost another one");
  std::printf("ok: timed out as told\n");
  std::fflush(stdout);
  MpiWorld::abort(4);
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

/// abort() from the main thread while the communication thread waits, as a collective does, for what never comes.
void run_abort(MpiWorld& world, const Context& context) {
  if (world.world().rank() != 0) world.world().recv(context.zeros({1}, DType::u8), 0).wait();  // nobody sends it
  MpiEngine& engine = MpiEngine::instance();
  std::atomic<bool> waits = false;
  engine.stream()->submit([&] {
    const Call call{.name = "what never comes", .size = 2, .deadline = Clock::now() + std::chrono::minutes(10)};
    engine.wait_until(call, [&] {
      waits = true;
      waits.notify_one();
      return false;
    });
  });
  waits.wait(false);
  MpiWorld::abort(5);
}

/// The last rank does not come: the others are told by name, and every later call fails too.
void run_timeout(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  if (group.rank() == group.size() - 1) wait_for_ever();
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

/// This rank waits in an all_reduce that does not end, in step 12 for block.3. It, or the rank that speaks for all,
/// must tell all these facts within the time limit and 5 seconds; it then ends the job with 4.
void expect_told(Communicator& group, const Context& context, const std::vector<std::string>& facts) {
  const std::chrono::seconds timeout(1);
  group.set_timeout(timeout);
  group.recorder()->set_step(12);
  note_phase(group, "forward");
  const FlightSubject subject(group, "block.3");
  const Clock::time_point begin = Clock::now();
  std::string message;
  try {
    group.all_reduce(context.zeros({1 << 18}, DType::f32));
    group.barrier().wait();  // who waits for a later call hears of the one that failed
  } catch (const CommError& error) {
    message = error.what();
  }
  require(Clock::now() - begin < timeout + std::chrono::seconds(5), "it took too long to tell \"{}\"", message);
  for (const std::string& fact : facts)
    require(message.find(fact) != std::string::npos, "expected \"{}\" in \"{}\"", fact, message);
  std::printf("ok: %s\n", message.c_str());
  std::fflush(stdout);
  MpiWorld::abort(4);
}

const std::vector<std::string> kStoppedFacts{
    "all_reduce of 1.00 MiB f32 in group of ",
    " timed out after 1s on rank ",
    " is stopped by a signal, in data",
    "; `kill -CONT ",
    "\n  rank  host",
    " of world (all_reduce of 1.00 MiB f32 for block.3, step 12); forward, step 12"};

/// A rank is stopped by a signal.
void stop_rank(Communicator& group, int rank) {
  if (group.rank() != rank) return;
  note_phase(group, "data");
  raise(SIGSTOP);
}

void run_stopped(MpiWorld& world, const Context& context) {
  stop_rank(world.world(), world.world().size() - 1);
  expect_told(world.world(), context, kStoppedFacts);
}

/// The first rank is stopped, so another one tells.
void run_stopped_first(MpiWorld& world, const Context& context) {
  stop_rank(world.world(), 0);
  expect_told(world.world(), context, kStoppedFacts);
}

/// Ranks of another host are reached by files alone.
void run_stopped_elsewhere(MpiWorld& world, const Context& context) {
  // The file is of the build; what an earlier test left there must not be taken for this one's.
  const std::filesystem::path folder = std::filesystem::current_path() / "flight_stopped_elsewhere";
  const FlightFolder files(world.world(), folder);
  stop_rank(world.world(), world.world().size() - 1);
  std::vector<std::string> facts = kStoppedFacts;
  facts.push_back("nought trace " + folder.string());
  for (int rank = 0; rank < world.world().size(); ++rank) facts.push_back(fmt::format("\n  {}     ", rank));
  expect_told(world.world(), context, facts);
}

/// A rank never gets out of its data.
void run_endless(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  if (group.rank() == group.size() - 1) {
    note_phase(group, "data");
    const Clock::time_point end = Clock::now() + std::chrono::seconds(50);  // the others end it before
    while (Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return;
  }
  expect_told(group, context,
              {" has not come to call 1 of world (all_reduce of 1.00 MiB f32 for block.3, step 12): in data, for "});
}

/// A rank issues another call.
void run_mismatch(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  const std::vector<std::string> facts{
      "call 1 of world differs: rank 0 issued all_reduce of 1.00 MiB f32 for block.3 in step 12, rank ",
      "issued broadcast of 8.00 MiB f32 at root 0", "; ranks must issue the same calls"};
  if (group.rank() < group.size() - 1) expect_told(group, context, facts);
  try {
    group.set_timeout(std::chrono::seconds(20));
    group.broadcast(context.zeros({2 << 20}, DType::f32), 0).wait();
  } catch (const CommError&) {
  }
  wait_for_ever();
}

/// Another operation of the same size: told before it runs.
void run_compared(MpiWorld& world, const Context& context) {
  Communicator& group = world.world();
  group.check_calls(true);
  const Tensor full = context.zeros({group.size() * 1024}, DType::f32), part = context.zeros({1024}, DType::f32);
  group.all_gather(part, full).wait();
  // Each rank sends as many rows as its number says, so these sizes differ.
  RowCounts counts{std::vector<int64_t>(static_cast<size_t>(group.size()), group.rank()), {}};
  for (int64_t peer = 0; peer < group.size(); ++peer) counts.received.push_back(peer);
  const int64_t sent = group.size() * group.rank(), received = group.size() * (group.size() - 1) / 2;
  group.all_to_all_v(context.zeros({sent, 8}, DType::f32), context.zeros({received, 8}, DType::f32), counts).wait();
  std::string message;
  try {
    const bool last = group.rank() == group.size() - 1;
    (last ? group.reduce_scatter(full, part) : group.all_gather(part, full)).wait();
  } catch (const CommError& error) {
    message = error.what();
  }
  const std::string expected = fmt::format(
      "call 3 of world differs: rank 0 issues all_gather of {0}.0 KiB f32 in step 0, rank {1} issues reduce_scatter of "
      "{0}.0 KiB f32 in step 0; ranks must issue the same calls",
      4 * group.size(), group.size() - 1);
  require(message == expected, "expected \"{}\", got \"{}\"", expected, message);
  std::printf("ok: %s\n", message.c_str());
  std::fflush(stdout);
  MpiWorld::abort(4);
}

using Case = void (*)(MpiWorld&, const Context&);
const std::map<std::string, Case> kCases{{"checks", run_checks},
                                         {"mesh", run_mesh},
                                         {"channels", run_channels},
                                         {"channel_throw", run_channel_throw},
                                         {"channel_timeout", run_channel_timeout},
                                         {"throw", run_throw},
                                         {"die", run_die},
                                         {"abort", run_abort},
                                         {"timeout", run_timeout},
                                         {"group_timeout", run_group_timeout},
                                         {"stopped", run_stopped},
                                         {"stopped_first", run_stopped_first},
                                         {"stopped_elsewhere", run_stopped_elsewhere},
                                         {"endless", run_endless},
                                         {"mismatch", run_mismatch},
                                         {"compared", run_compared}};

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

/// names: of cases that follow one another in the same processes, "mesh+channels".
void run_cases(const std::string& names, const MpiOptions& options) {
  const Context context = Context::cpu();
  MpiWorld world(context, options);
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, '+');) {
    const auto found = kCases.find(name);
    require<ConfigError>(found != kCases.end(), "no case is called \"{}\"", name);
    found->second(world, context);
    world.world().barrier().wait();
    if (world.world().rank() == 0) std::printf("ok: %s on %d ranks\n", name.c_str(), world.world().size());
  }
}

}  // namespace
}  // namespace nought

int main(int argc, char** argv) {
  try {
    nought::MpiOptions options;
    for (int i = 2; i < argc; ++i) nought::set_option(options, argv[i]);
    nought::run_cases(argc > 1 ? argv[1] : "checks", options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_comm_mpi: %s\n", error.what());
    nought::MpiWorld::abort(3);
  }
  return 0;
}
