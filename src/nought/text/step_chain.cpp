#include "nought/text/step_chain.h"

#include "nought/base/text.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr size_t kMostSteps = 64, kLongestReplacement = 64;
constexpr int kDeepestSequence = 4;
constexpr size_t kMostGrowth = 16, kSpareBytes = size_t{64} << 10;

using AddStep = std::function<void(const JsonView&, const std::string&)>;

void walk(const JsonView& json, std::string_view list_key, int depth, size_t& count, const AddStep& add) {
  if (json.is_null()) return;
  const std::string& type = json["type"].string();
  if (type != "Sequence") {
    json.check(++count <= kMostSteps, "more than {} steps", kMostSteps);
    return add(json, type);
  }
  json.check(depth < kDeepestSequence, "Sequences nest deeper than {} levels", kDeepestSequence);
  const JsonView steps = json[list_key];
  steps.check(steps.json().size() <= kMostSteps, "has {} steps, at most {} are taken", steps.json().size(), kMostSteps);
  for (const JsonView& step : steps.list()) walk(step, list_key, depth + 1, count, add);
}

}  // namespace

void for_each_step(const JsonView& json, std::string_view list_key, const AddStep& add) {
  size_t count = 0;
  walk(json, list_key, 0, count, add);
}

std::string replacement_text(const JsonView& json) {
  const std::string& text = json.string();
  json.check(text.size() <= kLongestReplacement, "has {} bytes, at most {} are taken", text.size(),
             kLongestReplacement);
  json.check(is_valid_utf8(text), "is not valid UTF-8");
  return text;
}

void GrowthLimit::check(size_t bytes, std::string_view chain) const {
  if (bytes <= before_ * kMostGrowth + kSpareBytes) return;
  fail<ConfigError>("{} of the tokenizer make {} of a text of {}: such a tokenizer is not used", chain,
                    format_bytes(static_cast<int64_t>(bytes)), format_bytes(static_cast<int64_t>(before_)));
}

}  // namespace nought
