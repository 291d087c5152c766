#include "nought/comm/mpi.h"

#include <array>
#include <cstdlib>
#include <exception>

#include "nought/comm/mpi_flight.h"
#include "nought/comm/mpi_transport.h"
#include "nought/comm/staged.h"
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

std::vector<std::string> names_of_hosts(MPI_Comm everyone) {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  std::vector<std::string> names;
  for (const auto& each : all_gathered(everyone, name)) names.emplace_back(each.data());
  return names;
}

}  // namespace

void MpiWorld::join(const Context& context, const MpiOptions& options) {
  const Context beneath = beneath_staging(context);
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
  auto neighbours = std::make_shared<const Neighbours>();
  if (options.shared_windows) neighbours = meet_neighbours(everyone, host, beneath);
  const auto recorder = meet_recorders(everyone, host, host_names_);
  auto transport = staged(std::make_unique<MpiTransport>(engine, everyone, beneath, neighbours), context);
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  if (transport->size() == 1) {
    world_ = make_self_communicator();
  } else {
    world_ = std::make_unique<StreamCommunicator>(std::move(transport), engine.stream(), recorder);
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

void MpiWorld::cancel(const std::string& why) { MpiEngine::instance().cancel(why); }
void MpiWorld::abort(int code) { MpiEngine::instance().abort(code); }

Event MpiNative::all_reduce(Tensor tensor) {
  return MpiEngine::instance().stream()->submit([=] {
    const MpiLock lock;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, tensor.data<float>(), static_cast<int>(tensor.numel()), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD),
              "MPI_Allreduce");
  });
}

Event MpiNative::reduce_scatter(Tensor full, Tensor shard) {
  return MpiEngine::instance().stream()->submit([=] {
    const MpiLock lock;
    check_mpi(MPI_Reduce_scatter_block(full.data<float>(), shard.data<float>(), static_cast<int>(shard.numel()),
                                       MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Reduce_scatter_block");
  });
}

Event MpiNative::all_gather(Tensor shard, Tensor full) {
  return MpiEngine::instance().stream()->submit([=] {
    const MpiLock lock;
    const int count = static_cast<int>(shard.numel());
    check_mpi(
        MPI_Allgather(shard.data<float>(), count, MPI_FLOAT, full.data<float>(), count, MPI_FLOAT, MPI_COMM_WORLD),
        "MPI_Allgather");
  });
}

}  // namespace nought
