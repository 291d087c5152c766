#include "nought/zero/sharded_model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

#include "nought/comm/flight_recorder.h"
#include "nought/zero/blocks.h"
#include "nought/zero/codes.h"
#include "nought/zero/four_bits.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

/// The policy of segments that several ranks share out, if there are such ranks.
ShardedModel::Options for_ranks(ShardedModel::Options options, const Mesh& mesh) {
  require<ConfigError>(options.offload_param.tier.pool == Pool::device || options.policy.shard_parameters,
                       "parameters are kept in the {} pool at ZeRO stage 3 alone: below it every rank needs all",
                       name_of(options.offload_param.tier.pool));
  require<ConfigError>(options.codes.plain() || options.policy.shard_parameters,
                       "weights and gradients travel quantized at ZeRO stage 3 alone: raise the stage, or send values");
  const int readers = mesh.group(Group::samples).size();
  require<ConfigError>(options.virtual_ranks >= 0 && options.virtual_ranks % readers == 0,
                       "{} virtual ranks are not a multiple of the {} ranks that read different samples",
                       options.virtual_ranks, readers);
  const int ranks = std::max(mesh.group(Group::parameters).size(), mesh.group(Group::expert_parameters).size());
  options.policy = options.policy.for_ranks(ranks);
  return options;
}

std::vector<int64_t> brought(const Residency& residency, size_t units) {
  std::vector<int64_t> elements(units);
  for (size_t unit = 0; unit < units; ++unit) elements[unit] = residency.brought(unit);
  return elements;
}

}  // namespace

ShardedModel::ShardedModel(const Context& context, const Mesh& mesh, Model& model, const Options& options)
    : context_(context),
      mesh_(mesh),
      model_(model),
      options_(for_ranks(options, mesh_)),
      residency_(context, mesh_, options_.policy, options_.dtype, options_.gather_bucket, model.units(),
                 options_.offload_param, options_.codes.weight_bits, options_.virtual_ranks),
      live_(model.units(), brought(residency_, model.units().size()), options_.live),
      passes_(mesh_.world()) {
  for (const auto& unit : model_.units())
    for (const Parameter& parameter : unit->parameters()) check_placement(parameter, mesh_);
  model_.join(mesh_);
  for (size_t i = 0; i < model_.units().size(); ++i) model_.units()[i]->attach(this, i);
  expect({});
  if (!options_.training) return;
  reducer_.emplace(context_, mesh_, options_, model_.units());
  if (options_.codes.feedback) keep_for_rank([this] { return reducer_->errors(); });
  optimizer_.emplace(context_, mesh_, options_.dtype, options_.optimizer, model_.units(), residency_, *reducer_,
                     options_.offload_optimizer, options_.virtual_ranks);
  keep_for_rank([this] { return optimizer_->rank_local_tensors(); });
  Communicator& ranks = mesh_.group(Group::parameters);
  if (options_.power_sgd && ranks.size() > 1) {
    power_sgd_.emplace(context_, ranks, *options_.power_sgd, options_.gradient_dtype, model.units(), *reducer_);
    keep_for_rank([this] { return power_sgd_->rank_local_tensors(); });
  }
  change_weights();
  choose_reduction();
}

void ShardedModel::change_weights() {
  if (!options_.changes_weights()) return;
  std::vector<ChangedWeight> weights = changed_weights(options_, model_);
  if (options_.sparse_pruning) {
    masks_.emplace(context_, mesh_, *options_.sparse_pruning, model_);
    std::ranges::copy(masks_->changes(), std::back_inserter(weights));
    keep_for_rank([this] { return masks_->tensors(); });
  }
  working_.emplace(context_, mesh_, weights, model_);
}

void ShardedModel::choose_reduction() {
  const bool factors = power_sgd_ && power_sgd_->compresses(optimizer_->updates());
  reducer_->keep_local(options_.local_gradients || factors || optimizer_->wants_local_gradients());
}

ShardedModel::~ShardedModel() {
  for (const auto& unit : model_.units()) unit->attach(nullptr, 0);
  model_.join(Mesh());
}

void ShardedModel::load(const StateSource& source, int64_t updates) {
  load_kept(source);
  if (!optimizer_) return;
  optimizer_->load(source, updates);
  residency_.exchange_updates();
  residency_.settle();
  if (masks_) masks_->make(residency_);
  choose_reduction();
}

