#include "nought/zero/compressed_update.h"

#include <algorithm>
#include <cmath>

#include "nought/optim/compressed_phase.h"

namespace nought {

namespace {

Tensor values_of(const TrainedPiece& piece, const Tensor& whole) {
  return whole.flat(piece.piece.in_segment.begin, piece.piece.in_segment.end);
}

bool is_apart(CompressedPhase phase) {
  return phase == CompressedPhase::local || phase == CompressedPhase::synchronization;
}

/// Lamb's trust ratio of norms; 1 if one of them is zero.
double trust_ratio(const OneBitLambOptions& lamb, double squares, double squares_of_update) {
  if (squares == 0 || squares_of_update == 0) return 1;
  return std::clamp(std::sqrt(squares) / std::sqrt(squares_of_update), lamb.min_coeff, lamb.max_coeff);
}

}  // namespace

CompressedUpdate::CompressedUpdate(const Context& context, const OptimizerOptions& options,
                                   const std::vector<SegmentStates>& states,
                                   const std::vector<std::unique_ptr<Unit>>& units, const Residency& residency,
                                   const Reducer& reducer)
    : context_(context),
      method_(options.method),
      states_(states),
      units_(units),
      residency_(residency),
      reducer_(reducer) {
  const bool parts = std::holds_alternative<ZeroOneAdamOptions>(method_);
  int64_t parameters = 0;
  for (const SegmentStates& state : states_) {
    const Partition& partition = residency_.partition(state.at);
    require<ConfigError>(state.tiles.size() == 1 && state.scope.size() == partition.padded() &&
                             options.state_dtype == DType::f32 && options.state_block == 0,
                         "a 1-bit optimizer keeps whole fp32 states on every rank: use ZeRO stage 0");
    std::vector<Interval> pieces;
    for (const TrainedPiece& piece : state.tiles.front().pieces) pieces.push_back(piece.piece.in_segment);
    Own& own = own_.emplace_back(Own{.name = fmt::format("{}.{}", units_[state.at.unit]->name(), state.at.segment),
                                     .exchange = {context_, *state.ranks, partition, pieces},
                                     .first_parameter = parameters});
    parameters += static_cast<int64_t>(state.parameters.size());
    if (!parts) continue;
    own.moved = context_.zeros({state.scope.size()}, DType::f32, Category::optimizer);
    own.anchor = context_.zeros({state.scope.size()}, DType::f32, Category::optimizer);
  }
  const auto host_zeros = [&](int64_t count) {
    return Tensor::zeros(*context_.memory, {count}, DType::f64, Category::optimizer, context_.memory->host_pool());
  };
  if (parts) rate_sum_ = host_zeros(1);
  if (std::holds_alternative<OneBitLambOptions>(method_)) {
    coefficients_ = host_zeros(2 * parameters);
    for (int64_t i = 0; i < parameters; ++i) coefficients_.data<double>()[2 * i + 1] = 1;
  }
}

std::unique_ptr<CompressedUpdate> CompressedUpdate::make(const Context& context, const OptimizerOptions& options,
                                                         const std::vector<SegmentStates>& states,
                                                         const std::vector<std::unique_ptr<Unit>>& units,
                                                         const Residency& residency, const Reducer& reducer) {
  if (!compresses(options.method)) return nullptr;
  return std::unique_ptr<CompressedUpdate>(new CompressedUpdate(context, options, states, units, residency, reducer));
}

bool CompressedUpdate::reads_local_gradients(int64_t number) const {
  return phase_of(method_, number) != CompressedPhase::plain;
}

bool CompressedUpdate::needs_rank_local_tensors(int64_t updates) const {
  const CompressedPhase phase = phase_of(method_, updates);
  return is_apart(phase) || (phase == CompressedPhase::momentum && coefficients_);
}

std::vector<RankLocalTensor> CompressedUpdate::rank_local_tensors(
    int64_t updates, const std::function<void(const SegmentStates&, const TileWork&)>& read) const {
  std::vector<RankLocalTensor> own;
  const bool apart = is_apart(phase_of(method_, updates));
  for (size_t i = 0; i < states_.size(); ++i) {
    own.push_back({"worker_error/" + own_[i].name, own_[i].exchange.worker_error()});
    own.push_back({"server_error/" + own_[i].name, own_[i].exchange.server_error()});
    if (!apart) continue;
    own.push_back({"moved/" + own_[i].name, own_[i].moved});
    own.push_back({"met/" + own_[i].name, own_[i].anchor});
    own.push_back({"weights/" + own_[i].name, residency_.updating(states_[i].at)});
    read(states_[i], [&](const TileView& tile) {
      for (const TrainedPiece& piece : tile.of->pieces) {
        const std::string name = fmt::format("{}/{}", own_[i].name, piece.piece.in_segment.begin);
        own.push_back({"exp_avg/" + name, tile.values(piece.states.front())});
        if (tile.of->keeps_masters) own.push_back({"master/" + name, tile.master(piece)});
      }
    });
  }
  if (coefficients_) own.push_back({"coefficients", coefficients_});
  if (apart) own.push_back({"rate_sum", rate_sum_});
  return own;
}

void CompressedUpdate::own_squares(const SegmentStates& state, const Tensor& sum) const {
  context_.run(SumSquares{.x = reducer_.reduced(state.at), .out = sum});
  context_.run(Scale{.x = sum, .factor = static_cast<double>(state.ranks->size())});
}

bool CompressedUpdate::update(int64_t number, double lr, double gradient_scale, const WalkTiles& walk) {
  const CompressedPhase phase = phase_of(method_, number);
  const bool lamb = std::holds_alternative<OneBitLambOptions>(method_);
  if (phase == CompressedPhase::plain && !lamb) return false;
  const bool begins_apart = is_apart(phase) && !is_apart(phase_of(method_, number - 1));
  if (is_apart(phase)) rate_sum_.data<double>()[0] += lr;
  walk([&](const TileView& tile) {
    // The ranks' own gradients add up to the mean loss's: times their number they are means themselves.
    const double scale = phase == CompressedPhase::plain ? gradient_scale : gradient_scale * tile.state.ranks->size();
    Own& own = local_of(tile);
    const Step step{.own = own, .lr = lr, .gradient_scale = scale};
    const Tensor values = context_.empty({tile.state.scope.size()}, DType::f32, Category::workspace);
    if (begins_apart) {
      own.exchange.forget_errors();
      for (const TrainedPiece& piece : tile.of->pieces) context_.copy(tile.master(piece), values_of(piece, own.anchor));
    }
    if (phase == CompressedPhase::plain) {
      lamb_plain(tile, step, values);
    } else if (phase == CompressedPhase::momentum && lamb) {
      lamb_by_momentum(tile, step, values);
    } else if (phase == CompressedPhase::momentum) {
      send_momentum(tile, step, values);
      apply_momentum(tile, step, values);
    } else if (phase == CompressedPhase::gradient) {
      send_gradient(tile, step, values);
      apply_momentum(tile, step, values);
    } else {
      move_apart(tile, step, values);
      if (phase == CompressedPhase::synchronization) synchronize(tile, step, values);
    }
  });
  if (phase == CompressedPhase::synchronization) rate_sum_.data<double>()[0] = 0;
  return true;
}

void CompressedUpdate::one_bit_mean(const TileView& tile, const Step& step, const Tensor& values) const {
  if (tile.state.ranks->size() > 1) step.own.exchange.mean(values);
}

/// The piece's momentum takes the gradient in; `into` gets what it is then.
void CompressedUpdate::advance_momentum(const TileView& tile, const TrainedPiece& piece, const Tensor& gradient,
                                        double gradient_scale, const Tensor& into) const {
  context_.run(MomentumDirection{.momentum_buffer = tile.values(piece.states[0]),
                                 .gradient = gradient,
                                 .direction = into,
                                 .momentum = moment_rule(method_).beta1,
                                 .gradient_scale = gradient_scale,
                                 .nesterov = false});
}

void CompressedUpdate::send_momentum(const TileView& tile, const Step& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces)
    advance_momentum(tile, piece, gradient_of(tile, piece), step.gradient_scale, values_of(piece, values));
  one_bit_mean(tile, step, values);
  for (const TrainedPiece& piece : tile.of->pieces)
    context_.copy(values_of(piece, values), tile.values(piece.states[0]));
}

