#include "nought/cli/launch_job.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "nought/base/host.h"

namespace nought {

namespace {

std::optional<int> integer_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) return std::nullopt;
  return static_cast<int>(value);
}

/// The names that each launcher gives to the rank and to the number of ranks.
struct Launcher {
  const char *rank, *size;
};
constexpr std::array kLaunchers{
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    Launcher{"PMI_RANK", "PMI_SIZE"},
    Launcher{"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
};

/// 0 if it does not tell.
int columns_of_terminal(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::optional<JobPlace> place_in_job() {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = integer_variable(launcher.rank), size = integer_variable(launcher.size);
    if (!rank || !size || *size < 1) continue;
    return JobPlace{*rank, *size, launched_on_host().value_or(*size)};
  }
  return std::nullopt;
}

std::optional<JobPlace> place_of_torchrun() {
  const std::optional<int> rank = integer_variable("RANK"), size = integer_variable("WORLD_SIZE");
  if (!rank || size.value_or(1) <= 1) return std::nullopt;
  return JobPlace{*rank, *size, launched_on_host().value_or(*size)};
}

int threads_per_rank() {
  if (const std::optional<int> threads = integer_variable("OMP_NUM_THREADS"); threads && *threads > 0) return *threads;
  const std::optional<JobPlace> place = place_in_job();
  return divide_cores(find_cores(), place ? place->local_size : 1);
}

int stdout_columns() {
  constexpr int kUsual = 80;  // where a terminal does not tell its width
  if (!place_in_job()) {
    if (isatty(STDOUT_FILENO) != 1) return 0;
    const int columns = columns_of_terminal(STDOUT_FILENO);
    return columns > 0 ? columns : kUsual;
  }
  const int at_start = integer_variable(kColumnsVariable).value_or(0);
  if (at_start == 0) return 0;
  // A rank on the launcher's host has the same controlling terminal, which may have been resized since.
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const int columns = terminal >= 0 ? columns_of_terminal(terminal) : 0;
  if (terminal >= 0) close(terminal);
  return columns > 0 ? columns : at_start;
}

}  // namespace nought
