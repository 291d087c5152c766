// How long collectives may take, and whether they are compared before they run.
#include <cstdlib>

#include "nought/base/text.h"
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// What the environment says, or "".
std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

/// The variables are DeepSpeed's and torch's. A key of RUN.json has precedence.
void resolve_collectives(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  auto timeout = r.training("ddp_timeout", t.ddp_timeout);
  if (const std::string minutes = variable("DEEPSPEED_TIMEOUT"); !timeout.given && !minutes.empty()) {
    const bool number = minutes.find_first_not_of("0123456789") == std::string::npos && minutes.size() < 7;
    require<ConfigError>(number, "DEEPSPEED_TIMEOUT: expected minutes, as \"30\", found \"{}\"", one_line(minutes));
    timeout = {std::stoll(minutes) * 60, true, "DEEPSPEED_TIMEOUT", "DEEPSPEED_TIMEOUT=" + minutes};
  }
  require_at_least<int64_t>(timeout, 1);
  constexpr int64_t kYear = 365 * 24 * 3600;  // what clocks count is far from its end
  require<ConfigError>(timeout.value <= kYear, "{}: expected at most {} seconds, got {}", timeout.place, kYear,
                       timeout.value);
  r.plan.collective_timeout = timeout.given ? r.note("ddp_timeout", timeout) : timeout.value;

  auto debug = r.training("distributed_debug", t.distributed_debug);
  if (const std::string level = lower_case(variable("TORCH_DISTRIBUTED_DEBUG")); !debug.given && !level.empty()) {
    if (const auto value = enum_named<DistributedDebug>(level))
      debug = {*value, true, "TORCH_DISTRIBUTED_DEBUG", "TORCH_DISTRIBUTED_DEBUG"};
    require<ConfigError>(debug.given, "TORCH_DISTRIBUTED_DEBUG: expected OFF, INFO or DETAIL, found \"{}\"",
                         one_line(level));
  }
  r.plan.check_calls = debug.value == DistributedDebug::detail;
  if (debug.given) r.plan.resolved.push_back({"distributed_debug", std::string(enum_name(debug.value)), debug.reason});
}

}  // namespace nought