void CompressedUpdate::send_gradient(const TileView& tile, const Step& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    context_.run(Cast{.x = gradient_of(tile, piece), .y = mine});
    context_.run(Scale{.x = mine, .factor = step.gradient_scale});
  }
  one_bit_mean(tile, step, values);
  const Tensor room = context_.empty(values.shape(), DType::f32, Category::workspace);
  for (const TrainedPiece& piece : tile.of->pieces) {
    advance_momentum(tile, piece, values_of(piece, values), 1, values_of(piece, room));
    context_.copy(values_of(piece, room), values_of(piece, values));
  }
}

/// p -= lr * (m / (sqrt(v) + eps) + weight_decay * p), where values hold m.
void CompressedUpdate::apply_momentum(const TileView& tile, const Step& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    const double lr = step.lr * piece.rule.lr_scale;
    move(tile, piece, mine, lr, 1 - lr * piece.rule.weight_decay);
  }
}

void CompressedUpdate::precondition(const TileView& tile, const TrainedPiece& piece, const Tensor& x, const Tensor& y,
                                    bool multiply) const {
  context_.run(Precondition{.x = x,
                            .second_moment = tile.values(piece.states[1]),
                            .y = y,
                            .eps = moment_rule(method_).eps,
                            .multiply = multiply});
}

