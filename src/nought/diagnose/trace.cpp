#include "nought/diagnose/trace.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr int kPasses = 1, kComputing = 2, kCommunicating = 3;  // threads of a rank, and from the last on its groups'

std::string_view category_of(TraceEventKind kind) {
  switch (kind) {
    case TraceEventKind::phase:
      return "phase";
    case TraceEventKind::pass:
      return "pass";
    case TraceEventKind::unit:
      return "unit";
    case TraceEventKind::part:
      return "part";
    case TraceEventKind::operation:
      return "operation";
    case TraceEventKind::wait:
      return "wait";
    case TraceEventKind::collective:
      return "collective";
  }
  return "?";
}

/// The events of one rank as JSON objects, separated by commas.
class RankEvents {
 public:
  explicit RankEvents(int rank) : rank_(rank) { name("process_name", 0, fmt::format("rank {}", rank)); }

  std::string text(std::span<const TraceEvent> events, TraceEvent::Clock::time_point origin) {
    const auto is_pass = [](const TraceEvent& event) { return event.kind == TraceEventKind::pass; };
    if (std::any_of(events.begin(), events.end(), is_pass)) name("thread_name", kPasses, "pipeline");
    name("thread_name", kComputing, "compute");
    for (const TraceEvent& event : events) add(event, origin);
    return std::move(text_);
  }

 private:
  void add(const OrderedJson& json) { text_ += (text_.empty() ? "" : ",\n") + json.dump(); }
  void name(const char* what, int thread, const std::string& value) {
    add({{"ph", "M"}, {"name", what}, {"pid", rank_}, {"tid", thread}, {"args", {{"name", value}}}});
  }

  void add(const TraceEvent& event, TraceEvent::Clock::time_point origin) {
    const auto microseconds = [](auto duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
    const bool named = is_message(event) && !event.arguments.empty();
    OrderedJson json{{"ph", "X"},
                     {"name", named ? fmt::format("{} {}", event.name, event.arguments) : event.name},
                     {"cat", category_of(event.kind)},
                     {"pid", rank_},
                     {"tid", thread_of(event)},
                     {"ts", microseconds(event.begin - origin)},
                     {"dur", microseconds(event.end - event.begin)}};
    if (event.bytes > 0) json["args"] = {{"bytes", event.bytes}};
    if (event.flops > 0) json["args"]["flops"] = event.flops;
    if (!event.arguments.empty())
      json["args"][event.kind == TraceEventKind::collective ? "of" : "arguments"] = event.arguments;
    add(json);
  }

  /// Calls of one group follow each other, and those of different ones overlap.
  int thread_of(const TraceEvent& event) {
    if (event.kind == TraceEventKind::pass) return kPasses;
    if (event.kind != TraceEventKind::collective) return kComputing;
    const auto found = std::find(groups_.begin(), groups_.end(), event.group);
    const int thread = kCommunicating + static_cast<int>(found - groups_.begin());
    if (found == groups_.end()) {
      groups_.push_back(event.group);
      name("thread_name", thread, thread_name(event));
    }
    return thread;
  }

  static bool is_message(const TraceEvent& event) { return event.name == "send" || event.name == "recv"; }
  static std::string thread_name(const TraceEvent& event) {
    if (event.group == "world") return "communication";
    const std::string_view what = event.name == "send" ? "sends" : event.name == "recv" ? "receives" : "communication";
    return fmt::format("{} in {}", what, event.group);
  }

  int rank_;
  std::vector<std::string> groups_;
  std::string text_;
};

}  // namespace

void write_trace(Communicator& ranks, const Context& context, std::span<const TraceEvent> events,
                 TraceEvent::Clock::time_point origin, const std::filesystem::path& file) {
  std::string text = RankEvents(ranks.rank()).text(events, origin);
  const auto own = static_cast<int64_t>(text.size());
  const Tensor longest = context.upload({1}, std::span(&own, 1), Category::workspace);
  ranks.all_reduce(longest, ReduceOp::max).wait();
  const int64_t length = context.to_host<int64_t>(longest).front();
  text.resize(static_cast<size_t>(length), ' ');  // equal parts for the gather; JSON does not mind
  const Tensor mine = context.empty({length}, DType::u8, Category::workspace);
  upload_bytes(std::as_bytes(std::span(text)), mine, *context.stream);
  const bool writes = ranks.rank() == 0;
  const Tensor all = writes ? context.empty({length * ranks.size()}, DType::u8, Category::workspace) : Tensor();
  ranks.gather(mine, all, 0).wait();
  if (!writes) return;
  const Tensor texts = context.on_host(all);
  std::string whole = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    std::string_view part(reinterpret_cast<const char*>(texts.raw()) + rank * length, static_cast<size_t>(length));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    whole += fmt::format("{}{}", rank > 0 ? ",\n" : "", part);
  }
  write_text_atomically(file, whole + "\n]}\n");
}

}  // namespace nought
