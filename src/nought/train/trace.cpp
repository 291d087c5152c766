#include "nought/train/trace.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr int kComputing = 1, kCommunicating = 2;  // threads of a rank

std::string_view category_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::phase:
      return "phase";
    case SpanKind::unit:
      return "unit";
    case SpanKind::part:
      return "part";
    case SpanKind::operation:
      return "operation";
    case SpanKind::wait:
      return "wait";
    case SpanKind::collective:
      return "collective";
  }
  return "?";
}

/// The events of one rank, separated by commas.
std::string events_of(int rank, std::span<const Span> spans, Span::Clock::time_point origin) {
  std::string text;
  const auto add = [&](const nlohmann::ordered_json& event) { text += (text.empty() ? "" : ",\n") + event.dump(); };
  const auto name = [&](const char* what, int thread, const std::string& value) {
    add({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", value}}}});
  };
  name("process_name", 0, fmt::format("rank {}", rank));
  name("thread_name", kComputing, "compute");
  name("thread_name", kCommunicating, "communication");
  const auto microseconds = [](auto duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
  for (const Span& span : spans) {
    nlohmann::ordered_json event{{"ph", "X"},
                                 {"name", span.name},
                                 {"cat", category_of(span.kind)},
                                 {"pid", rank},
                                 {"tid", span.kind == SpanKind::collective ? kCommunicating : kComputing},
                                 {"ts", microseconds(span.begin - origin)},
                                 {"dur", microseconds(span.end - span.begin)}};
    if (span.bytes > 0) event["args"] = {{"bytes", span.bytes}};
    if (span.flops > 0) event["args"]["flops"] = span.flops;
    if (!span.arguments.empty()) event["args"]["arguments"] = span.arguments;
    add(event);
  }
  return text;
}

}  // namespace

void write_trace(Communicator& ranks, const Context& context, std::span<const Span> spans,
                 Span::Clock::time_point origin, const std::filesystem::path& file) {
  std::string text = events_of(ranks.rank(), spans, origin);
  const Tensor longest = context.empty({1}, DType::i64, Category::workspace);
  *longest.data<int64_t>() = static_cast<int64_t>(text.size());
  ranks.all_reduce(longest, ReduceOp::max).wait();
  const int64_t length = *longest.data<int64_t>();
  text.resize(static_cast<size_t>(length), ' ');  // equal parts for the gather; JSON does not mind
  const Tensor mine = context.empty({length}, DType::u8, Category::workspace);
  std::memcpy(mine.raw(), text.data(), text.size());
  const bool writes = ranks.rank() == 0;
  const Tensor all = writes ? context.empty({length * ranks.size()}, DType::u8, Category::workspace) : Tensor();
  ranks.gather(mine, all, 0).wait();
  if (!writes) return;
  std::string whole = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    std::string_view part(reinterpret_cast<const char*>(all.raw()) + rank * length, static_cast<size_t>(length));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    whole += fmt::format("{}{}", rank > 0 ? ",\n" : "", part);
  }
  write_text_atomically(file, whole + "\n]}\n");
}

}  // namespace nought