void CompressedUpdate::move(const TileView& tile, const TrainedPiece& piece, const Tensor& direction, double step,
                            double keep) const {
  context_.run(
      ApplyDirection{.parameter = tile.master(piece),
                     .direction = direction,
                     .parameter_copy = tile.of->keeps_masters ? tile.state.part(piece, tile.parameter) : Tensor{},
                     .step = step,
                     .keep = keep});
}

/// An update of this rank alone; what it adds to the parameters is added to what they have moved.
void CompressedUpdate::move_apart(const TileView& tile, const Step& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    advance_momentum(tile, piece, gradient_of(tile, piece), step.gradient_scale, mine);
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    if (piece.rule.weight_decay != 0)
      context_.run(
          ApplyDirection{.parameter = mine, .direction = tile.master(piece), .step = -piece.rule.weight_decay});
    const double lr = step.lr * piece.rule.lr_scale;
    context_.run(ApplyDirection{.parameter = values_of(piece, step.own.moved), .direction = mine, .step = lr});
    move(tile, piece, mine, lr, 1);
  }
}

/// From where the ranks last synchronized they all go the compressed mean of what each has moved, and take the momentum
/// that would have moved them so.
void CompressedUpdate::synchronize(const TileView& tile, const Step& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces)
    precondition(tile, piece, values_of(piece, step.own.moved), values_of(piece, values), /*multiply=*/true);
  one_bit_mean(tile, step, values);
  const double rates = rate_sum_.data<double>()[0];
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values), momentum = tile.values(piece.states[0]);
    if (const double rate = rates * piece.rule.lr_scale; rate > 0) {
      context_.copy(mine, momentum);
      context_.run(Scale{.x = momentum, .factor = -1 / rate});
    }
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    context_.copy(values_of(piece, step.own.anchor), tile.master(piece));
    move(tile, piece, mine, -1, 1);
    context_.copy(tile.master(piece), values_of(piece, step.own.anchor));
  }
  context_.zero(step.own.moved);
}

std::vector<double> CompressedUpdate::parameter_squares(const TileView& tile,
                                                        const std::function<Tensor(const TrainedPiece&)>& of) const {
  const auto count = static_cast<int64_t>(tile.state.parameters.size());
  const Tensor one = context_.empty({1}, DType::f64, Category::workspace);
  const Tensor sums = context_.zeros({count}, DType::f64, Category::workspace);
  for (const TrainedPiece& piece : tile.of->pieces) {
    const auto place = static_cast<int64_t>(piece.place);
    context_.run(SumSquares{.x = of(piece), .out = one});
    context_.run(AddTo{.x = one, .into = sums.flat(place, place + 1)});
  }
  return context_.to_host<double>(sums);
}

LambDirection CompressedUpdate::lamb_direction(const TileView& tile, const TrainedPiece& piece, const Tensor& gradient,
                                               const Tensor& second, const Tensor& into) const {
  const MomentRule rule = moment_rule(method_);
  return {.parameter = tile.master(piece),
          .exp_avg = tile.values(piece.states[0]),
          .exp_avg_sq = second,
          .gradient = gradient,
          .direction = into,
          .beta1 = rule.beta1,
          .beta2 = rule.beta2,
          .eps = rule.eps,
          .weight_decay = piece.rule.weight_decay};
}

