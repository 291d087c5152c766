// The part of ShardedOptimizer that sends signs instead of gradients: 1-bit Adam (arXiv 2102.02888), 0/1 Adam (arXiv
// 2202.06009) and 1-bit Lamb (arXiv 2104.06069), with the semantics of DeepSpeed's OneBitAdam, ZeroOneAdam, OneBitLamb.
//
// Every rank updates all parameters, and what makes the update is the same bits on all of them: compressed means
// (SignExchange) and states that were formed of such. Between two meetings of 0/1 Adam alone each rank goes its own
// way.
#include <algorithm>
#include <cmath>

#include "nought/optim/compressed_phase.h"
#include "nought/zero/compressed_states.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

namespace {

Tensor values_of(const TrainedPiece& piece, const Tensor& whole) {
  return whole.flat(piece.piece.in_segment.begin, piece.piece.in_segment.end);
}

bool is_apart(CompressedPhase phase) { return phase == CompressedPhase::local || phase == CompressedPhase::meeting; }

/// Lamb's trust ratio of norms; 1 if one of them is zero.
double trust_ratio(const OneBitLambOptions& lamb, double squares, double squares_of_update) {
  if (squares == 0 || squares_of_update == 0) return 1;
  return std::clamp(std::sqrt(squares) / std::sqrt(squares_of_update), lamb.min_coeff, lamb.max_coeff);
}

}  // namespace

void ShardedOptimizer::prepare_compression() {
  if (!compresses(options_.method)) return;
  compressed_ = std::make_shared<CompressedStates>();
  const bool parts = std::holds_alternative<ZeroOneAdamOptions>(options_.method);
  int64_t parameters = 0;
  for (const SegmentState& state : states_) {
    require<ConfigError>(state.tiles.size() == 1 && state.scope.size() == residency_.partition(state.at).padded() &&
                             options_.state_dtype == DType::f32 && options_.state_block == 0,
                         "an optimizer that sends signs keeps whole fp32 states on every rank: use ZeRO stage 0");
    std::vector<Interval> pieces;
    for (const TrainedPiece& piece : state.tiles.front().pieces) pieces.push_back(piece.piece.in_segment);
    CompressedStates::Segment& segment = compressed_->segments.emplace_back(
        CompressedStates::Segment{.name = fmt::format("{}.{}", units_[state.at.unit]->name(), state.at.segment),
                                  .exchange = {context_, *state.ranks, residency_.partition(state.at), pieces},
                                  .first_parameter = parameters});
    parameters += static_cast<int64_t>(state.parameters.size());
    if (!parts) continue;
    segment.moved = context_.zeros({state.scope.size()}, DType::f32, Category::optimizer);
    segment.met = context_.zeros({state.scope.size()}, DType::f32, Category::optimizer);
  }
  const auto host_zeros = [&](int64_t count) {
    return Tensor::zeros(*context_.memory, {count}, DType::f64, Category::optimizer, context_.memory->host_pool());
  };
  if (parts) compressed_->rate_sum = host_zeros(1);
  if (std::holds_alternative<OneBitLambOptions>(options_.method)) {
    compressed_->coefficients = host_zeros(2 * parameters);
    for (int64_t i = 0; i < parameters; ++i) compressed_->coefficients.data<double>()[2 * i + 1] = 1;
  }
}

bool ShardedOptimizer::wants_own_gradients() const {
  return phase_of(options_.method, updates_ + 1) != CompressedPhase::plain;
}

bool ShardedOptimizer::needs_own_tensors() const {
  const CompressedPhase phase = phase_of(options_.method, updates_);
  return is_apart(phase) || (phase == CompressedPhase::momentum && compressed_->coefficients);
}

std::vector<OwnTensor> ShardedOptimizer::own_tensors() const {
  std::vector<OwnTensor> own;
  if (!compressed_) return own;
  const bool apart = is_apart(phase_of(options_.method, updates_));
  for (size_t i = 0; i < states_.size(); ++i) {
    const CompressedStates::Segment& segment = compressed_->segments[i];
    own.push_back({"worker_error/" + segment.name, segment.exchange.worker_error()});
    own.push_back({"server_error/" + segment.name, segment.exchange.server_error()});
    if (!apart) continue;
    own.push_back({"moved/" + segment.name, segment.moved});
    own.push_back({"met/" + segment.name, segment.met});
    own.push_back({"weights/" + segment.name, residency_.updating(states_[i].at)});
    walk(
        states_[i], {.writes = 0}, [](const Tile&) {},
        [&](const Tile& tile) {
          for (const TrainedPiece& piece : tile.of->pieces) {
            const std::string name = fmt::format("{}/{}", segment.name, piece.piece.in_segment.begin);
            own.push_back({"exp_avg/" + name, tile.values(piece.states.front())});
            if (tile.of->keeps_masters) own.push_back({"master/" + name, tile.master(piece)});
          }
        });
  }
  if (compressed_->coefficients) own.push_back({"coefficients", compressed_->coefficients});
  if (apart) own.push_back({"rate_sum", compressed_->rate_sum});
  return own;
}

