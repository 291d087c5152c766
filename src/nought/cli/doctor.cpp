// nought doctor: whether this machine, or the hosts of a host file, can make a run.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/checkpoint/run_files.h"
#include "nought/cli/commands.h"
#include "nought/cli/host_check.h"
#include "nought/cli/host_links.h"
#include "nought/cli/launch.h"
#include "nought/cli/own_program.h"
#include "nought/cli/stop_signals.h"
#include "nought/cli/train_options.h"
#include "nought/cli/version.h"
#include "nought/io/file_format.h"
#include "nought/plan/predict.h"
#include "nought/plan/ready_run.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

constexpr FileFormat kDoctorFormat{"nought-doctor", 1};

struct DoctorOptions {
  TrainOptions run = {};
  bool json = false;
  std::string question;         // of another host's doctor; see HostQuestion
  bool measures_links = false;  // this is a rank of links_between(), or starts them
};

/// What was found.
struct Findings {
  std::vector<HostReport> hosts;
  RunNeeds needs;
  MeasuredLinks links;

  bool good() const {
    const auto well = [](const HostReport& report) { return report.problems.empty(); };
    return links.problem.empty() && std::all_of(hosts.begin(), hosts.end(), well);
  }
};

/// The hosts of --hostfile, or those of the batch system's allocation, or this machine.
std::vector<Host> hosts_to_check(const LaunchOptions& launch) {
  if (!launch.hostfile.empty()) return hosts_of(launch);
  require<ConfigError>(launch.include.empty() && launch.exclude.empty(),
                       "--include and --exclude choose among the hosts of --hostfile, which is not given");
  const char* nodes = std::getenv("SLURM_JOB_NODELIST");
  const char* tasks = std::getenv("SLURM_TASKS_PER_NODE");
  if (nodes != nullptr && *nodes != '\0') return hosts_of_slurm(nodes, tasks == nullptr ? "1" : tasks);
  return {{.name = host_name(), .slots = static_cast<int>(std::clamp<int64_t>(launch.ranks.value_or(1), 1, 100'000))}};
}

RunNeeds needs_of(const TrainOptions& options, const std::vector<Host>& hosts) {
  RunNeeds needs{.ranks = static_cast<int>(options.launch.ranks.value_or(0))};
  if (options.run_file.empty()) return needs;
  const int ranks = needs.ranks > 0 ? needs.ranks : total_slots(hosts);
  const RunPlan plan = with_what_fits(with_model_folder(options.plan(ranks)));
  needs.output_dir = plan.output_dir;
  needs.files = files_of_run(plan);
  const RankMemory memory = predict(model_config_of(plan), layout_of(plan)).most();
  needs.rank_bytes = memory.ram_peak > 0 ? memory.ram_peak : memory.peak_total;
  return needs;
}

OrderedJson json_of(const Findings& found) {
  OrderedJson hosts = OrderedJson::array();
  for (size_t i = 0; i < found.hosts.size(); ++i) {
    const HostReport& report = found.hosts[i];
    OrderedJson host{{"host", report.host.name}, {"slots", report.host.slots}, {"ranks", report.ranks}};
    host["reachable"] = report.facts.has_value();
    if (report.facts) {
      host["clock_seconds"] = report.clock;
      const OrderedJson facts = report.facts->json();  // items() refers to it
      for (const auto& [key, value] : facts.items())
        if (key != "sizes" && key != "refusal" && key != "reads" && key != "time") host[key] = value;
    }
    if (i < found.links.links.size())
      host["link"] = {{"to", found.hosts[(i + 1) % found.hosts.size()].host.name},
                      {"seconds", found.links.links[i].seconds},
                      {"bytes_per_second", found.links.links[i].bytes_per_second}};
    host["problems"] = report.problems, host["notes"] = report.notes;
    hosts.push_back(std::move(host));
  }
  OrderedJson json{{"format", kDoctorFormat.str()}, {"good", found.good()}};
  json["rank_bytes"] = found.needs.rank_bytes, json["hosts"] = std::move(hosts);
  json["links_problem"] = found.links.problem;
  return json;
}

/// What is well with a host.
std::string describe_host(const Findings& found, size_t index) {
  const HostReport& report = found.hosts[index];
  const HostFacts& facts = *report.facts;
  std::string text = fmt::format("{} rank{} on {} cores with {}, {} of memory free", report.ranks,
                                 report.ranks == 1 ? "" : "s", facts.cores, facts.isa, format_bytes(facts.memory));
  if (found.needs.rank_bytes > 0) text += fmt::format(" for {}", format_bytes(found.needs.rank_bytes * report.ranks));
  text += fmt::format(", {} in /dev/shm, {} open files", format_bytes(facts.shared), facts.open_files);
  if (report.clock != 0) text += fmt::format(", clock {:+.2f} s", report.clock);
  if (index < found.links.links.size()) {
    const HostLink& link = found.links.links[index];
    text += fmt::format("; to {} {:.3g} ms and {}", found.hosts[(index + 1) % found.hosts.size()].host.name,
                        1e3 * link.seconds, format_rate(link.bytes_per_second, "B/s"));
  }
  return text;
}

void print_text(const Findings& found) {
  size_t width = 0;
  for (const HostReport& report : found.hosts) width = std::max(width, report.host.name.size());
  fmt::print("nought {}\n", version());
  for (size_t i = 0; i < found.hosts.size(); ++i) {
    const HostReport& report = found.hosts[i];
    const bool good = report.problems.empty();
    const std::string what = good ? describe_host(found, i) : fmt::format("{}", fmt::join(report.problems, "; "));
    const std::string notes = report.notes.empty() ? "" : fmt::format("; {}", fmt::join(report.notes, "; "));
    fmt::print("{}\n", wrap(fmt::format("{:<{}}  {}  {}{}", report.host.name, width, good ? "ok   " : "wrong", what,
                                        good ? notes : ""),
                            stdout_columns(), static_cast<int>(width) + 9));
  }
  if (!found.links.problem.empty())
    fmt::print("{}\n", wrap("links: " + found.links.problem, stdout_columns(), static_cast<int>(width) + 9));
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<Host> hosts = hosts_to_check(options.run.launch);
  Findings found{.hosts = {}, .needs = needs_of(options.run, hosts), .links = {}};
  found.hosts = check_hosts(hosts, found.needs, own_program());
  const bool all_answer = std::all_of(found.hosts.begin(), found.hosts.end(),
                                      [](const HostReport& each) { return each.facts.has_value(); });
  if (hosts.size() > 1) {
    if (all_answer)
      found.links = links_between(hosts);
    else
      found.links.problem = "not measured, as not all hosts answer";
    if (found.links.signal != 0) return exit_code_of(found.links.signal);
  }
  if (options.json)
    fmt::print("{}\n", json_of(found).dump(2));
  else
    print_text(found);
  return found.good() ? 0 : 1;
}

int answer_question(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  require<ConfigError>(json.is_object(), "--answer takes what another nought doctor asks");
  fmt::print("{}\n", facts_of_this_host(HostQuestion::from(json)).json().dump());
  return 0;
}

int measure(const Invocation& invocation, const LaunchOptions& options) {
  constexpr std::chrono::seconds kTimeout{30};
  return launch(
      invocation, options, [] {},
      [&](Communicator& world, const Context& context) {
        world.set_timeout(kTimeout);
        const std::vector<HostLink> links = measure_links(world, context);
        if (world.rank() == 0) fmt::print("{}\n", links_line(links));
      });
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "doctor",
      "Checks the hosts of a run: program, clock, files, memory, limits, links; exits with 1 if one is wrong",
      {"nought doctor", "nought doctor --hostfile hosts", "nought doctor run.json --hostfile hosts --json"});
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option("RUN.json", options->run.run_file,
                      "The run that they are for: its files, its output_dir and the memory of a rank");
  add_override_option(*command, options->run.overrides, "training.output_dir=/shared/out");
  add_launch_options(*command, options->run.launch);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--answer", options->question)->group("");
  command->add_flag("--measure-links", options->measures_links)->group("");
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      if (!options->question.empty()) return answer_question(options->question);
      if (options->measures_links) return measure(invocation, options->run.launch);
      return run_doctor(*options);
    };
  });
}

}  // namespace nought