void ShardedModel::load_kept(const StateSource& source) {
  std::vector<SegmentIndex> segments = segments_of(model_.units(), /*trainable=*/false);
  if (!optimizer_)
    for (const SegmentIndex at : segments_of(model_.units(), /*trainable=*/true)) segments.push_back(at);
  for (const SegmentIndex at : segments) {
    const Unit& unit = *model_.units()[at.unit];
    const Interval kept = residency_.kept(at);
    const Segment& segment = unit.segments()[at.segment];
    if (segment.content == SegmentContent::scales || segment.content == SegmentContent::nested)
      continue;  // filled with their codes
    if (segment.content == SegmentContent::codes && is_four_bits(segment.codes.kind)) {
      load_kept_four_bits(at, source);
      continue;
    }
    residency_.begin_update(at, Pool::device, /*reads=*/false);
    const Tensor stored = residency_.updating(at);
    if (segment.codes.kind == CodeKind::blocks) {
      load_blocks(context_, mesh_, source, unit, at.segment, {kept, stored});
      residency_.end_update(at);
      continue;
    }
    if (segment.content == SegmentContent::codes) {
      const SegmentIndex scales{at.unit, segment.scales};
      residency_.begin_update(scales, Pool::device, /*reads=*/false);
      load_codes(context_, mesh_, source, unit, at.segment, kept, {stored, residency_.updating(scales)});
      residency_.end_update(scales);
      residency_.end_update(at);
      continue;
    }
    for (const ParameterPiece& piece : pieces_in(unit, at.segment, kept)) {
      const int64_t begin = piece.in_segment.begin - kept.begin;
      const Parameter& parameter = unit.parameters()[piece.parameter];
      fill(context_, source, StateKind::master, parameter, global_elements(parameter, mesh_, piece.in_parameter),
           stored.flat(begin, begin + piece.in_segment.size()));
    }
    residency_.end_update(at);
  }
}

void ShardedModel::load_kept_four_bits(SegmentIndex at, const StateSource& source) {
  const Unit& unit = *model_.units()[at.unit];
  const Segment& segment = unit.segments()[at.segment];
  std::vector<SegmentIndex> updated;
  const auto begin = [&](size_t index) {
    const SegmentIndex one{at.unit, index};
    residency_.begin_update(one, Pool::device, /*reads=*/false);
    updated.push_back(one);
    return KeptSegment{residency_.kept(one), residency_.updating(one)};
  };
  KeptFourBits kept{begin(at.segment), begin(segment.scales), {}};
  if (segment.nested != 0) kept.nested = begin(segment.nested);
  load_four_bits(context_, mesh_, source, unit, at.segment, kept);
  for (const SegmentIndex& each : updated) residency_.end_update(each);
}

Tensor ShardedModel::held_parameter(const Unit& unit, const Parameter& parameter) const {
  const auto [begin, end] = parameter.range;
  const Tensor flat = residency_.whole({unit.index(), parameter.segment}).flat(begin, end);
  if (!parameter.quantized) return flat;
  if (parameter.codes.kind != CodeKind::q8_0) {
    const auto index = static_cast<size_t>(&parameter - unit.parameters().data());
    // A view of a Unit reads what is leased.
    return decoded(context_, ParameterView(*model_.units()[unit.index()], index, index, parameter.shape).weight(),
                   options_.dtype);
  }
  const Tensor scales = residency_.whole({unit.index(), unit.segments()[parameter.segment].scales});
  return decoded(context_,
                 {flat.reshape(parameter.shape),
                  scales.flat(begin / kCodeBlock, end / kCodeBlock).reshape(scales_shape(parameter.shape))},
                 options_.dtype);
}

void ShardedModel::require_training(std::string_view call) const {
  require(reducer_ && optimizer_,
          "{} needs gradients and optimizer states, which a ShardedModel with training = false does not keep: make it "
          "with training = true",
          call);
}

ShardedOptimizer& ShardedModel::optimizer() {
  require_training("optimizer()");
  return *optimizer_;
}

void ShardedModel::expect(std::vector<UnitPass> order) {
  residency_.drop_live();
  live_.expect(order);
  if (order.empty()) {
    order = model_.passes(/*backward=*/false);
    const std::vector<UnitPass> back = model_.passes(/*backward=*/true);
    order.insert(order.end(), back.begin(), back.end());
  }
  order_ = PassOrder(std::move(order));
}

