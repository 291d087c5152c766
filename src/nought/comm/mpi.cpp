#include "nought/comm/mpi.h"

#include <cstdlib>
#include <exception>

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

void MpiWorld::join(const Context& context, const MpiOptions& options) {
  MpiEngine& engine = MpiEngine::instance();
  engine.initialize(options);
  MPI_Comm everyone, host;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &everyone), "MPI_Comm_dup");
  auto transport = std::make_unique<MpiTransport>(engine, everyone, context);

  check_mpi(MPI_Comm_split_type(everyone, MPI_COMM_TYPE_SHARED, transport->rank(), MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");

  constexpr int kNameLength = MPI_MAX_PROCESSOR_NAME;
  std::vector<char> names(static_cast<size_t>(kNameLength * transport->size()));
  char name[kNameLength] = {};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
  check_mpi(MPI_Allgather(name, kNameLength, MPI_CHAR, names.data(), kNameLength, MPI_CHAR, everyone), "MPI_Allgather");
  for (int rank = 0; rank < transport->size(); ++rank) {
    host_names_.emplace_back(names.data() + rank * kNameLength);
  }
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

}  // namespace nought
