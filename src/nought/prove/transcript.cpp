#include "nought/prove/transcript.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

std::string TranscriptPlace::str() const {
  std::string text = part;
  for (const std::string* each : {&phase, &unit})
    if (!each->empty() && *each != part) text += (text.empty() ? "" : ", ") + *each;
  if (!subject.empty() && subject != unit) text += (text.empty() ? "for " : ", for ") + subject;
  return text;
}

int Transcript::place_in(int group) const {
  const std::vector<int>& ranks = groups[static_cast<size_t>(group)].ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  require(found != ranks.end(), "rank {} is not in its group {}", rank, groups[static_cast<size_t>(group)].name);
  return static_cast<int>(found - ranks.begin());
}

std::string Transcript::str(const TranscriptCall& call) const {
  const TranscriptGroup& group = groups[static_cast<size_t>(call.group)];
  std::string text(name_of(call.kind));
  if (call.bytes > 0) text += fmt::format(" of {} {}", format_bytes(call.bytes), name_of(call.dtype));
  if (call.message()) {
    text += fmt::format(" {} rank {}", call.kind == Collective::send ? "to" : "from",
                        group.ranks[static_cast<size_t>(call.peer)]);
  } else {
    if (call.peer >= 0) text += fmt::format(" at root {}", group.ranks[static_cast<size_t>(call.peer)]);
    text += fmt::format(" in {}", group.name);
  }
  return fmt::format("{} ({})", text, place_of(call).str());
}

}  // namespace nought
