#include "nought/cli/host_facts.h"

#include <algorithm>
#include <filesystem>

#include "nought/base/cores.h"
#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/timing.h"
#include "nought/cli/launch_limits.h"
#include "nought/cli/machine.h"
#include "nought/cli/version.h"
#include "nought/io/atomic_file.h"
#include "nought/kernels/isa.h"

namespace nought {

namespace fs = std::filesystem;

OrderedJson HostQuestion::json() const {
  return {{"files", files}, {"folder", folder}, {"nonce", nonce}, {"host", host}, {"ranks", ranks}};
}

HostQuestion HostQuestion::from(const Json& json) {
  return {.files = json.at("files").get<std::vector<std::string>>(),
          .folder = json.at("folder"),
          .nonce = json.at("nonce"),
          .host = json.at("host"),
          .ranks = json.at("ranks")};
}

OrderedJson HostFacts::json() const {
  return {{"version", version},
          {"cpu", cpu},
          {"isa", isa},
          {"cores", cores},
          {"memory_bytes", memory},
          {"shared_bytes", shared},
          {"open_files", open_files},
          {"time", time},
          {"sizes", sizes},
          {"reads", reads},
          {"refusal", refusal}};
}

HostFacts HostFacts::from(const Json& json) {
  try {
    return {.version = json.at("version"),
            .cpu = json.at("cpu"),
            .isa = json.at("isa"),
            .cores = json.at("cores"),
            .memory = json.at("memory_bytes"),
            .shared = json.at("shared_bytes"),
            .open_files = json.at("open_files"),
            .time = json.at("time"),
            .sizes = json.at("sizes").get<std::vector<int64_t>>(),
            .reads = json.at("reads"),
            .refusal = json.at("refusal")};
  } catch (const Json::exception& error) {
    fail<IoError>("the answer of a host: {}", error.what());
  }
}

int64_t size_seen(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return static_cast<int64_t>(entries_of(path, error).size());
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

HostFacts facts_of_this_host(const HostQuestion& question) {
  const LaunchLimits limits = find_launch_limits();
  const auto number = [](uint64_t bytes) {
    return static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
  };
  HostFacts facts{.version = version(),
                  .cpu = cpu_model(),
                  .isa = std::string(name_of(isa())),
                  .cores = find_cores().usable,
                  .memory = meminfo_bytes("MemAvailable"),
                  .shared = number(limits.shared_bytes),
                  .open_files = number(limits.open_files),
                  .time = seconds_since_1970()};
  for (const std::string& file : question.files) facts.sizes.push_back(size_seen(file));
  try {
    check_launch_limits(limits, question.ranks);
  } catch (const DeviceError& refusal) {
    facts.refusal = refusal.what();
  }
  if (question.folder.empty()) return facts;
  const fs::path folder = question.folder;
  try {
    facts.reads = bytes_if_there(folder / question.nonce) == question.nonce;
    write_text_atomically(folder / (question.nonce + "-" + question.host), question.nonce);
  } catch (const std::exception&) {  // the asker does not find the file, and says so
  }
  return facts;
}

}  // namespace nought
