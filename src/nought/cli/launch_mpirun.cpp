#include "nought/cli/launch_mpirun.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/process.h"
#include "nought/base/text.h"
#include "nought/cli/child_process.h"
#include "nought/cli/failure.h"
#include "nought/cli/host_probe.h"
#include "nought/cli/launch_filter.h"
#include "nought/cli/launch_limits.h"
#include "nought/cli/launch_output.h"
#include "nought/cli/launch_session.h"
#include "nought/cli/openmp_waiting.h"
#include "nought/cli/stop_signals.h"
#include "nought/comm/flight_keeper.h"

namespace nought {

namespace {

constexpr std::chrono::seconds kGrace{10};  // what mpirun gets to end its ranks after a signal

/// How a job ends: the wait status of mpirun, and the signals that came before.
struct Ending {
  int status = 0;
  int signal = 0;       // the last that was heeded; 0: none
  bool killed = false;  // it did not end in time
  bool abrupt = false;  // mpirun was told to end its ranks, or they got no time to finish their step
  std::chrono::steady_clock::time_point first = {};
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

/// Has mpirun end its ranks, who get no time to finish their step.
void end_now(pid_t child, int signal, Ending& ending) {
  if (!ending.abrupt) ending.deadline = std::chrono::steady_clock::now() + kGrace;
  ending.abrupt = true;
  kill(child, signal);
}

/// mpirun ends its ranks within a second of a SIGINT or SIGTERM, and passes SIGUSR1 on to them. So ranks that may
/// finish their step get the first signal as SIGUSR1.
void pass_on(int signal, pid_t child, bool finishes_step, Ending& ending) {
  if (signal == SIGUSR2) {  // no wish to end: the ranks write their flight recorders
    kill(child, SIGUSR2);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool first = ending.signal == 0;
  if (finishes_step && first && signal != SIGHUP) {
    ending.signal = signal, ending.first = now;
    kill(child, SIGUSR1);
    return;
  }
  if (finishes_step && !ending.abrupt && signal != SIGHUP && now - ending.first < kOneWish) return;
  ending.signal = signal;
  end_now(child, signal == SIGUSR1 && finishes_step ? SIGTERM : signal, ending);
}

/// Ends what mpirun did not: stopped ranks, and those of an mpirun that is stopped itself.
void kill_all(pid_t child) {
  for (const int pid : descendants_of(child)) kill(pid, SIGKILL);
  kill(-child, SIGKILL);
}

/// Waits for the child while its stderr flows through the filter, and its stdout through the relay. If nobody can read
/// what the ranks print, they end.
Ending attend(pid_t child, int pipe, const EndingSignals& signals, bool finishes_step, OutputRelay& output,
              MpirunFilter& filter, StandstillWatch& watch) {
  Ending ending;
  std::array<char, 4096> bytes;
  for (bool exited = false;;) {
    std::array<pollfd, 3> events{pollfd{pipe, POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0}, output.event()};
    poll(events.data(), events.size(), exited && !output.waits() ? 0 : 100);
    output.serve(events[2]);
    ssize_t count = 0;
    if (events[0].revents & POLLIN) count = read(pipe, bytes.data(), bytes.size());
    if (count > 0 && output.failure() == 0)
      write_all(STDERR_FILENO, filter.feed({bytes.data(), static_cast<size_t>(count)}));
    const int signal = signals.take();
    if (signal != 0 && !exited) pass_on(signal, child, finishes_step, ending);
    if (output.failure() != 0 && !exited && !ending.abrupt) end_now(child, SIGTERM, ending);
    const bool stands_still = watch.standstill() > kStandstill && watch.begun();
    if (ending.signal != 0 && !exited && !ending.abrupt && stands_still) end_now(child, SIGTERM, ending);
    const auto now = std::chrono::steady_clock::now();
    // A daemon behind a cut link does not answer when mpirun ends the ranks because one has failed.
    if (filter.saw_error()) ending.deadline = std::min(ending.deadline, now + kGrace);
    if (!exited && now > ending.deadline) ending.killed = true, kill_all(child);
    const bool all_said = count <= 0 && !output.waits() && events[2].revents == 0;
    if (exited && (all_said || signal != 0)) return ending;
    if (!exited) exited = waitpid(child, &ending.status, WNOHANG) == child;
  }
}

/// The exit code of a job whose output cannot be written. `| head` has what it wants, which is no error.
int lost_output(int reason, bool quiet) {
  if (reason == EPIPE && quiet) return exit_code_of(SIGPIPE);
  print_error(fmt::format("standard output: cannot write: {}", std::strerror(reason)));
  return 1;
}

/// Whether the ranks came to their end by themselves, if a signal was passed on: they stopped after their step, or had
/// nothing left to do. A rank that has not begun to train says nothing; the signal kills it, or mpirun before it starts
/// any, which then exits with 0 all the same.
bool ended_by_themselves(const Ending& ending, int code, const MpirunFilter& filter) {
  return !ending.abrupt && filter.saw_stop() && (code == 0 || code == exit_code_of(SIGUSR1));
}

bool user_set(const std::string& name) { return std::getenv(name.c_str()) != nullptr; }

}  // namespace

MpirunCommand mpirun_command(const std::string& mpirun, const MpirunJob& job, const Cores& cores, bool allocated) {
  const bool one_machine = job.hosts.empty() && !allocated;
  MpirunCommand command{{mpirun}, {}};
  auto add = [&](std::initializer_list<std::string> arguments) {
    command.arguments.insert(command.arguments.end(), arguments);
  };
  auto set_default = [&](const std::string& name, const std::string& value) {
    if (!user_set(name)) command.environment.push_back(name + "=" + value);
  };

  if (job.ranks > 0) add({"-n", std::to_string(job.ranks)});
  if (!job.hosts.empty()) add({"--host", for_mpirun(job.hosts)});
  if (one_machine && job.ranks <= cores.usable) {
    add({"--map-by", fmt::format("slot:PE={}", cores.usable / job.ranks), "--bind-to", "core"});
  } else {
    add({"--bind-to", "none"});
  }
  if (one_machine && job.ranks > cores.usable) add({"--oversubscribe"});
  if (one_machine) {
    set_default("OMP_NUM_THREADS", std::to_string(std::max(1, cores.usable / job.ranks)));
    set_default("OMPI_MCA_pml", "ob1");  // shared memory alone: no network devices are looked for
    set_default("OMPI_MCA_btl", "self,vader");
  }
  if (!job.hosts.empty()) {  // daemons see within 20 s that the link between them is cut, and end
    set_default("OMPI_MCA_oob_tcp_keepalive_time", "10");
    set_default("OMPI_MCA_oob_tcp_keepalive_intvl", "2");
    set_default("OMPI_MCA_oob_tcp_keepalive_probes", "5");
  }
  for (const char* name : {"OMP_NUM_THREADS", "DEEPSPEED_TIMEOUT", "TORCH_DISTRIBUTED_DEBUG", kSupervisedVariable})
    if (user_set(name)) add({"-x", name});
  if (!user_set(kWaitPolicyVariable)) {
    set_default(kSpinVariable, kSpinRounds);
    add({"-x", kSpinVariable});
  }
  add({"-x", kColumnsVariable, "-x", kFlightKeeperVariable, job.program});
  command.arguments.insert(command.arguments.end(), job.arguments.begin(), job.arguments.end());

  set_default(kColumnsVariable, std::to_string(stdout_columns()));
  // Containers run as root; mpirun refuses that unless both are set.
  set_default("OMPI_ALLOW_RUN_AS_ROOT", "1");
  set_default("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  set_default("OMPI_MCA_mpi_yield_when_idle", "1");  // a rank that waits leaves the core to those that compute
  set_default("OMPI_MCA_orte_base_help_aggregate", "0");
  return command;
}

bool in_allocation() { return user_set("SLURM_JOB_ID") || user_set("PBS_JOBID") || user_set("LSB_JOBID"); }

std::string find_mpirun() {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/mpirun";
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  fail<ConfigError>(
      "several ranks are started by mpirun, which is not in PATH; install Open MPI (Debian: apt install openmpi-bin), "
      "or "
      "leave out --ranks");
}

int run_mpirun(const MpirunJob& job) {
  const bool allocated = in_allocation();
  MpirunCommand command = mpirun_command(find_mpirun(), job, find_cores(), allocated);
  const bool one_machine = job.hosts.empty() && !allocated;
  check_launch_limits(find_launch_limits(), one_machine ? job.ranks : 1);
  std::optional<LaunchSession> session;  // mpirun's folders here; other machines have their own
  if (one_machine) session.emplace();
  if (session)
    for (std::string& variable : session->environment()) command.environment.push_back(std::move(variable));
  for (char** variable = environ; *variable != nullptr; ++variable) command.environment.emplace_back(*variable);

  // A supervisor keeps the pages itself, and sees that nothing moves.
  std::optional<FlightKeeper> keeper;
  const FlightKeeper none(0);
  if (!user_set(kFlightKeeperVariable)) {
    keeper.emplace(job.ranks > 0 ? job.ranks : total_slots(job.hosts));
    command.environment.push_back(keeper->variable());
  }
  StandstillWatch watch(keeper ? *keeper : none);

  const EndingSignals signals;
  Pipe out, err;
  const pid_t child = start_child("mpirun",
                                  {.path = command.arguments[0],
                                   .arguments = std::move(command.arguments),
                                   .environment = std::move(command.environment),
                                   .out = out.write_end(),
                                   .err = err.write_end()},
                                  signals);
  out.close_write_end(), err.close_write_end();
  struct sigaction ignored {
  }, on_closed_pipe{};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &on_closed_pipe);  // the relay sees EPIPE instead, and ends the ranks in order

  OutputRelay output(out.read_end(), STDOUT_FILENO);
  MpirunFilter filter;
  const Ending ending = attend(child, err.read_end(), signals, job.finishes_step, output, filter, watch);
  if (output.failure() != 0) return lost_output(output.failure(), on_closed_pipe.sa_handler != SIG_IGN);
  write_all(STDERR_FILENO, filter.finish());
  const int code = WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : exit_code_of(WTERMSIG(ending.status));
  if (ending.killed && ending.signal == 0 && filter.saw_error()) return 1;
  if (ending.signal != 0 && ended_by_themselves(ending, code, filter))
    return code == 0 ? 0 : exit_code_of(ending.signal);
  if (ending.signal != 0 && (ending.abrupt || !filter.saw_error())) {
    print_error(fmt::format("stopped by signal {} ({})", ending.signal, strsignal(ending.signal)));
    return exit_code_of(ending.signal);
  }
  if (code != 0 && !filter.saw_error()) {
    std::string reason = filter.blames_hosts() ? describe_silent(silent_hosts(job.hosts)) : "";
    if (reason.empty()) reason = filter.reason();
    print_error(reason.empty() ? fmt::format("the ranks ended with exit code {} and no message", code) : reason);
  }
  return code;
}

}  // namespace nought
