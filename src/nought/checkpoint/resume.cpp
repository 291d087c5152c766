#include "nought/checkpoint/resume.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/checkpoint/run_files.h"
#include "nought/io/files.h"
#include "nought/io/foreign_run.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// "steps 20, 40", for messages.
std::string steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const fs::path& checkpoint : list_checkpoints(folder)) steps.push_back(*checkpoint_step(checkpoint));
  return steps.empty() ? "no checkpoint" : fmt::format("checkpoints of steps {}", fmt::join(steps, ", "));
}

}  // namespace

fs::path resume_point(const RunPlan& plan) {
  const std::string& from = plan.resume_from;
  if (from.empty()) return last_checkpoint(plan.output_dir);
  if (std::all_of(from.begin(), from.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
    for (const fs::path& checkpoint : list_checkpoints(plan.output_dir))
      if (fmt::format("{}", *checkpoint_step(checkpoint)) == from) return checkpoint;
    fail<IoError>("nothing to resume: {} holds {}, not of step {}", plan.output_dir, steps_in(plan.output_dir), from);
  }
  if (is_checkpoint(from)) return fs::path(from).has_filename() ? fs::path(from) : fs::path(from).parent_path();
  if (holds_foreign_run(from)) return from;
  const std::vector<fs::path> checkpoints = list_checkpoints(from);
  const std::string part = checkpoints.empty() ? describe_part_of_foreign_run(from) : "";
  require<IoError>(part.empty(), "nothing to resume: {}", part);
  require<IoError>(!checkpoints.empty(), "nothing to resume: {} is neither a checkpoint nor a folder that holds one",
                   from);
  return checkpoints.back();
}

std::string describe_incomplete_after(const fs::path& point) {
  const std::optional<int64_t> step = checkpoint_step(point);
  std::vector<std::string> names;
  if (step)
    for (const fs::path& path : incomplete_checkpoints(fs::absolute(point).parent_path()))
      if (*checkpoint_step(path) > *step) names.push_back(path.filename().string());
  if (names.empty()) return "";
  return fmt::format("{} behind it {} no manifest.json and {} not complete: the run goes back to {}", some_of(names),
                     names.size() == 1 ? "has" : "have", names.size() == 1 ? "is" : "are", point.string());
}

bool lies_in(const fs::path& checkpoint, const fs::path& folder) {
  std::error_code ignored;
  return fs::equivalent(fs::absolute(checkpoint / "..").lexically_normal(), folder, ignored);
}

std::vector<fs::path> checkpoints_of_others(const fs::path& point, const fs::path& output_dir) {
  std::vector<fs::path> others = list_checkpoints(output_dir);
  if (!lies_in(point, output_dir) || !is_checkpoint(point)) return others;
  const std::optional<int64_t> named = checkpoint_step(point);
  const int64_t step = named ? *named : read_checkpoint_info(point).step;
  std::erase_if(others, [&](const fs::path& each) { return *checkpoint_step(each) <= step; });
  return others;
}

std::string leave_others(const fs::path& point, const fs::path& output_dir, bool keep) {
  const std::vector<fs::path> others = checkpoints_of_others(point, output_dir);
  if (others.empty()) return "";
  std::vector<std::string> names;
  if (!keep) {
    for (const fs::path& each : others) remove_checkpoint(each);
    return "";
  }
  int number = 1;
  while (fs::exists(output_dir / fmt::format("rewound-{}", number))) ++number;
  const fs::path aside = output_dir / fmt::format("rewound-{}", number);
  with_io_errors(aside, [&] {
    fs::create_directory(aside);
    // The latest goes last: if this is cut, the folder still shows the run that was there, and can be rewound again.
    for (const fs::path& each : others) {
      fs::rename(each, aside / each.filename());
      names.push_back(each.filename().string());
    }
  });
  return fmt::format("{} behind step {} lie{} in {} now: remove that folder if you do not need {}", some_of(names),
                     checkpoint_step(point).value_or(0), names.size() == 1 ? "s" : "", aside.string(),
                     names.size() == 1 ? "it" : "them");
}

}  // namespace nought
