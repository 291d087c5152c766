#include "nought/comm/mpi.h"

#include <array>
#include <cstdlib>
#include <exception>
#include <type_traits>

#include "nought/comm/mpi_transport.h"
#include "nought/comm/stream_communicator.h"

namespace nought {

bool launched_by_mpi() {
  const auto set = [](const char* name) { return std::getenv(name) != nullptr; };
  return set("OMPI_COMM_WORLD_SIZE") || set("PMIX_RANK") || set("PMI_RANK") || (set("SLURM_PROCID") && set("PMI_FD"));
}

MpiWorld::MpiWorld(const Context& context, const MpiOptions& options)
    : exceptions_at_birth_(std::uncaught_exceptions()) {
  MpiEngine::instance().stream()->submit([&] { join(context, options); }).wait();
}

namespace {

/// What every rank of a communicator says.
template <class T>
std::vector<T> all_of(MPI_Comm ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  int size = 0;
  check_mpi(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  std::vector<T> all(static_cast<size_t>(size));
  check_mpi(MPI_Allgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, ranks), "MPI_Allgather");
  return all;
}

/// Windows among the ranks of `host`, if every host of the job has them.
std::shared_ptr<const Neighbours> meet_neighbours(MPI_Comm everyone, MPI_Comm host, const Context& context,
                                                  bool shared_windows) {
  struct Place {
    int host = 0, local_rank = 0, local_size = 1;
    bool has_windows = false;
  };
  auto neighbours = std::make_shared<Neighbours>();
  Place mine;
  check_mpi(MPI_Comm_rank(host, &mine.local_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &mine.local_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(everyone, &mine.host), "MPI_Comm_rank");
  mine.host = all_of(host, mine.host)[0];  // named after its first rank
  if (shared_windows) neighbours->windows = SharedWindows::create(host, context);
  mine.has_windows = shared_windows && (mine.local_size == 1 || neighbours->windows);
  const std::vector<Place> places = all_of(everyone, mine);
  int most_local_ranks = 1;
  for (const Place& place : places) {
    if (!place.has_windows) return std::make_shared<Neighbours>();
    most_local_ranks = std::max(most_local_ranks, place.local_size);
    neighbours->host.push_back(place.host);
    neighbours->local_rank.push_back(place.local_rank);
  }
  neighbours->slot_bytes = shared_slot_bytes(most_local_ranks);
  return neighbours;
}

std::vector<std::string> names_of_hosts(MPI_Comm everyone) {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  std::vector<std::string> names;
  for (const auto& each : all_of(everyone, name)) names.emplace_back(each.data());
  return names;
}

}  // namespace

void MpiWorld::join(const Context& context, const MpiOptions& options) {
  MpiEngine& engine = MpiEngine::instance();
  engine.initialize(options);
  MPI_Comm everyone, host;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &everyone), "MPI_Comm_dup");
  check_mpi(MPI_Comm_split_type(everyone, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
  if (options.ranks_per_host > 0) {
    MPI_Comm whole = host;
    check_mpi(MPI_Comm_split(whole, local_rank_ / options.ranks_per_host, /*key=*/0, &host), "MPI_Comm_split");
    check_mpi(MPI_Comm_free(&whole), "MPI_Comm_free");
  }
  host_names_ = names_of_hosts(everyone);
  auto transport = std::make_unique<MpiTransport>(engine, everyone, context,
                                                  meet_neighbours(everyone, host, context, options.shared_windows));
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  if (transport->size() == 1) {
    world_ = make_self_communicator();
  } else {
    world_ = std::make_unique<StreamCommunicator>(std::move(transport), engine.stream());
  }
}

MpiWorld::~MpiWorld() {
  MpiEngine& engine = MpiEngine::instance();
  if (std::uncaught_exceptions() > exceptions_at_birth_) engine.cancel();
  world_.reset();
  try {
    engine.stream()->submit([&] { engine.finalize(); }).wait();
  } catch (const CommError&) {
    // A peer did not come. mpirun sees a process that left MPI without saying so, and ends the job with an error.
  }
}

void MpiWorld::abort(int code) { MpiEngine::instance().abort(code); }

Event MpiOwn::all_reduce(Tensor tensor) {
  return MpiEngine::instance().stream()->submit([=] {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, tensor.data<float>(), static_cast<int>(tensor.numel()), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD),
              "MPI_Allreduce");
  });
}

Event MpiOwn::reduce_scatter(Tensor full, Tensor shard) {
  return MpiEngine::instance().stream()->submit([=] {
    check_mpi(MPI_Reduce_scatter_block(full.data<float>(), shard.data<float>(), static_cast<int>(shard.numel()),
                                       MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Reduce_scatter_block");
  });
}

Event MpiOwn::all_gather(Tensor shard, Tensor full) {
  return MpiEngine::instance().stream()->submit([=] {
    const int count = static_cast<int>(shard.numel());
    check_mpi(
        MPI_Allgather(shard.data<float>(), count, MPI_FLOAT, full.data<float>(), count, MPI_FLOAT, MPI_COMM_WORLD),
        "MPI_Allgather");
  });
}

}  // namespace nought
