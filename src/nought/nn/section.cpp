#include "nought/nn/section.h"

#include <algorithm>
#include <optional>

namespace nought {

namespace {

bool is_checkpointed(const Section& section) { return section.recompute == Recompute::full; }

/// The end of the sections that run again from the input of `begin`.
size_t end_of_checkpoint(std::span<const Section> sections, size_t begin) {
  size_t end = begin + 1;
  while (end < sections.size() && is_checkpointed(sections[end]) && sections[end].joins) ++end;
  return end;
}

/// The inputs that are kept for the stack of checkpointed sections that `begin` is the first of.
int64_t kept_inputs(std::span<const Section> sections, size_t begin) {
  int64_t count = 0;
  for (size_t i = begin; i < sections.size() && is_checkpointed(sections[i]); i = end_of_checkpoint(sections, i))
    ++count;
  return count;
}

Tape::Body with_state(const Section& section, const std::shared_ptr<MicroBatchState>& state) {
  return [body = section.body, state](Tape& tape, const Var& x) { return body(tape, x, *state); };
}

}  // namespace

Var run_sections(Tape& tape, std::span<const Section> sections, Var x, const std::shared_ptr<MicroBatchState>& state) {
  std::optional<SavedInputs::Pass> saved;  // keeps the inputs of the checkpointed sections that run now
  for (size_t begin = 0; begin < sections.size();) {
    const Section& section = sections[begin];
    if (section.unit == nullptr) {
      x = section.body(tape, x, *state);
    } else if (!tape.recording() || !is_checkpointed(section)) {
      const auto body = [&](Tape& inner, const Var& in) { return section.body(inner, in, *state); };
      x = tape.run_unit(*section.unit, x, body, section.recompute);
    } else {
      const size_t end = end_of_checkpoint(sections, begin);
      if (section.saved_inputs != nullptr && !saved)
        saved = section.saved_inputs->begin(tape.context(), kept_inputs(sections, begin), x.value);
      SavedInputs::Kept kept =
          saved ? saved->keep(tape.context(), x.value) : [value = x.value](const Context&) { return value; };
      std::vector<Tape::Section> together;
      for (size_t i = begin; i < end; ++i) together.push_back({sections[i].unit, with_state(sections[i], state)});
      x = tape.run_checkpoint(std::move(together), x, std::move(kept));
      begin = end;
      continue;
    }
    saved.reset();
    ++begin;
  }
  return x;
}

namespace {

void add_forward(std::vector<UnitPass>& passes, const Unit& unit) {
  passes.push_back({unit.index(), false});
  for (const Unit* tile : unit.tiles_at_work()) passes.push_back({tile->index(), false});
}

/// again: the tiles run forward once more before.
void add_backward(std::vector<UnitPass>& passes, const Unit& unit, bool again) {
  passes.push_back({unit.index(), true});
  for (const Unit* tile : unit.tiles_at_work())
    if (again) passes.push_back({tile->index(), false});
  for (size_t tile = unit.tiles_at_work().size(); tile-- > 0;)
    passes.push_back({unit.tiles_at_work()[tile]->index(), true});
}

}  // namespace

std::vector<UnitPass> forward_passes(std::span<const Section> sections) {
  std::vector<UnitPass> passes;
  for (const Section& section : sections)
    if (section.unit != nullptr) add_forward(passes, *section.unit);
  return passes;
}

std::vector<UnitPass> backward_passes(std::span<const Section> sections) {
  const auto trained = [](const Section& section) { return section.unit != nullptr && section.unit->trained(); };
  const auto lowest = static_cast<size_t>(std::find_if(sections.begin(), sections.end(), trained) - sections.begin());
  std::vector<std::vector<UnitPass>> checkpoints;  // upwards, each with its passes in their order
  for (size_t begin = 0, end = 0; begin < sections.size(); begin = end) {
    end = is_checkpointed(sections[begin]) ? end_of_checkpoint(sections, begin) : begin + 1;
    const size_t from = std::max(begin, lowest);
    if (from >= end) continue;
    std::vector<UnitPass> passes = forward_passes(sections.subspan(begin, end - begin - 1));
    for (size_t i = end; i-- > from;)
      if (sections[i].unit != nullptr)
        add_backward(passes, *sections[i].unit,
                     is_checkpointed(sections[i]) && sections[i].reads_tiles && i + 1 == end);
    checkpoints.push_back(std::move(passes));
  }
  std::vector<UnitPass> all;
  for (auto passes = checkpoints.rbegin(); passes != checkpoints.rend(); ++passes)
    all.insert(all.end(), passes->begin(), passes->end());
  return all;
}

}  // namespace nought
