#include "nought/parallel/pipeline_rules.h"

#include <algorithm>
#include <array>
#include <regex>
#include <string>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr std::array kPipelineSchedules{PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                        PipelineSchedule::interleaved, PipelineSchedule::zbh1, PipelineSchedule::zbv};

constexpr std::string_view kByType = "type:";

bool rounds_are_equal(int64_t micro_batches, int64_t ranks) {
  return micro_batches % std::max<int64_t>(1, micro_batches / ranks) == 0;
}

}  // namespace

std::string_view name_of(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return "GPipe";
    case PipelineSchedule::one_f_one_b:
      return "1F1B";
    case PipelineSchedule::interleaved:
      return "Interleaved1F1B";
    case PipelineSchedule::zbh1:
      return "ZBH1";
    case PipelineSchedule::zbv:
      return "ZBVZeroBubble";
  }
  return "";
}

PipelineSchedule parse_pipeline_schedule(std::string_view name) {
  std::string names;
  for (const PipelineSchedule each : kPipelineSchedules) {
    if (lower_case(std::string(name)) == lower_case(std::string(name_of(each)))) return each;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
  }
  fail<ConfigError>("pipeline_parallel_schedule = \"{}\" is no schedule; there are {}", one_line(name), names);
}

int64_t default_chunks(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::interleaved || schedule == PipelineSchedule::zbv ? 2 : 1;
}

void check_chunks(const Pipeline& pipeline) {
  const auto refuse = [&](std::string_view runs, std::string_view instead) {
    fail<ConfigError>("virtual_pipeline_size = {}: {} runs {} per rank; use {}", pipeline.chunks,
                      name_of(pipeline.schedule), runs, instead);
  };
  if (pipeline.schedule == PipelineSchedule::interleaved) {
    if (pipeline.chunks < 2) refuse("two stages or more", "2, or the schedule 1F1B");
  } else if (pipeline.schedule == PipelineSchedule::zbv) {
    if (pipeline.chunks != 2) refuse("two stages", "2");
  } else if (pipeline.chunks != 1) {
    refuse("one stage", "1, or the schedule Interleaved1F1B");
  }
}

void check_micro_batches(const Pipeline& pipeline, int64_t micro_batches) {
  require<ConfigError>(micro_batches >= 1, "{} micro-batches: a step has at least one", micro_batches);
  const int64_t ranks = pipeline.ranks;
  if (pipeline.schedule != PipelineSchedule::interleaved || rounds_are_equal(micro_batches, ranks)) return;
  int64_t less = micro_batches, more = micro_batches;
  while (!rounds_are_equal(less, ranks)) --less;
  while (!rounds_are_equal(more, ranks)) ++more;
  fail<ConfigError>(
      "{} micro-batches per step: Interleaved1F1B on {} pipeline ranks forwards them in {} equal rounds, which do not "
      "divide them; the nearest gradient_accumulation_steps that work are {} and {}",
      micro_batches, ranks, micro_batches / ranks, less, more);
}

std::string type_pattern(const std::string& method) {
  return method.starts_with(kByType) ? method.substr(kByType.size()) : "";
}

std::string parse_partition(const std::string& name) {
  if (name.starts_with(kByType)) {
    const std::string pattern = type_pattern(name);
    try {
      require<ConfigError>(!pattern.empty(), "pipeline partition \"{}\": write an expression behind \"type:\"", name);
      const std::regex tried(pattern, std::regex::icase);
    } catch (const std::regex_error&) {
      fail<ConfigError>("pipeline partition \"{}\": \"{}\" is not a regular expression", name, pattern);
    }
    return name;
  }
  if (name == "best") return "parameters";
  require<ConfigError>(name == "parameters" || name == "uniform" || name == "profile",
                       "pipeline partition \"{}\": it is \"parameters\", \"best\" (the same), \"uniform\", \"profile\" "
                       "or \"type:\" and a regular expression",
                       one_line(name));
  return name;
}

}  // namespace nought
