// What a host says of itself to `nought doctor` on another: its program, its CPU, its clock, its limits, and what it
// sees of the files of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/json.h"

namespace nought {

/// What a host is asked. It goes over the command line of another program of the same version.
struct HostQuestion {
  std::vector<std::string> files = {};  // that the run reads; folders too
  std::string folder = {};              // where the file `nonce` is read and a file NONCE-HOST written; "": nowhere
  std::string nonce = {};
  std::string host = {};  // how the asker calls the host
  int ranks = 1;          // that it will have

  OrderedJson json() const;
  static HostQuestion from(const Json& json);
};

struct HostFacts {
  std::string version = {}, cpu = {}, isa = {};
  int64_t cores = 0, memory = 0, shared = 0, open_files = 0;  // bytes of memory and of /dev/shm that are free
  double time = 0;                                            // seconds since 1970, by its clock
  std::vector<int64_t> sizes = {};  // bytes of each file, entries of each folder; -1: it is not there
  bool reads = false;               // the asker's file, in the folder
  std::string refusal = {};         // why so many ranks cannot be started there; ""

  OrderedJson json() const;
  /// IoError for what is no such answer.
  static HostFacts from(const Json& json);
};

/// Bytes of a file, entries of a folder; -1: it is not there.
int64_t size_seen(const std::string& path);

/// Looks at this host, and writes its file into the folder.
HostFacts facts_of_this_host(const HostQuestion& question);

}  // namespace nought
