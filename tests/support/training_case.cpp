#include "support/training_case.h"

#include <chrono>
#include <numeric>

#include "support/guarded_context.h"
#include "support/schedules.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"
#include "nought/kernels/timed.h"
#include "nought/tensor/random.h"

namespace nought::test {
namespace {

Decoder& prepared(Decoder& decoder, const TrainingCase& of) {
  if (!of.freezing.empty() || of.freezing.codes) apply(of.freezing, decoder);
  if (of.prepare) of.prepare(decoder);
  return decoder;
}

ShardedModel::Options settings_of(const TrainingCase& of) {
  ShardedModel::Options settings = of.settings;
  settings.policy = Policy::stage(of.mesh.stage);
  return settings;
}

void load(TrainingRank& rank) {
  const TrainingCase& of = rank.of;
  if (!of.resumed.empty()) {
    const Checkpoint checkpoint(last_checkpoint(of.resumed), rank.decoder);
    checkpoint.require_same_frozen(rank.decoder);
    rank.model.load(checkpoint, checkpoint.info().step);
    if (checkpoint.info().pending) rank.model.load_pending_update(checkpoint, *checkpoint.info().pending);
    checkpoint.fill_rank_states(rank.model);
  } else if (of.load) {
    of.load(rank.model, rank.decoder);
  } else {
    rank.model.load(InitialState(3));
  }
}

/// A message that never comes is told, and no test is without an end.
constexpr std::chrono::seconds kPatience{120};

std::vector<Context> contexts_for(const TrainingCase& of) {
  return of.contexts.empty() ? contexts_of(of.mesh.ranks(), of.guarded) : of.contexts;
}

/// What a rank computes with.
Context computing(Context context, int rank, const TrainingCase& of, const std::shared_ptr<Timeline>& timeline) {
  if (timeline) context.kernels = make_timed_kernels(context.kernels, timeline);
  if (of.watcher && rank == of.watched) context.kernels = make_watching_kernels(context.kernels, of.watcher);
  return context;
}

/// The part of a step's numbers that begins `first` steps later.
std::vector<double> rest_of(const std::vector<double>& values, size_t first) {
  return values.size() < first ? std::vector<double>()
                               : std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(first), values.end());
}

}  // namespace

double TrainingResult::last_loss(size_t count) const {
  const std::vector<double> last = rest_of(losses, losses.size() - std::min(count, losses.size()));
  return std::accumulate(last.begin(), last.end(), 0.0) / static_cast<double>(count);
}

int64_t TrainingResult::skipped() const {
  return std::count_if(scales.begin(), scales.end(), [](double scale) { return scale < 0; });
}

TrainingCase TrainingCase::in(DType dtype) const {
  TrainingCase other = *this;
  other.settings.dtype = other.settings.gradient_dtype = dtype;
  return other;
}

std::string TrainingCase::str() const {
  return fmt::format(
      "{} on {}, {}, {} micro-batches{}{}{}{}{}, buckets of {}, recompute {}, states in the {} pool, "
      "parameters in the {}",
      model.family, mesh.str(), name_of(settings.dtype), accumulation, guarded ? ", on the guarded device" : "",
      settings.overlap ? "" : ", without overlap",
      fp8.scaling != Fp8Scaling::none ? fmt::format(", fp8 {}", name_of(fp8.scaling)) : "",
      freezing.freeze.empty() ? "" : fmt::format(", {} frozen", freezing.freeze.front()),
      schedule.empty() ? "" : ", " + schedule, settings.reduce_bucket, recompute.str(),
      name_of(settings.offload_optimizer.tier.pool), name_of(settings.offload_param.tier.pool));
}

