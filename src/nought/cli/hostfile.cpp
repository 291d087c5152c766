#include "nought/cli/hostfile.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr int kMostSlots = 100'000;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

Host host_of(const std::vector<std::string>& words, const std::string& place, int line) {
  constexpr std::string_view kSlots = "slots=";
  require<ConfigError>(words.size() == 2 && words[1].starts_with(kSlots), "{}: expected \"HOST slots=N\"", place);
  const std::string_view text = std::string_view(words[1]).substr(kSlots.size());
  const std::optional<int> slots = number_in(text);
  require<ConfigError>(slots && 1 <= *slots && *slots <= kMostSlots,
                       "{}: host {}: slots: expected a number from 1 to {}, found \"{}\"", place, words[0], kMostSlots,
                       text);
  return {words[0], *slots, line};
}

/// What --include and --exclude say of a host: some of its slots, or none for all of them.
using Choice = std::map<std::string, std::set<int>>;

Choice parse_choice(const std::string& text, const char* option, const std::vector<Host>& hosts,
                    const std::string& file) {
  Choice choice;
  for (const std::string& part : split(text, '@')) {
    const size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == name; });
    if (host == hosts.end()) {
      std::vector<std::string> names;
      for (const Host& each : hosts) names.push_back(each.name);
      fail<ConfigError>("{} {}: {} has no host \"{}\"{}", option, text, file, name, did_you_mean(name, names));
    }
    require<ConfigError>(!choice.contains(name), "{} {}: host {} is named twice", option, text, name);
    std::set<int>& slots = choice[name];
    if (colon == std::string::npos) continue;
    for (const std::string& each : split(part.substr(colon + 1), ',')) {
      const std::optional<int> slot = number_in(each);
      require<ConfigError>(slot && *slot < host->slots, "{} {}: host {} has slots 0 to {}, found \"{}\"", option, text,
                           name, host->slots - 1, each);
      slots.insert(*slot);
    }
  }
  return choice;
}

/// What stands between the commas that no bracket encloses.
std::vector<std::string> outside_of_brackets(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// The hosts of "n[01-03,7]", or of a name alone. Numbers keep their leading zeros.
std::vector<std::string> names_of(const std::string& part, const std::string& nodes) {
  const size_t open = part.find('['), close = part.find(']');
  if (open == std::string::npos) return {part};
  require<ConfigError>(close != std::string::npos && close > open && part.find('[', close) == std::string::npos,
                       "SLURM_JOB_NODELIST: cannot read \"{}\"; write a host file and give it with --hostfile", nodes);
  std::vector<std::string> names;
  for (const std::string& range : split(part.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = range.find('-');
    const std::string begin = range.substr(0, dash), end = dash == std::string::npos ? begin : range.substr(dash + 1);
    const std::optional<int> first = number_in(begin), last = number_in(end);
    require<ConfigError>(first && last && *first <= *last && *last - *first < kMostSlots,
                         "SLURM_JOB_NODELIST: cannot read \"{}\"; write a host file and give it with --hostfile",
                         nodes);
    for (int number = *first; number <= *last; ++number)
      names.push_back(fmt::format("{}{:0{}}{}", part.substr(0, open), number, begin.size(), part.substr(close + 1)));
  }
  return names;
}

/// "2(x3),1" is 2, 2, 2, 1.
std::vector<int> task_counts(const std::string& text) {
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    const size_t times = part.find("(x");
    const std::optional<int> count = number_in(std::string_view(part).substr(0, times));
    const std::optional<int> repeated =
        times == std::string::npos ? std::optional(1)
                                   : number_in(std::string_view(part).substr(times + 2, part.size() - times - 3));
    require<ConfigError>(count && *count >= 1 && repeated && *repeated >= 1 && *repeated <= kMostSlots,
                         "SLURM_TASKS_PER_NODE: expected \"2(x3),1\" or the like, found \"{}\"", text);
    counts.insert(counts.end(), static_cast<size_t>(*repeated), *count);
  }
  return counts;
}

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : split(std::string(text), '\n')) {
    const std::string place = fmt::format("{}:{}", file, ++number);
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    Host host = host_of(words, place, number);
    const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == host.name; });
    require<ConfigError>(same == hosts.end(), "{}: host {} stands in line {} already", place, host.name,
                         same == hosts.end() ? 0 : same->line);
    hosts.push_back(std::move(host));
  }
  require<ConfigError>(!hosts.empty(), "{}: there is no host in it: expected lines \"HOST slots=N\"", file);
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& file) {
  const auto text = bytes_if_there(file);
  require<IoError>(text.has_value(), "--hostfile {}: there is no such file", file);
  return parse_hostfile(*text, file);
}

std::vector<Host> choose_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude,
                               const std::string& file) {
  require<ConfigError>(include.empty() || exclude.empty(), "--include and --exclude are both given: choose one");
  if (include.empty() && exclude.empty()) return hosts;
  const bool includes = !include.empty();
  const Choice choice =
      includes ? parse_choice(include, "--include", hosts, file) : parse_choice(exclude, "--exclude", hosts, file);
  std::vector<Host> chosen;
  for (Host host : hosts) {
    const auto named = choice.find(host.name);
    if (named == choice.end()) {
      if (includes) continue;
    } else {
      const int slots = named->second.empty() ? host.slots : static_cast<int>(named->second.size());
      host.slots = includes ? slots : host.slots - slots;
    }
    if (host.slots > 0) chosen.push_back(std::move(host));
  }
  require<ConfigError>(!chosen.empty(), "--exclude {} leaves no host of {}", exclude, file);
  return chosen;
}

std::vector<Host> hosts_of_slurm(const std::string& nodes, const std::string& tasks) {
  const std::vector<int> counts = task_counts(tasks);
  std::vector<Host> hosts;
  for (const std::string& part : outside_of_brackets(nodes))
    for (std::string& name : names_of(part, nodes)) {
      const size_t place = std::min(hosts.size(), counts.size() - 1);
      hosts.push_back({.name = std::move(name), .slots = counts[place]});
    }
  return hosts;
}

int total_slots(const std::vector<Host>& hosts) {
  int sum = 0;
  for (const Host& host : hosts) sum += host.slots;
  return sum;
}

std::string for_mpirun(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

}  // namespace nought
