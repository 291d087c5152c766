#include "nought/cli/launch.h"

#include <future>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/cli/device.h"
#include "nought/cli/failure.h"
#include "nought/cli/launch_mpirun.h"
#include "nought/cli/openmp_waiting.h"
#include "nought/cli/own_program.h"
#include "nought/comm/common_isa.h"
#include "nought/comm/linked.h"
#include "nought/comm/mpi.h"
#include "nought/comm/self.h"
#include "nought/tensor/address_space.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace nought {

namespace {

void check_launch(const LaunchOptions& options, const std::optional<JobPlace>& place) {
  if (options.ranks) {
    require<ConfigError>(*options.ranks >= 1, "--ranks must be at least 1, got {}", *options.ranks);
    require<ConfigError>(*options.ranks <= std::numeric_limits<int>::max(), "--ranks {} is too large", *options.ranks);
    require<ConfigError>(!place || *options.ranks == place->size,
                         "--ranks is {}, but the job that this process belongs to has {} ranks; leave out --ranks",
                         *options.ranks, place ? place->size : 0);
  }
  const std::optional<JobPlace> torchrun = place ? std::nullopt : place_of_torchrun();
  require<ConfigError>(
      !torchrun,
      "RANK={} and WORLD_SIZE={} say that torchrun or accelerate started this process; each would train "
      "for itself. Start nought alone with --ranks {}, or by mpirun or srun, or unset both variables",
      torchrun ? torchrun->rank : 0, torchrun ? torchrun->size : 0, torchrun ? torchrun->size : 0);
}

/// How many of the threads the system grants at once, with the calling one. libgomp ends the process without one of
/// them. Results do not depend on their number.
[[maybe_unused]] int threads_that_start(int wanted) {
  std::vector<std::thread> others;
  std::promise<void> all_started;
  const std::shared_future<void> gate = all_started.get_future().share();
  try {
    while (static_cast<int>(others.size()) + 1 < wanted) others.emplace_back([gate] { gate.wait(); });
  } catch (const std::system_error&) {
    // There is no room for more.
  }
  all_started.set_value();
  for (std::thread& each : others) each.join();
  return static_cast<int>(others.size()) + 1;
}

void run_in_job(const DeviceChoice& device, const LinkOptions& links, int rank, const RankBody& body) {
  try {
    const Context context = device.context(rank);
    MpiWorld world(context);
    const std::string difference = use_common_isa(world.world(), context, world.host_names());
    if (!difference.empty() && world.world().rank() == 0) fmt::print("note: {}\n", difference);
    link_devices(world.world(), context, links);
    body(world.world(), context);
  } catch (...) {
    print_error(describe(std::current_exception()));
    MpiWorld::abort(code_of(std::current_exception()));
  }
}

}  // namespace

void use_threads([[maybe_unused]] int threads) {
#ifdef _OPENMP
  omp_set_num_threads(address_space_note().empty() ? threads : threads_that_start(threads));
#endif
}

void add_launch_options(CLI::App& command, LaunchOptions& options) {
  command.add_option("--ranks", options.ranks, "Number of processes, on this machine unless --hostfile is given")
      ->type_name("N");
  command.add_option("--hostfile", options.hostfile, "Machines to run on, one \"HOST slots=N\" per line")
      ->type_name("FILE");
  command
      .add_option("--include", options.include, "With --hostfile: run on these hosts and slots alone, as in h1@h2:0,2")
      ->type_name("HOSTS");
  command.add_option("--exclude", options.exclude, "With --hostfile: run without these hosts and slots")
      ->type_name("HOSTS");
}

std::vector<Host> hosts_of(const LaunchOptions& options) {
  require<ConfigError>(!options.hostfile.empty() || (options.include.empty() && options.exclude.empty()),
                       "--include and --exclude choose among the hosts of --hostfile, which is not given");
  if (options.hostfile.empty()) return {};
  std::vector<Host> hosts =
      choose_hosts(read_hostfile(options.hostfile), options.include, options.exclude, options.hostfile);
  require<ConfigError>(!options.ranks || *options.ranks <= total_slots(hosts),
                       "--ranks {}: {} has {} slots on {} hosts; give fewer ranks, or more slots in it",
                       options.ranks.value_or(0), options.hostfile, total_slots(hosts), hosts.size());
  return hosts;
}

int launch(const Invocation& invocation, const LaunchOptions& options, const std::function<void()>& validate,
           const RankBody& body) {
  const std::optional<JobPlace> place = place_in_job();
  check_launch(options, place);
  const std::vector<Host> hosts = place ? std::vector<Host>{} : hosts_of(options);
  const DeviceChoice device(options.device, invocation.on_gpu);
  const LinkOptions links = link_options(options.collectives);
  require<ConfigError>(options.collectives == "auto" || names_gpu(options.device),
                       "--collectives {} says how tensors travel between GPUs, and --device {} has none: give --device "
                       "cuda, or leave it out",
                       options.collectives, options.device);
  const bool starts_ranks = !place && (options.ranks.value_or(1) > 1 || !options.hostfile.empty());
  if (!place && !starts_ranks) bound_openmp_waiting(own_program(), invocation.arguments, threads_per_rank());
  if (!place) validate();
  if (starts_ranks)
    return run_mpirun({.ranks = static_cast<int>(options.ranks.value_or(0)),
                       .hosts = hosts,
                       .program = own_program(),
                       .arguments = invocation.arguments,
                       .finishes_step = options.finishes_step});
  use_threads(threads_per_rank());
  if (place && place->size > 1) {
    run_in_job(device, links, place->rank, body);
  } else {
    const Context context = device.context(/*rank=*/0);
    body(*make_recorded_self_communicator(), context);
  }
  return 0;
}

}  // namespace nought