Tensor ShardedOptimizer::own_sums_of_squares() {
  const Tensor sum = context_.empty({1}, DType::f64, Category::workspace);
  const Tensor sums = context_.zeros({static_cast<int64_t>(units_.size())}, DType::f64, Category::workspace);
  for (const SegmentState& state : states_) {
    const auto unit = static_cast<int64_t>(state.at.unit);
    context_.run(SumSquares{.x = reducer_.reduced(state.at), .out = sum});
    context_.run(Scale{.x = sum, .factor = static_cast<double>(state.ranks->size())});
    context_.run(AddTo{.x = sum, .into = sums.flat(unit, unit + 1)});
  }
  return sums;
}

bool ShardedOptimizer::update_compressed(double lr, double gradient_scale) {
  if (!compressed_) return false;
  const CompressedPhase phase = phase_of(options_.method, number_);
  const bool lamb = std::holds_alternative<OneBitLambOptions>(options_.method);
  if (phase == CompressedPhase::plain && !lamb) return false;
  const bool begins_apart = is_apart(phase) && !is_apart(phase_of(options_.method, number_ - 1));
  // The ranks' own gradients add up to the mean loss's: times their number they are means themselves.
  const auto scale_of = [&](const SegmentState& state) {
    return phase == CompressedPhase::plain ? gradient_scale : gradient_scale * state.ranks->size();
  };
  if (is_apart(phase)) compressed_->rate_sum.data<double>()[0] += lr;
  walk(
      all_states(), {}, [](const Tile&) {},
      [&](const Tile& tile) {
        CompressedStates::Segment& own = compressed_->segments[static_cast<size_t>(&tile.state - states_.data())];
        const SignedStep step{.own = own, .lr = lr, .gradient_scale = scale_of(tile.state)};
        const Tensor values = context_.empty({tile.state.scope.size()}, DType::f32, Category::workspace);
        if (begins_apart) {
          own.exchange.forget_errors();
          for (const TrainedPiece& piece : tile.of->pieces)
            context_.copy(tile.master(piece), values_of(piece, own.met));
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
          if (phase == CompressedPhase::meeting) meet(tile, step, values);
        }
      });
  if (phase == CompressedPhase::meeting) compressed_->rate_sum.data<double>()[0] = 0;
  return true;
}

void ShardedOptimizer::mean_of_signs(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  if (tile.state.ranks->size() > 1) step.own.exchange.mean(values);
}

/// The piece's momentum takes the gradient in; `into` gets what it is then.
void ShardedOptimizer::advance_momentum(const Tile& tile, const TrainedPiece& piece, const Tensor& gradient,
                                        double gradient_scale, const Tensor& into) const {
  context_.run(MomentumDirection{.momentum_buffer = tile.values(piece.states[0]),
                                 .gradient = gradient,
                                 .direction = into,
                                 .momentum = moment_rule(options_.method).beta1,
                                 .gradient_scale = gradient_scale,
                                 .nesterov = false});
}

void ShardedOptimizer::send_momentum(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces)
    advance_momentum(tile, piece, tile.state.part(piece, gradients_of(tile.state)), step.gradient_scale,
                     values_of(piece, values));
  mean_of_signs(tile, step, values);
  for (const TrainedPiece& piece : tile.of->pieces)
    context_.copy(values_of(piece, values), tile.values(piece.states[0]));
}

void ShardedOptimizer::send_gradient(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    context_.run(Cast{.x = tile.state.part(piece, gradients_of(tile.state)), .y = mine});
    context_.run(Scale{.x = mine, .factor = step.gradient_scale});
  }
  mean_of_signs(tile, step, values);
  const Tensor room = context_.empty(values.shape(), DType::f32, Category::workspace);
  for (const TrainedPiece& piece : tile.of->pieces) {
    advance_momentum(tile, piece, values_of(piece, values), 1, values_of(piece, room));
    context_.copy(values_of(piece, room), values_of(piece, values));
  }
}

