#include "nought/diagnose/profile.h"

#include <algorithm>
#include <tuple>

namespace nought {

namespace {

/// The events of the computing thread that lie one within the other, the outer before the inner.
std::vector<const TraceEvent*> nested(std::span<const TraceEvent> events) {
  std::vector<const TraceEvent*> sorted;
  for (const TraceEvent& event : events)
    if (event.kind != TraceEventKind::wait && event.kind != TraceEventKind::collective) sorted.push_back(&event);
  std::sort(sorted.begin(), sorted.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return std::tie(a->begin, b->end, a->kind) < std::tie(b->begin, a->end, b->kind);
  });
  return sorted;
}

ModuleProfile& child_of(ModuleProfile& module, std::string_view name) {
  for (ModuleProfile& each : module.inside)
    if (each.name == name) return each;
  return module.inside.emplace_back(ModuleProfile{.name = std::string(name)});
}

/// The name of a Unit, or of a part: a Unit's event also names the pass, "block.3, forward".
std::string_view module_name(const TraceEvent& event) {
  const std::string_view name = event.name;
  return name.substr(0, name.find(','));
}

/// Books an operation under everything that it lies in.
void book(const TraceEvent& operation, std::span<const TraceEvent* const> around, StepProfile& profile) {
  if (around.empty()) return;  // between the passes
  const bool walks_back = around.front()->name == "backward";
  if (!walks_back && around.front()->name != "forward") return profile.optimizer.add(operation);
  ModuleProfile* module = &profile.model;
  const auto add = [&] { (walks_back ? module->backward : module->forward).add(operation); };
  add();
  for (const TraceEvent* outer : around.subspan(1)) module = &child_of(*module, module_name(*outer)), add();
}

}  // namespace

void OperationTotal::add(const TraceEvent& operation) {
  runs += 1, seconds += operation.seconds();
  work += {.flops = operation.flops, .bytes = static_cast<double>(operation.bytes)};
}

OperationTotal& OperationTotal::operator+=(const OperationTotal& other) {
  return runs += other.runs, seconds += other.seconds, work += other.work, *this;
}

std::map<std::string, OperationTotal> operations_of(std::span<const TraceEvent> events) {
  std::map<std::string, OperationTotal> totals;
  for (const TraceEvent& event : events)
    if (event.kind == TraceEventKind::operation) totals[event.name].add(event);
  return totals;
}

void add_events(std::span<const TraceEvent> events, StepProfile& profile) {
  profile.times = breakdown_of(events);
  profile.operations = operations_of(events);
  std::vector<const TraceEvent*> around;
  for (const TraceEvent* event : nested(events)) {
    while (!around.empty() && around.back()->end < event->end) around.pop_back();
    if (event->kind == TraceEventKind::operation)
      book(*event, around, profile);
    else
      around.push_back(event);
  }
}

}  // namespace nought