/// Lamb without bias correction. The trust ratios of the parameters are averaged for later.
void CompressedUpdate::lamb_plain(const TileView& tile, const Step& step, const Tensor& values) const {
  const auto& lamb = std::get<OneBitLambOptions>(method_);
  for (const TrainedPiece& piece : tile.of->pieces) {
    LambDirection op =
        lamb_direction(tile, piece, gradient_of(tile, piece), tile.values(piece.states[1]), values_of(piece, values));
    op.gradient_scale = step.gradient_scale;
    context_.run(op);
    context_.copy(tile.values(piece.states[1]), tile.values(piece.states[2]));
  }
  const std::vector<double> squares = parameter_squares(tile, [&](const auto& piece) { return tile.master(piece); });
  const std::vector<double> updates =
      parameter_squares(tile, [&](const auto& piece) { return values_of(piece, values); });
  double* const coefficients = coefficients_.data<double>() + 2 * step.own.first_parameter;
  std::vector<double> ratios;
  for (size_t i = 0; i < squares.size(); ++i) {
    ratios.push_back(trust_ratio(lamb, squares[i], updates[i]));
    if (ratios[i] != 1) coefficients[2 * i] = lamb.coeff_beta * coefficients[2 * i] + (1 - lamb.coeff_beta) * ratios[i];
  }
  for (const TrainedPiece& piece : tile.of->pieces)
    move(tile, piece, values_of(piece, values), step.lr * piece.rule.lr_scale * ratios[piece.place], 1);
}

/// The step that Lamb would take is estimated: by the mean trust ratio of the warm-up, and by how the second moments of
/// the gradients have changed since, which the momenta tell.
void CompressedUpdate::lamb_by_momentum(const TileView& tile, const Step& step, const Tensor& values) const {
  const auto& lamb = std::get<OneBitLambOptions>(method_);
  const Tensor before = context_.empty(values.shape(), DType::f32, Category::workspace);
  for (const TrainedPiece& piece : tile.of->pieces)
    context_.copy(tile.values(piece.states[0]), values_of(piece, before));
  send_momentum(tile, step, values);
  const Tensor room = context_.empty(values.shape(), DType::f32, Category::workspace);
  const auto count = static_cast<int64_t>(tile.state.parameters.size());
  std::vector<double> factors(static_cast<size_t>(count));
  const Tensor greatest = context_.zeros({1}, DType::f32, Category::workspace);
  for (const TrainedPiece& piece : tile.of->pieces) {
    // The gradient that takes the momentum of before to that of now.
    const Tensor gradient = values_of(piece, room), old = values_of(piece, before);
    context_.copy(values_of(piece, values), gradient);
    context_.run(ApplyDirection{
        .parameter = gradient, .direction = old, .step = lamb.beta1 / (1 - lamb.beta1), .keep = 1 / (1 - lamb.beta1)});
    const Tensor fresh = tile.values(piece.states[2]);
    LambDirection op = lamb_direction(tile, piece, gradient, fresh, gradient);
    op.exp_avg = old;
    context_.run(op);
    context_.run(GreatestRatio{.a = tile.values(piece.states[1]), .b = fresh, .out = greatest, .eps = lamb.eps});
    factors[piece.place] =
        std::max(factors[piece.place], static_cast<double>(context_.to_host<float>(greatest).front()));
    precondition(tile, piece, values_of(piece, values), values_of(piece, values), /*multiply=*/false);
    context_.copy(values_of(piece, values), gradient);
    context_.run(
        ApplyDirection{.parameter = gradient, .direction = tile.master(piece), .step = -piece.rule.weight_decay});
  }
  const std::vector<double> without =
      parameter_squares(tile, [&](const auto& piece) { return values_of(piece, values); });
  const std::vector<double> with = parameter_squares(tile, [&](const auto& piece) { return values_of(piece, room); });
  double* const coefficients = coefficients_.data<double>() + 2 * step.own.first_parameter;
  std::vector<double> rates;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double share = with[i] == 0 ? 1 : std::min(1.0, std::sqrt(without[i]) / std::sqrt(with[i]));
    double& last = coefficients[2 * i + 1];
    last = std::clamp(std::clamp(factors[i] * share + (1 - share), lamb.factor_min, lamb.factor_max),
                      last * (1 - lamb.factor_threshold), last * (1 + lamb.factor_threshold));
    rates.push_back(coefficients[2 * i] * last);
  }
  for (const TrainedPiece& piece : tile.of->pieces)
    move(tile, piece, values_of(piece, room), step.lr * piece.rule.lr_scale * rates[piece.place], 1);
}

}  // namespace nought
