#include "nought/autograd/tape.h"

#include <algorithm>

namespace nought {

void Gradients::give(const Var& input, Tensor gradient) {
  if (!input.requires_grad()) return;
  Tensor& held = slots_[static_cast<size_t>(input.slot)];
  if (!held) {
    held = std::move(gradient);
  } else if (held.unique()) {
    context_.run(AddTo{.x = gradient, .into = held});
  } else if (gradient.unique()) {
    context_.run(AddTo{.x = held, .into = gradient});
    held = std::move(gradient);
  } else {
    Tensor sum = context_.empty(held.shape(), held.dtype());
    context_.run(Add{.a = held, .b = gradient, .out = sum});
    held = std::move(sum);
  }
}

GradSink Gradients::sink(int slot, const Shape& shape, DType dtype) {
  if (slot == Var::kConstant) return {};
  Tensor& held = slots_[static_cast<size_t>(slot)];
  if (!held) {
    held = context_.empty(shape, dtype);
    return {held, false};
  }
  if (!held.unique()) {  // another branch still reads it
    Tensor own = context_.empty(held.shape(), held.dtype());
    context_.copy(held, own);
    held = std::move(own);
  }
  return {held, true};
}

Var Tape::input(Tensor value) {
  gradients_.slots_.emplace_back();
  return {std::move(value), static_cast<int>(gradients_.slots_.size()) - 1};
}

Var Tape::record(Tensor value, std::initializer_list<Wanted> inputs, Backward backward) {
  const bool wanted = std::any_of(inputs.begin(), inputs.end(), [](const Wanted& input) { return bool(input); });
  if (!recording_ || !wanted) return constant(std::move(value));
  Var out = input(std::move(value));
  nodes_.push_back({std::move(backward), out.slot});
  return out;
}

Var Tape::record_cheap(Tensor value, std::initializer_list<Wanted> inputs, Backward backward, Later again) {
  Var out = record(std::move(value), inputs, std::move(backward));
  if (out.requires_grad() && selective_)
    out.again = [again = std::move(again)](const Context& context) -> Later {
      return [value = again(context)](const Context&) { return value; };
    };
  return out;
}

template <class Event>
void Tape::announce(Event event) {
  if (recording_) nodes_.push_back({[event](Gradients&, const Tensor&) { event(); }, Var::kConstant});
}

void Tape::enter(Unit& unit) {
  UnitStore& store = store_of(unit);
  store.before_forward(unit);
  announce([&store, &unit] { store.after_backward(unit); });
}

void Tape::leave(Unit& unit) {
  UnitStore& store = store_of(unit);
  store.after_forward(unit);
  announce([&store, &unit] { store.before_backward(unit); });
}

void Tape::enter_part(Unit& unit, const char* name) {
  UnitStore& store = store_of(unit);
  store.enter_part(name);
  announce([&store] { store.leave_part(); });
}

void Tape::leave_part(Unit& unit, const char* name) {
  UnitStore& store = store_of(unit);
  store.leave_part();
  announce([&store, name] { store.enter_part(name); });
}

Var Tape::run_unit(Unit& unit, const Var& x, const Body& body, Recompute recompute) {
  if (recompute == Recompute::full && recording_)
    return run_checkpoint({{&unit, body}}, x, [value = x.value](const Context&) { return value; });
  const size_t begin = nodes_.size();
  enter(unit);
  selective_ = recompute == Recompute::selective;
  Var y = body(*this, x);
  selective_ = false;
  y.again = {};  // beyond the Unit its parameters are not leased
  leave(unit);
  if (!y.requires_grad() && !unit.trained()) nodes_.resize(begin);  // announcements alone
  return y;
}

Var Tape::run_checkpoint(std::vector<Section> sections, const Var& x, SavedInputs::Kept kept) {
  Tape forward(context_, false, gradients_.store_);
  Var y = constant(x.value);
  for (const Section& section : sections) y = forward.run_unit(*section.unit, y, section.body);
  const bool wanted = x.requires_grad() || std::any_of(sections.begin(), sections.end(),
                                                       [](const Section& section) { return section.unit->trained(); });
  if (!recording_ || !wanted) return y;
  return record_checkpoint(std::move(y.value), std::move(sections), x, std::move(kept));
}

Var Tape::record_checkpoint(Tensor y, std::vector<Section> sections, const Var& x, SavedInputs::Kept kept) {
  Var out = input(std::move(y));
  auto replay_and_walk_back = [x = Var{{}, x.slot}, sections = std::move(sections), kept = std::move(kept)](
                                  Gradients& gradients, Tensor d_out) {
    Tape replay(gradients.context(), true, gradients.store_);
    Tensor x_again = kept(gradients.context());
    const Var again = x.requires_grad() ? replay.input(std::move(x_again)) : constant(std::move(x_again));
    const auto& [unit, body] = sections.back();
    Var in = again;
    for (size_t i = 0; i + 1 < sections.size(); ++i) in = replay.run_unit(*sections[i].unit, in, sections[i].body);
    UnitStore& store = replay.store_of(*unit);
    store.before_backward(*unit);
    replay.announce([&store, last = unit] { store.after_backward(*last); });
    replay.result_is_unread_ = true;
    replay.backward(body(replay, in), std::move(d_out));
    if (x.requires_grad()) gradients.give(x, replay.gradient(again));
  };
  nodes_.push_back({std::move(replay_and_walk_back), out.slot});
  return out;
}

Var Tape::run_tile(Unit& tile, const Var& x, const Body& body, TileUse use) {
  if (use.unread && recording_ && (x.requires_grad() || tile.trained())) {
    Tensor zeros = context_.zeros(x.value.shape(), x.value.dtype());
    return record_checkpoint(std::move(zeros), {{&tile, body}}, x, [value = x.value](const Context&) { return value; });
  }
  const size_t begin = nodes_.size();
  UnitStore& store = store_of(tile);
  store.before_forward(tile);
  announce([&store, &tile, use] { use.shared ? store.after_shared_backward(tile) : store.after_backward(tile); });
  Var y = body(*this, x);
  y.again = {};
  leave(tile);
  if (!y.requires_grad() && !tile.trained()) nodes_.resize(begin);
  return y;
}

namespace {

Tensor keys_of(const Tensor& all, Interval rows) { return all ? all.slice(rows.begin, rows.end) : Tensor(); }

/// Calls visit(rows) for each tile; the last one may have fewer rows.
template <class Visit>
void for_each_tile(int64_t rows, int64_t tiles, const Visit& visit) {
  const int64_t most = ceil_div(rows, tiles);
  for (int64_t begin = 0; begin < rows; begin += most) visit(Interval{begin, std::min(begin + most, rows)});
}

}  // namespace

Var Tape::run_tiles(const Var& x, int64_t tiles, bool trained, const Body& body) {
  const int64_t rows = x.value.rows();
  Tensor y;
  for_each_tile(rows, tiles, [&](Interval tile) {
    Tape forward(context_, false, gradients_.store_);
    forward.row_keys_ = keys_of(row_keys_, tile), forward.leaves_out_adapters_ = leaves_out_adapters();
    const Tensor part = body(forward, constant(x.value.slice(tile.begin, tile.end))).value;
    if (!y) y = context_.empty({rows, part.dim(-1)}, part.dtype());
    context_.copy(part, y.slice(tile.begin, tile.end));
  });
  return record(y, {x, Wanted(trained)},
                [x = Saved(x), tiles, body, keys = row_keys_](Gradients& gradients, const Tensor& dy) {
                  const Context& context = gradients.context();
                  const Tensor value = x.prepared(context)(context);
                  const GradSink dx = gradients.sink(x);
                  for_each_tile(value.rows(), tiles, [&](Interval tile) {
                    Tape replay(context, true, gradients.store_);
                    replay.row_keys_ = keys_of(keys, tile);
                    const Tensor part = value.slice(tile.begin, tile.end);
                    const Var in = dx ? replay.input(part) : constant(part);
                    replay.backward(body(replay, in), dy.slice(tile.begin, tile.end));
                    if (!dx) return;
                    const Tensor into = dx.into.slice(tile.begin, tile.end);
                    if (dx.accumulate) {
                      context.run(AddTo{.x = replay.gradient(in), .into = into});
                    } else {
                      context.copy(replay.gradient(in), into);
                    }
                  });
                });
}

void Tape::backward(const Var& root, Tensor seed) {
  require(recording_ && root.requires_grad(), "backward() needs a value that was recorded");
  if (!seed) {
    seed = context_.empty(root.value.shape(), root.value.dtype());
    context_.run(Fill{.x = seed, .value = 1});
  }
  gradients_.slots_[static_cast<size_t>(root.slot)] = std::move(seed);
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    if (node.slot == Var::kConstant) {
      node.backward(gradients_, {});
    } else if (Tensor d_out = std::exchange(gradients_.slots_[static_cast<size_t>(node.slot)], {})) {
      node.backward(gradients_, std::move(d_out));
    }
  }
}

Tensor Tape::gradient(const Var& input) const {
  require(input.requires_grad(), "a constant has no gradient");
  return gradients_.slots_[static_cast<size_t>(input.slot)];
}

}  // namespace nought