Batch rows_of(Memory& memory, const ModelConfig& model, const Rows& rows, int64_t step, int64_t micro_batch,
              int64_t micro_batches, int rank, int ranks) {
  const int64_t together = rows.of_step / micro_batches, own = together / ranks, length = rows.length;
  require(own * ranks * micro_batches == rows.of_step, "{} rows do not divide into {} micro-batches of {} ranks",
          rows.of_step, micro_batches, ranks);
  const auto vocabulary = static_cast<double>(model.vocab_size);
  std::vector<int32_t> ids, targets;
  std::vector<std::vector<int32_t>> starts;
  std::vector<uint64_t> keys;
  for (int64_t row = rank * own; row < (rank + 1) * own; ++row) {
    const int64_t of_step = (step * rows.of_step) + micro_batch * together + row;
    keys.push_back(static_cast<uint64_t>(of_step));
    if (rows.documents)
      starts.push_back({0, static_cast<int32_t>(1 + row % 3), static_cast<int32_t>(length - 1 - row / 3)});
    const auto learnable = [&](int64_t i) {
      const uint32_t noise = philox(7, static_cast<uint64_t>(of_step), static_cast<uint64_t>(i))[0];
      return static_cast<int32_t>((i * 5 + of_step % rows.of_step + (noise % 4 == 0 ? noise % 17 : 0)) %
                                  model.vocab_size);
    };
    for (int64_t t = 0; t < length; ++t) {
      const auto random = [&](uint64_t seed) {
        return static_cast<int32_t>(vocabulary * (1 - uniform_at(seed, static_cast<uint64_t>(of_step * length + t))));
      };
      ids.push_back(rows.learnable ? learnable(t) : random(7));
      const bool counts = t >= 2 * row % length && (row != 2 || micro_batch == 0);
      targets.push_back(rows.learnable ? learnable(t + 1) : counts ? random(8) : kIgnoredTarget);
    }
  }
  return {Tensor::of<int32_t>(memory, {own, length}, ids),
          Tensor::of<int32_t>(memory, {own, length}, targets),
          std::move(starts),
          {},
          false,
          std::move(keys)};
}

TrainingRank::TrainingRank(Communicator& world_of, const Context& on, const TrainingCase& of_case)
    : of(of_case),
      world(world_of),
      timeline(of.timed ? std::make_shared<Timeline>() : nullptr),
      context(computing(on, world.rank(), of, timeline)),
      mesh(world, of.mesh.grid()),
      decoder(of.model, of.recompute, of.fp8,
              ModelRanks(mesh, of.mesh.sequence_parallel, of.mesh.cut(), of.mesh.method)),
      model(context, mesh, prepared(decoder, of), settings_of(of)),
      engine(model, of.scaler, of.gradient_factor, of.on_nonfinite) {
  load(*this);
  engine.set_schedule(schedule_at(mesh, of.mesh.pipeline()));
  if (!of.schedule.empty()) engine.set_schedule(always(of.schedule));
}

std::vector<Batch> TrainingRank::batches(int64_t step) const {
  const Communicator& samples = mesh.group(Group::samples);
  std::vector<Batch> all;
  for (int64_t i = 0; i < of.accumulation; ++i)
    all.push_back(
        rows_of(*context.memory, of.model, of.rows, step, i, of.accumulation, samples.rank(), samples.size()));
  return all;
}

double TrainingRank::targets(int64_t step) const {
  double all = 0;
  for (int64_t i = 0; i < of.accumulation; ++i)
    all += CrossEntropyObjective().weight(rows_of(*context.memory, of.model, of.rows, step, i, of.accumulation, 0, 1));
  return all;
}

StepResult TrainingRank::step(int64_t step) { return engine.step(batches(step), targets(step), of.lr, of.clipping); }

double TrainingRank::evaluate(int64_t step) {
  std::vector<Batch> all = batches(step);
  for (Batch& batch : all) batch.row_keys.clear();
  return engine.evaluate(all, targets(step));
}

WholeTensors TrainingRank::weights() { return whole_weights(model); }

WholeTensors TrainingRank::gradients(int64_t step) {
  engine.accumulate(batches(step), targets(step));
  WholeTensors all;
  for (size_t unit = 0; unit < decoder.units().size(); ++unit)
    model.with_gradients(unit, [&](const Parameter& parameter, const Tensor& gradient) {
      if (gradient) all[parameter.name] = context.on_host(gradient).to_vector<float>();
    });
  model.discard_gradients();
  return all;
}

