// How a decoder is cut into pipeline stages, and how tokens go through those of all ranks without a backward pass.
#include <algorithm>

#include "nought/models/decoder.h"
#include "nought/models/decoder_work.h"
#include "nought/parallel/conjugate.h"
#include "nought/parallel/context_rows.h"

namespace nought {

int Decoder::stage_of(size_t unit) const {
  const auto behind = std::upper_bound(stage_begins_.begin(), stage_begins_.end(), unit);
  return static_cast<int>(behind - stage_begins_.begin()) - 1;
}

int64_t Decoder::whole_units() const {
  return std::count_if(units().begin(), units().end(), [](const auto& unit) { return unit->tile_of() == nullptr; });
}

Unit& Decoder::add_staged_unit(std::string name, std::optional<int> copy) {
  const int owner = pipeline_.rank_of(stage_of(static_cast<size_t>(whole_units())));
  Unit& unit = add_unit(std::move(name));
  if (!pipeline_.several()) return unit;
  Cut cut{.axis = Axis::pipeline, .owner = owner};
  if (copy && pipeline_.rank_of(*copy) != owner) cut.copy = pipeline_.rank_of(*copy);
  unit.give_to(cut, pipeline_.rank);
  return unit;
}

Chunk Decoder::chunk_of(int stage) const {
  const auto trained_below = [&](size_t end) {
    size_t place = 0;
    return std::any_of(units().begin(), units().end(), [&](const auto& unit) {
      return unit->tile_of() == nullptr && place++ < end && unit->trained();
    });
  };
  Chunk chunk;
  if (stage > 0) chunk.from = pipeline_.rank_of(stage - 1);
  if (stage < pipeline_.last_stage()) chunk.to = pipeline_.rank_of(stage + 1);
  chunk.wanted = stage > 0 && trained_below(stage_begins_[static_cast<size_t>(stage)]);
  chunk.trained = trained_below(stage_begins_[static_cast<size_t>(stage) + 1]);
  return chunk;
}

std::vector<Chunk> Decoder::chunks() {
  std::vector<Chunk> all;
  for (int index = 0; index < pipeline_.chunks(); ++index) {
    const int stage = pipeline_.stage_of(index);
    Chunk chunk = chunk_of(stage);
    chunk.sections = stack(stage);
    const bool counts = num_routers_ > 0 && index + 1 == pipeline_.chunks();  // all chunks of this rank have run
    if (counts) chunk.sections.push_back(counting_section(chunk.last()));
    if (chunk.last()) {
      chunk.sections.push_back(head_section());
      if (num_routers_ > 0) chunk.sections.push_back(balance_section());
    }
    all.push_back(std::move(chunk));
  }
  return all;
}

std::vector<Section> Decoder::sections() {
  std::vector<Section> all;
  for (Chunk& chunk : chunks()) std::move(chunk.sections.begin(), chunk.sections.end(), std::back_inserter(all));
  return all;
}

Shape Decoder::hidden_shape(const MicroBatchState& state) const {
  const TokenSlices& slices = Work::of(state).sequences.slices;
  return {slices.local_rows().size(), config_.hidden_size};
}

Tensor Decoder::run_stages(Tape& tape, const std::shared_ptr<Work>& work, const Shape& shape, const HeadOfStack& head) {
  const Context& context = tape.context();
  const auto through_head = [&](const Var& x) {
    const Var own = gather_tokens(tape, x, work->sequences.slices);
    return head(Tape::constant(gather_rows(context, own.value, work->sequences.context)));
  };
  if (!pipeline_.several()) return through_head(run_sections(tape, stack(), {}, work));
  const DType dtype = embedding_->store().dtype();
  Tensor result;
  Var x;
  for (int index = 0; index < pipeline_.chunks(); ++index) {
    const int stage = pipeline_.stage_of(index);
    const Chunk chunk = chunk_of(stage);
    if (!chunk.first() && chunk.from != pipeline_.rank) {  // where the V turns, x is here
      x = Tape::constant(context.empty(hidden_shape(*work), dtype));
      mesh().world().wait(mesh().receive(x.value, chunk.from), *context.stream);
    }
    x = run_sections(tape, stack(stage), x, work);
    if (chunk.last()) {
      result = through_head(x);
    } else if (chunk.to != pipeline_.rank) {
      mesh().world().wait(mesh().send(x.value, chunk.to), *context.stream);
    }
  }
  if (!result) result = context.empty(shape, dtype);
  Communicator& stages = mesh().group(Group::pipeline);
  stages.wait(stages.broadcast(result, pipeline_.rank_of(pipeline_.last_stage())), *context.stream);
  return result;
}

}  // namespace nought
