#include "nought/train/trace.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr int kComputing = 1, kCommunicating = 2;  // threads of a rank

std::string_view category_of(TraceEventKind kind) {
  switch (kind) {
    case TraceEventKind::phase:
      return "phase";
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
std::string json_of(int rank, std::span<const TraceEvent> events, TraceEvent::Clock::time_point origin) {
  std::string text;
  const auto add = [&](const OrderedJson& json) { text += (text.empty() ? "" : ",\n") + json.dump(); };
  const auto name = [&](const char* what, int thread, const std::string& value) {
    add({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", value}}}});
  };
  name("process_name", 0, fmt::format("rank {}", rank));
  name("thread_name", kComputing, "compute");
  name("thread_name", kCommunicating, "communication");
  const auto microseconds = [](auto duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
  for (const TraceEvent& event : events) {
    OrderedJson json{{"ph", "X"},
                     {"name", event.name},
                     {"cat", category_of(event.kind)},
                     {"pid", rank},
                     {"tid", event.kind == TraceEventKind::collective ? kCommunicating : kComputing},
                     {"ts", microseconds(event.begin - origin)},
                     {"dur", microseconds(event.end - event.begin)}};
    if (event.bytes > 0) json["args"] = {{"bytes", event.bytes}};
    if (event.flops > 0) json["args"]["flops"] = event.flops;
    if (!event.arguments.empty()) json["args"]["arguments"] = event.arguments;
    add(json);
  }
  return text;
}

}  // namespace

void write_trace(Communicator& ranks, const Context& context, std::span<const TraceEvent> events,
                 TraceEvent::Clock::time_point origin, const std::filesystem::path& file) {
  std::string text = json_of(ranks.rank(), events, origin);
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