std::vector<float> TrainingRank::cached_logits() {
  DecoderCache cache = decoder.make_cache(context, 12, DType::f32);
  const std::vector<int32_t> prompt{5, 60, 17, 0, 2}, next{33};
  decoder.next_logits(context, std::array{NextTokens{0, prompt}}, cache);
  return decoder.next_logits(context, std::array{NextTokens{0, next}}, cache).to_vector<float>();
}

AloneRank::AloneRank(const TrainingCase& of)
    : self(make_self_communicator()), rank(*self, contexts_for(of).front(), of) {}

TrainingCase learning(const ModelConfig& model, const MeshLayout& mesh) {
  return {.model = model,
          .mesh = mesh,
          .settings = {.optimizer = {.weight_decay = 0.1}},
          .rows = {.of_step = 4, .length = 8, .learnable = true},
          .accumulation = 1,
          .clipping = 1};
}

void TrainingCase::on_ranks(const std::function<void(TrainingRank&)>& body) const {
  run_ranks(contexts_for(*this), [&](Communicator& world, const Context& context) {
    world.set_timeout(kPatience);
    TrainingRank rank(world, context, *this);
    body(rank);
  });
}

TrainingResult TrainingCase::run_in(Communicator& world, const Context& context) const {
  TrainingRank rank(world, context, *this);
  TrainingResult result;
  result.of = str();
  for (int64_t step = steps.begin; step < steps.end; ++step) {
    const StepResult each = rank.step(step);
    if (evaluates) result.validations.push_back(rank.evaluate(step));
    if (clipping == kActiveClipping && !each.skipped) {
      EXPECT_GT(each.grad_norm, clipping) << "clipping is active";
    }
    result.losses.push_back(each.loss), result.norms.push_back(each.skipped ? 0 : each.grad_norm);
    result.scales.push_back(each.skipped ? -each.loss_scale : each.loss_scale);
  }
  if (!saved.empty())
    save_checkpoint(rank.model,
                    {.step = steps.end, .world_size = world.size(), .pending = rank.model.optimizer().pending()},
                    saved);
  if (rank.model.optimizer().pending()) rank.model.finish_pending_update();
  result.chosen = rank.decoder.router_loads().chosen;
  result.weights = rank.weights();
  return rank.is_first() ? std::move(result) : TrainingResult();
}

TrainingResult TrainingCase::run() const {
  TrainingResult result;
  run_ranks(contexts_for(*this), [&](Communicator& world, const Context& context) {
    world.set_timeout(kPatience);
    TrainingResult of_rank = run_in(world, context);
    if (world.rank() == 0) result = std::move(of_rank);
  });
  return result;
}

WholeTensors TrainingCase::gradients(int64_t step) const {
  WholeTensors all = on_rank(0, [&](TrainingRank& rank) { return rank.gradients(step); });
  EXPECT_FALSE(all.empty());
  return all;
}

std::vector<float> TrainingCase::cached_logits() const {
  return on_rank(-1, [](TrainingRank& rank) { return rank.cached_logits(); });
}

namespace {

/// The largest difference of the elements; infinity where one is NaN.
double largest_difference(const std::vector<float>& values, const std::vector<float>& expected) {
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double distance = std::abs(static_cast<double>(values[i]) - static_cast<double>(expected[i]));
    largest = std::isnan(distance) ? INFINITY : std::max(largest, distance);
  }
  return largest;
}

/// Calls f(name, values, those expected) for each tensor. Both have the same names and sizes.
template <class F>
void for_each_pair(const WholeTensors& values, const WholeTensors& expected, const F& f) {
  EXPECT_EQ(values.size(), expected.size());
  for (const auto& [name, tensor] : values) {
    const auto found = expected.find(name);
    ASSERT_NE(found, expected.end()) << name;
    ASSERT_EQ(tensor.size(), found->second.size()) << name;
    f(name, tensor, found->second);
  }
}

}  // namespace

