#include "nought/io/foreign_run.h"

#include <fmt/format.h>

#include "nought/base/open_file.h"
#include "nought/io/dcp_folder.h"
#include "nought/io/deepspeed_checkpoint.h"
#include "nought/io/deepspeed_files.h"

namespace nought {

bool holds_foreign_run(const std::filesystem::path& folder) {
  return holds_deepspeed_checkpoint(folder) || holds_dcp(folder);
}

namespace {

namespace fs = std::filesystem;

/// The least name of an entry of a folder for which `wanted` holds; "" if there is none.
template <class Wanted>
std::string first_entry(const fs::path& folder, const Wanted& wanted) {
  std::string first;
  std::error_code ignored;
  for (const fs::directory_entry& each : entries_of(folder, ignored))
    if (const std::string name = each.path().filename().string();
        wanted(each.path()) && (first.empty() || name < first))
      first = name;
  return first;
}

}  // namespace

std::string describe_part_of_foreign_run(const fs::path& folder) {
  std::error_code ignored;
  const std::string chunks = first_entry(folder, [](const fs::path& path) { return path.extension() == ".distcp"; });
  if (!chunks.empty())
    return fmt::format("{}: holds {} without the .metadata that describes it: copy the whole folder", folder.string(),
                       chunks);
  const auto is_universal = [&](const fs::path& path) { return fs::exists(path / "fp32.pt", ignored); };
  if (!first_entry(folder / "zero", is_universal).empty())
    return fmt::format("{}: holds zero/, and no mp_rank_00_model_states.pt beside it: copy the whole folder",
                       folder.string());
  const std::string step = first_entry(folder, [](const fs::path& path) { return !deepspeed_files(path).empty(); });
  if (!step.empty())
    return fmt::format("{}: holds {}, and no file \"latest\" that names the step to read: write its name there",
                       folder.string(), step);
  return "";
}

ForeignRun read_foreign_run(const std::filesystem::path& folder, const WholeShapes& shapes) {
  return holds_deepspeed_checkpoint(folder) ? read_deepspeed_run(folder, shapes) : read_dcp_run(folder);
}

}  // namespace nought
