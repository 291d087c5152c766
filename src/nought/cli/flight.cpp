#include "nought/cli/flight.h"

#include <chrono>

#include <fmt/format.h>
#include <unistd.h>

#include "nought/comm/first_rank.h"

namespace nought {

std::filesystem::path own_flight_folder(Communicator& world, const Context& context) {
  return found_by_first(world, context, [] { return fmt::format("flight-recorder.{}", getpid()); });
}

void watch_calls(Communicator& world, const RunPlan& plan) {
  world.set_timeout(std::chrono::seconds(plan.collective_timeout));
  world.check_calls(plan.check_calls);
}

}  // namespace nought