void expect_same_bits(const WholeTensors& values, const WholeTensors& expected) {
  for_each_pair(values, expected, [](const std::string& name, const auto& tensor, const auto& other) {
    const auto [at, differs] = std::mismatch(tensor.begin(), tensor.end(), other.begin());
    if (at != tensor.end()) ADD_FAILURE() << name << " has " << *at << ", expected " << *differs;
  });
}

void expect_close(const WholeTensors& values, const WholeTensors& expected, double tolerance) {
  for_each_pair(values, expected, [&](const std::string& name, const auto& tensor, const auto& other) {
    EXPECT_LE(largest_difference(tensor, other), tolerance) << name;
  });
}

double largest_difference(const WholeTensors& values, const WholeTensors& expected) {
  double largest = 0;
  for_each_pair(values, expected, [&](const std::string&, const auto& tensor, const auto& other) {
    largest = std::max(largest, largest_difference(tensor, other));
  });
  return largest;
}

void expect_same_bits(const TrainingResult& result, const TrainingResult& expected, size_t first) {
  SCOPED_TRACE(result.of);
  EXPECT_EQ(result.losses, rest_of(expected.losses, first));
  EXPECT_EQ(result.norms, rest_of(expected.norms, first));
  EXPECT_EQ(result.scales, rest_of(expected.scales, first));
  EXPECT_EQ(result.validations, rest_of(expected.validations, first));
  EXPECT_EQ(result.chosen, expected.chosen);
  expect_same_bits(result.weights, expected.weights);
}

void expect_close(const TrainingResult& result, const TrainingResult& expected, size_t first, double tolerance) {
  SCOPED_TRACE(result.of);
  expect_losses_within(result, expected, tolerance, first);
  for (size_t i = 0; i < std::min(result.norms.size(), expected.norms.size() - first); ++i)
    ASSERT_NEAR(result.norms[i], expected.norms[first + i], tolerance * expected.norms[first + i])
        << "norm of step " << first + i;
  expect_close(result.weights, expected.weights, tolerance);
}

void expect_losses_within(const TrainingResult& result, const TrainingResult& expected, double tolerance,
                          size_t first) {
  SCOPED_TRACE(result.of);
  ASSERT_EQ(result.losses.size() + first, expected.losses.size());
  for (size_t i = 0; i < result.losses.size(); ++i)
    ASSERT_NEAR(result.losses[i], expected.losses[first + i], tolerance) << "loss of step " << first + i;
}

TrainingResult same_at_every_stage(TrainingCase each) {
  each.mesh.stage = 0;
  TrainingResult first = each.run();
  for (const int stage : {1, 2, 3}) {
    each.mesh.stage = stage;
    each.settings.overlap = stage != 2;
    each.recompute = stage == 1 ? Recompute::none : stage == 2 ? Recompute::selective : Recompute::full;
    expect_same_bits(each.run(), first);
  }
  return first;
}

void expect_close_on(const std::vector<MeshLayout>& meshes, TrainingCase each, const TrainingResult& alone) {
  for (const MeshLayout& mesh : meshes) {
    each.mesh = mesh;
    expect_close(each.run(), alone);
  }
}

void expect_like_one_rank(const std::vector<MeshLayout>& meshes,
                          const std::function<TrainingCase(const MeshLayout&)>& on) {
  std::map<int, TrainingResult> alone;  // by the layers of the model
  for (const MeshLayout& mesh : meshes) {
    const TrainingCase each = on(mesh);
    if (!alone.contains(mesh.layers())) {
      TrainingCase one = each;
      one.mesh = {}, one.recompute = {};
      alone[mesh.layers()] = one.run();
    }
    expect_close(each.run(), alone.at(mesh.layers()));
  }
}

TrainingResult resumed_at(int64_t cut, TrainingCase first, TrainingCase rest) {
  const TempFolder folder;
  first.saved = rest.resumed = folder.path().string();
  first.steps.end = rest.steps.begin = cut;
  first.run();
  return rest.run();
}

}  // namespace nought::test
