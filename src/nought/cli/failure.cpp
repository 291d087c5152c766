#include "nought/cli/failure.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/cli/launch_job.h"

namespace nought {

namespace {

// mpirun needs about a second to end the ranks after one left without MPI_Abort.
constexpr std::chrono::milliseconds kFirstWord{1500};

}  // namespace

std::string describe(const std::exception_ptr& failure) {
  if (!failure) return "the program ended itself without an exception";
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "out of memory: the system refused an allocation";
  } catch (const std::exception& error) {
    return fmt::format("internal error: {}", error.what());
  } catch (...) {
    return "internal error: an exception of an unknown type";
  }
}

void print_error(const std::string& message) {
  const std::optional<JobPlace> place = place_in_job();
  std::string line = "nought: error: ";
  if (place && place->rank != 0) {
    std::this_thread::sleep_for(kFirstWord);
    line += fmt::format("[rank {}] ", place->rank);
  }
  line += message;
  while (line.back() == '\n') line.pop_back();
  line += '\n';
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);  // in one piece, so that lines of several ranks do not mix
  std::fflush(stderr);
}

void catch_failures_of_threads() {
  std::set_terminate([] {
    print_error(describe(std::current_exception()));
    _exit(1);
  });
}

}  // namespace nought