void ShardedModel::prefetch_behind(UnitPass pass) {
  if (!residency_.moves()) return;
  const std::span<const UnitPass> next = order_.behind(pass);
  if (!options_.overlap || next.empty()) return;
  residency_.prefetch(next.front().unit);
  const size_t most = static_cast<size_t>(options_.offload_param.buffers) + 2;
  for (const UnitPass& each : next.first(std::min(next.size(), most))) {
    const Unit& unit = *model_.units()[each.unit];
    if (!residency_.fetch_ahead(unit.index())) return;
    for (const Unit* other : unit.borrowed()) residency_.fetch_ahead(other->index());
  }
}

std::vector<RankLocalTensor> ShardedModel::rank_states() const {
  std::vector<RankLocalTensor> all;
  for (const ListRankLocalTensors& list : rank_states_)
    for (RankLocalTensor& state : list()) all.push_back(std::move(state));
  return all;
}

StateTraffic ShardedModel::traffic() const {
  const SwapTraffic inputs = model_.file_traffic();
  return residency_.traffic() + (optimizer_ ? optimizer_->traffic() : StateTraffic{}) +
         StateTraffic{.read = inputs.read, .written = inputs.written};
}

StateTimes ShardedModel::times() const {
  return residency_.times() + (optimizer_ ? optimizer_->times() : StateTimes{});
}

Tensor ShardedModel::finish_gradients() {
  require_training("finish_gradients()");
  reducer_->finish_step();
  // All are final now, and what is updated early, so what moves, does not depend on when they were.
  if (undoes_early_updates()) optimizer_->lane().update_early();
  if (power_sgd_ && power_sgd_->compresses(optimizer_->updates())) power_sgd_->reduce(optimizer_->updates());
  add_gradients_of_copies();
  if (masks_) masks_->clear_gradients(*reducer_, residency_, optimizer_->updates());
  return optimizer_->sums_of_squares();
}

void ShardedModel::add_gradients_of_copies() {
  for (const SegmentIndex at : segments_of(model_.units(), /*trainable=*/true)) {
    const Unit& unit = *model_.units()[at.unit];
    if (!unit.has_copy()) continue;
    const int last = mesh_.grid().size(Axis::pipeline) - 1, here = mesh_.coordinate(Axis::pipeline);
    const int other = here == 0 ? last : 0;
    const FlightSubject subject(mesh_.world(), unit.name());
    const Tensor mine = reducer_->reduced(at);
    const Tensor theirs = context_.empty(mine.shape(), mine.dtype(), Category::communication);
    Communicator& from = mesh_.channel(other, here);
    const Event sent = mesh_.send(mine, other);
    from.wait(mesh_.receive(theirs, other), *context_.stream);
    from.wait(sent, *context_.stream);  // it has read what is overwritten
    context_.run(AddTo{.x = theirs, .into = mine});
  }
}

void ShardedModel::update(double lr, double gradient_scale) {
  require_training("update()");
  residency_.settle();
  residency_.drop_prefetched();
  bool changed = optimizer_->complete();
  if (optimizer_->delays()) {
    optimizer_->delay(lr, gradient_scale);
  } else {
    optimizer_->update(lr, gradient_scale);
    changed = true;
  }
  if (changed) residency_.exchange_updates();
  if (!options_.overlap) residency_.settle();
  reducer_->reset();
  choose_reduction();
}

void ShardedModel::begin_early_update(const EarlyUpdate& update) {
  if (optimizer_) optimizer_->begin_early(update);
}

bool ShardedModel::abandon_early_update() { return optimizer_ && optimizer_->abandon_early(); }

void ShardedModel::start_pending_update() {
  if (optimizer_) optimizer_->start();
}

void ShardedModel::finish_pending_update() {
  require_training("finish_pending_update()");
  residency_.settle();
  residency_.drop_prefetched();
  if (optimizer_->complete()) residency_.exchange_updates();
  if (!options_.overlap) residency_.settle();
}

void ShardedModel::load_pending_update(const StateSource& source, const PendingUpdate& pending) {
  require_training("load_pending_update()");
  optimizer_->load_pending(source, pending);
  if (!options_.offload_optimizer.delay_after) finish_pending_update();
}

