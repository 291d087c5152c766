#include "nought/zero/sharded_model.h"

#include "nought/zero/codes.h"

namespace nought {

namespace {

ShardedModel::Options for_ranks(ShardedModel::Options options, int ranks) {
  options.policy = options.policy.for_ranks(ranks);
  return options;
}

}  // namespace

ShardedModel::ShardedModel(const Context& context, const Mesh& mesh, Model& model, const Options& options)
    : context_(context),
      mesh_(mesh),
      ranks_(mesh_.group(Group::parameters)),
      model_(model),
      options_(for_ranks(options, ranks_.size())),
      residency_(context, ranks_, options_.policy, options_.dtype, options_.gather_bucket, model.units()) {
  model_.join(mesh_);
  for (size_t i = 0; i < model_.units().size(); ++i) model_.units()[i]->attach(this, i);
  const auto& units = model_.units();
  const auto lowest = std::find_if(units.begin(), units.end(), [](const auto& unit) { return unit->trained(); });
  lowest_trained_ = static_cast<size_t>(lowest - units.begin());
  if (!options_.training) return;
  const Reducer::Options reductions{.policy = options_.policy,
                                    .dtype = options_.gradient_dtype,
                                    .wire = options_.wire_dtype.value_or(options_.gradient_dtype),
                                    .overlap = options_.overlap,
                                    .bucket = options_.reduce_bucket};
  reducer_.emplace(context_, ranks_, reductions, model_.units());
  optimizer_.emplace(context_, ranks_, options_.policy, options_.dtype, options_.optimizer, model_.units(), residency_,
                     *reducer_);
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
}

void ShardedModel::load_kept(const StateSource& source) {
  std::vector<SegmentIndex> segments = segments_of(model_.units(), /*trainable=*/false);
  if (!optimizer_)
    for (const SegmentIndex at : segments_of(model_.units(), /*trainable=*/true)) segments.push_back(at);
  for (const SegmentIndex at : segments) {
    const Unit& unit = *model_.units()[at.unit];
    const Interval kept = residency_.kept(at);
    const Segment& segment = unit.segments()[at.segment];
    if (segment.content == SegmentContent::scales) continue;  // filled with their codes
    if (segment.content == SegmentContent::codes) {
      load_codes(context_, source, unit, at.segment, kept,
                 {residency_.stored(at), residency_.stored({at.unit, segment.scales})});
      continue;
    }
    for (const ParameterPiece& piece : pieces_in(unit, at.segment, kept)) {
      const int64_t begin = piece.in_segment.begin - kept.begin;
      source.fill(StateKind::master, unit.parameters()[piece.parameter], piece.in_parameter,
                  residency_.stored(at).flat(begin, begin + piece.in_segment.size()));
    }
  }
}

Tensor ShardedModel::whole_parameter(const Unit& unit, const Parameter& parameter) const {
  const auto [begin, end] = parameter.range;
  const Tensor values = residency_.whole({unit.index(), parameter.segment}).flat(begin, end).reshape(parameter.shape);
  if (!parameter.coded) return values;
  const Tensor scales = residency_.whole({unit.index(), unit.segments()[parameter.segment].scales});
  return decoded(context_,
                 {values, scales.flat(begin / kCodeBlock, end / kCodeBlock).reshape(scales_shape(parameter.shape))},
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

void ShardedModel::begin_micro_batch(bool last) {
  if (reducer_) reducer_->begin_micro_batch(last);
}

std::vector<double> ShardedModel::finish_gradients() {
  require_training("finish_gradients()");
  reducer_->finish_step();
  return optimizer_->owned_sums_of_squares();
}

void ShardedModel::update(double lr, double gradient_scale) {
  require_training("update()");
  residency_.settle();
  optimizer_->update(lr, gradient_scale);
  residency_.exchange_updates();
  if (!options_.overlap) residency_.settle();
  reducer_->reset();
}

void ShardedModel::discard_gradients() {
  require_training("discard_gradients()");
  reducer_->settle();
  reducer_->reset();
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
    ranks_.wait(ranks_.all_gather(reducer_->owned(at), whole));
    for (const size_t i : of.segments()[segment].parameters) {
      const Parameter& parameter = of.parameters()[i];
      gradients[i] = whole.flat(parameter.range.begin, parameter.range.end).reshape(parameter.shape);
    }
  }
  return gradients;
}

void ShardedModel::settle() {
  if (reducer_) reducer_->settle();
  residency_.settle();
}

void ShardedModel::lease(const Unit& unit) {
  residency_.lease(unit.index());
  for (const Unit* other : unit.borrowed()) residency_.lease(other->index());
}

void ShardedModel::release(const Unit& unit) {
  residency_.release(unit.index());
  for (const Unit* other : unit.borrowed()) residency_.release(other->index());
}

std::string ShardedModel::at_work() const {
  std::string where = unit_at_work_ == nullptr ? "before the first Unit" : unit_at_work_->name();
  for (const Part& part : parts_) where += fmt::format(".{}", part.name);
  return fmt::format("{}, {}", where, walking_back_ ? "backward" : "forward");
}

void ShardedModel::begin_pass(const Unit& unit, bool walking_back) {
  unit_at_work_ = &unit, walking_back_ = walking_back, pass_begin_ = TraceEvent::Clock::now();
  parts_.clear();  // of a pass that was given up
}

void ShardedModel::note_pass() const {
  Timeline* timeline = mesh_.world().timeline();
  if (timeline != nullptr && timeline->recording())
    timeline->add({TraceEventKind::unit, at_work(), pass_begin_, TraceEvent::Clock::now()});
}

void ShardedModel::before_forward(Unit& unit) {
  begin_pass(unit, false);
  lease(unit);
  if (options_.overlap && unit.index() + 1 < model_.units().size()) residency_.prefetch(unit.index() + 1);
}

void ShardedModel::after_forward(Unit& unit) {
  release(unit);
  note_pass();
}

void ShardedModel::before_backward(Unit& unit) {
  begin_pass(unit, true);
  lease(unit);
  if (options_.overlap && unit.index() > lowest_trained_) residency_.prefetch(unit.index() - 1);
}

void ShardedModel::after_backward(Unit& unit) {
  release(unit);
  if (reducer_) reducer_->finish(unit.index());
  note_pass();
}

void ShardedModel::enter_part(const char* name) { parts_.push_back({name, TraceEvent::Clock::now()}); }

void ShardedModel::leave_part() {
  const auto [name, begin] = parts_.back();
  parts_.pop_back();
  Timeline* timeline = mesh_.world().timeline();
  if (timeline != nullptr && timeline->recording())
    timeline->add({TraceEventKind::part, name, begin, TraceEvent::Clock::now()});
}

GradSink ShardedModel::gradient(const Unit& unit, size_t first, size_t last) {
  return reducer_ ? reducer_->sink(unit.index(), first, last) : GradSink{};
}

}  // namespace nought
