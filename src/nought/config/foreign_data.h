// The data files that another program's settings name, where they are on this machine.
//
// Non-goals: data sets of the hub, which are not fetched: each is told with its line.
#pragma once

#include <string>
#include <vector>

#include "nought/config/foreign_settings.h"

namespace nought {

struct ForeignFiles {
  std::vector<std::string> files;
  std::vector<std::string> missing;  // "FILE:LINE: what: why"
};

/// What a setting names: a path, a list of paths, names of dataset_info.json (LLaMA-Factory), axolotl's list of data
/// sets.
ForeignFiles find_foreign_files(const ForeignSettings& settings, const ForeignSetting& setting);

/// A path that holds from the current directory, of a file that is there or beside the settings; "" if it is nowhere.
std::string found_file(const ForeignSettings& settings, const std::string& path);

}  // namespace nought