void ShardedModel::change_masters(const std::function<void(ShardedOptimizer&)>& change) {
  require_training("change_masters()");
  residency_.settle();
  residency_.drop_prefetched();
  change(*optimizer_);
  residency_.exchange_updates();
  if (!options_.overlap) residency_.settle();
}

Tensor ShardedModel::local_gradients(SegmentIndex at) {
  require_training("local_gradients()");
  return reducer_->own(at);
}

void ShardedModel::take_parameters(SegmentIndex at, const Tensor& whole) {
  residency_.begin_update(at, Pool::device, /*reads=*/false);
  context_.copy(whole, residency_.updating(at));
  residency_.end_update(at);
}

void ShardedModel::discard_gradients() {
  require_training("discard_gradients()");
  reducer_->settle();
  reducer_->reset();
  if (power_sgd_ && power_sgd_->compresses(optimizer_->updates())) power_sgd_->forget_errors();
}

std::vector<Tensor> ShardedModel::gather_gradients(size_t unit) {
  require_training("gather_gradients()");
  const Unit& of = *model_.units()[unit];
  std::vector<Tensor> gradients(of.parameters().size());
  for (size_t segment = 0; segment < of.segments().size(); ++segment) {
    if (!of.segments()[segment].trainable) continue;
    const SegmentIndex at{unit, segment};
    const Tensor whole =
        context_.empty({residency_.partition(at).padded()}, options_.gradient_dtype, Category::workspace);
    Communicator& ranks = residency_.ranks(at);
    if (!of.elsewhere()) ranks.wait(ranks.all_gather(context_.on_device(reducer_->owned(at)), whole), *context_.stream);
    for (const size_t i : of.segments()[segment].parameters) {
      const Parameter& parameter = of.parameters()[i];
      gradients[i] = whole_tensor(context_, mesh_, parameter, whole.flat(parameter.range.begin, parameter.range.end));
    }
  }
  return gradients;
}

void ShardedModel::with_gradients(size_t unit, const std::function<void(const Parameter&, const Tensor&)>& f) {
  std::map<const Unit*, std::vector<Tensor>> gathered;
  const auto gradient_of = [&](const GlobalTensor::Part& part) {
    std::vector<Tensor>& of_unit = gathered[part.unit];
    if (of_unit.empty()) of_unit = gather_gradients(part.unit->index());
    return of_unit[part.parameter];
  };
  for (const GlobalTensor& tensor : global_tensors(*model_.units()[unit]))
    f(tensor.first(),
      tensor.is_tiled() ? without_tiles(context_, tensor, gradient_of) : gradient_of(tensor.parts.front()));
}

void ShardedModel::settle() {
  if (reducer_) reducer_->settle();
  residency_.settle();
}

void ShardedModel::lease_one(size_t unit) {
  residency_.lease(unit);
  if (working_) working_->begin_pass(unit, residency_, optimizer_->updates());
}

void ShardedModel::lease(const Unit& unit) {
  lease_one(unit.index());
  for (const Unit* other : unit.borrowed()) lease_one(other->index());
}

void ShardedModel::release(const Unit& unit) {
  const auto end = [&](size_t index) {
    if (working_) working_->end_pass(index);
    residency_.release(index, live_.stays(index, order_.next()));
  };
  end(unit.index());
  for (const Unit* other : unit.borrowed()) end(other->index());
}

void ShardedModel::before_forward(Unit& unit) {
  if (optimizer_) model_.set_updates(optimizer_->updates());
  passes_.begin(unit, /*walking_back=*/false);
  lease(unit);
  prefetch_behind({unit.index(), false});
}

void ShardedModel::after_forward(Unit& unit) {
  release(unit);
  passes_.end(unit);
}

void ShardedModel::before_backward(Unit& unit) {
  passes_.begin(unit, /*walking_back=*/true);
  lease(unit);
  prefetch_behind({unit.index(), true});
}

void ShardedModel::after_backward(Unit& unit) {
  release(unit);
  passes_.end(unit);
}

Tensor ShardedModel::values(const Unit& unit, size_t segment) {
  const SegmentIndex at{unit.index(), segment};
  if (working_)
    if (Tensor changed = working_->values(at)) return changed;
  return residency_.whole(at);
}

GradSink ShardedModel::gradient(const Unit& unit, size_t /*first*/, size_t /*last*/) {
  require(!reducer_, "gradients of unit {} belong to a micro-batch: run its passes through a MicroBatch", unit.name());
  return {};
}

}  // namespace nought