/// p -= lr * (m / (sqrt(v) + eps) + weight_decay * p), where values hold m.
void ShardedOptimizer::apply_momentum(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    const double lr = step.lr * piece.rule.lr_scale;
    move(tile, piece, mine, lr, 1 - lr * piece.rule.weight_decay);
  }
}

void ShardedOptimizer::precondition(const Tile& tile, const TrainedPiece& piece, const Tensor& x, const Tensor& y,
                                    bool multiply) const {
  context_.run(Precondition{.x = x,
                            .second_moment = tile.values(piece.states[1]),
                            .y = y,
                            .eps = moment_rule(options_.method).eps,
                            .multiply = multiply});
}

void ShardedOptimizer::move(const Tile& tile, const TrainedPiece& piece, const Tensor& direction, double step,
                            double keep) const {
  context_.run(ApplyDirection{.parameter = tile.master(piece),
                              .direction = direction,
                              .parameter_copy = parameter_copy(tile, piece),
                              .step = step,
                              .keep = keep});
}

/// An update of this rank alone; what it adds to the parameters is added to what they have moved.
void ShardedOptimizer::move_apart(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values);
    advance_momentum(tile, piece, tile.state.part(piece, gradients_of(tile.state)), step.gradient_scale, mine);
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    if (piece.rule.weight_decay != 0)
      context_.run(
          ApplyDirection{.parameter = mine, .direction = tile.master(piece), .step = -piece.rule.weight_decay});
    const double lr = step.lr * piece.rule.lr_scale;
    context_.run(ApplyDirection{.parameter = values_of(piece, step.own.moved), .direction = mine, .step = lr});
    move(tile, piece, mine, lr, 1);
  }
}

/// From where the ranks last met they all go the compressed mean of what each has moved, and take the momentum that
/// would have moved them so.
void ShardedOptimizer::meet(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  for (const TrainedPiece& piece : tile.of->pieces)
    precondition(tile, piece, values_of(piece, step.own.moved), values_of(piece, values), /*multiply=*/true);
  mean_of_signs(tile, step, values);
  const double rates = compressed_->rate_sum.data<double>()[0];
  for (const TrainedPiece& piece : tile.of->pieces) {
    const Tensor mine = values_of(piece, values), momentum = tile.values(piece.states[0]);
    if (const double rate = rates * piece.rule.lr_scale; rate > 0) {
      context_.copy(mine, momentum);
      context_.run(Scale{.x = momentum, .factor = -1 / rate});
    }
    precondition(tile, piece, mine, mine, /*multiply=*/false);
    context_.copy(values_of(piece, step.own.met), tile.master(piece));
    move(tile, piece, mine, -1, 1);
    context_.copy(tile.master(piece), values_of(piece, step.own.met));
  }
  context_.zero(step.own.moved);
}

std::vector<double> ShardedOptimizer::parameter_squares(const Tile& tile,
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

LambDirection ShardedOptimizer::lamb_direction(const Tile& tile, const TrainedPiece& piece, const Tensor& gradient,
                                               const Tensor& second, const Tensor& into) const {
  const MomentRule rule = moment_rule(options_.method);
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
void ShardedOptimizer::lamb_plain(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  const auto& lamb = std::get<OneBitLambOptions>(options_.method);
  for (const TrainedPiece& piece : tile.of->pieces) {
    LambDirection op = lamb_direction(tile, piece, tile.state.part(piece, gradients_of(tile.state)),
                                      tile.values(piece.states[1]), values_of(piece, values));
    op.gradient_scale = step.gradient_scale;
    context_.run(op);
    context_.copy(tile.values(piece.states[1]), tile.values(piece.states[2]));
  }
  const std::vector<double> squares = parameter_squares(tile, [&](const auto& piece) { return tile.master(piece); });
  const std::vector<double> updates =
      parameter_squares(tile, [&](const auto& piece) { return values_of(piece, values); });
  double* const coefficients = compressed_->coefficients.data<double>() + 2 * step.own.first_parameter;
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
void ShardedOptimizer::lamb_by_momentum(const Tile& tile, const SignedStep& step, const Tensor& values) const {
  const auto& lamb = std::get<OneBitLambOptions>(options_.method);
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
  double* const coefficients = compressed_->coefficients.data<double>() + 2 * step.own.first_parameter;
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
