#include "nought/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/base/name_pattern.h"

namespace nought {

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::master:
      return "master";
    case StateKind::exp_avg:
      return "exp_avg";
    case StateKind::exp_avg_sq:
      return "exp_avg_sq";
    case StateKind::momentum_buffer:
      return "momentum_buffer";
    case StateKind::sum:
      return "sum";
    case StateKind::gradient:
      return "gradient";
    case StateKind::exp_avg_sq_fresh:
      return "exp_avg_sq_fresh";
    case StateKind::outer_momentum:
      return "outer_momentum";
    case StateKind::outer_delta:
      return "outer_delta";
  }
  return "?";
}

namespace {

/// 1 - beta^step.
double bias_of(double beta, int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

/// X: [rows, columns] becomes its orthogonal factor, nearly: X <- aX + (bA + cA^2)X with A = X X^T, where the quintic
/// polynomial drives singular values from (0, 1] to about 1. Tall matrices multiply from the right by A = X^T X.
void newton_schulz(const Context& context, const Tensor& x, int iterations) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool tall = x.dim(0) > x.dim(1);
  const int64_t small = std::min(x.dim(0), x.dim(1));
  const Tensor squares = context.empty({1}, DType::f64, Category::workspace);
  context.run(SumSquares{.x = x, .out = squares});
  context.run(Scale{.x = x, .squares = squares, .eps = 1e-7});
  const Tensor gram = context.empty({small, small}, DType::f32, Category::workspace);
  const Tensor polynomial = context.empty({small, small}, DType::f32, Category::workspace);
  const Tensor product = context.empty(x.shape(), DType::f32, Category::workspace);
  for (int i = 0; i < iterations; ++i) {
    context.run(MatMul{.a = x, .b = x, .c = gram, .transpose_a = tall, .transpose_b = !tall});
    context.run(MatMul{.a = gram, .b = gram, .c = polynomial});
    context.run(Scale{.x = polynomial, .factor = kC});
    context.run(Scale{.x = gram, .factor = kB});
    context.run(AddTo{.x = gram, .into = polynomial});
    context.run(MatMul{.a = tall ? x : polynomial, .b = tall ? polynomial : x, .c = product});
    context.run(Scale{.x = x, .factor = kA});
    context.run(AddTo{.x = product, .into = x});
  }
}

bool matches(const ParameterGroup& group, const std::string& name) {
  try {
    return NamePattern(group.pattern).found_in(name);
  } catch (const ConfigError& error) {
    fail<ConfigError>("parameter groups: {}", error.what());
  }
}

}  // namespace

void AdamOptions::update(const Context& context, const UpdateSpan& span) const {
  context.run(Adam{.parameter = span.parameter,
                   .exp_avg = span.states[0],
                   .exp_avg_sq = span.states[1],
                   .gradient = span.gradient,
                   .parameter_copy = span.parameter_copy,
                   .lr = span.lr,
                   .beta1 = beta1,
                   .beta2 = beta2,
                   .eps = eps,
                   .weight_decay = span.weight_decay,
                   .bias1 = bias_of(beta1, span.step),
                   .bias2 = bias_of(beta2, span.step),
                   .gradient_scale = span.gradient_scale,
                   .decoupled_decay = decoupled_decay});
}

namespace {

/// Adam with decoupled decay and without bias correction.
void update_uncorrected(const AdamOptions& adam, const Context& context, const UpdateSpan& span) {
  context.run(Adam{.parameter = span.parameter,
                   .exp_avg = span.states[0],
                   .exp_avg_sq = span.states[1],
                   .gradient = span.gradient,
                   .parameter_copy = span.parameter_copy,
                   .lr = span.lr,
                   .beta1 = adam.beta1,
                   .beta2 = adam.beta2,
                   .eps = adam.eps,
                   .weight_decay = span.weight_decay,
                   .gradient_scale = span.gradient_scale});
}

}  // namespace

void OneBitAdamOptions::update(const Context& context, const UpdateSpan& span) const {
  update_uncorrected({.beta1 = beta1, .beta2 = beta2, .eps = eps}, context, span);
}

void ZeroOneAdamOptions::update(const Context& context, const UpdateSpan& span) const {
  update_uncorrected({.beta1 = beta1, .beta2 = beta2, .eps = eps}, context, span);
}

void OneBitLambOptions::direction(const Context& context, const UpdateSpan& span, const Tensor& out) const {
  LambOptions{.beta1 = beta1, .beta2 = beta2, .eps = eps, .bias_correction = false}.direction(context, span, out);
}

std::vector<StateKind> SgdOptions::states() const {
  return momentum != 0 ? std::vector{StateKind::momentum_buffer} : std::vector<StateKind>{};
}

void SgdOptions::update(const Context& context, const UpdateSpan& span) const {
  context.run(Sgd{.parameter = span.parameter,
                  .momentum_buffer = span.states.empty() ? Tensor{} : span.states[0],
                  .gradient = span.gradient,
                  .parameter_copy = span.parameter_copy,
                  .lr = span.lr,
                  .momentum = momentum,
                  .dampening = dampening,
                  .weight_decay = span.weight_decay,
                  .gradient_scale = span.gradient_scale,
                  .nesterov = nesterov,
                  .first = span.step == 1});
}

void AdagradOptions::update(const Context& context, const UpdateSpan& span) const {
  context.run(Adagrad{.parameter = span.parameter,
                      .sum = span.states[0],
                      .gradient = span.gradient,
                      .parameter_copy = span.parameter_copy,
                      .lr = span.lr,
                      .eps = eps,
                      .weight_decay = span.weight_decay,
                      .gradient_scale = span.gradient_scale});
}

void RmsPropOptions::update(const Context& context, const UpdateSpan& span) const {
  context.run(RmsProp{.parameter = span.parameter,
                      .square = span.states[0],
                      .gradient = span.gradient,
                      .parameter_copy = span.parameter_copy,
                      .lr = span.lr,
                      .alpha = alpha,
                      .eps = eps,
                      .weight_decay = span.weight_decay,
                      .gradient_scale = span.gradient_scale});
}

void LionOptions::update(const Context& context, const UpdateSpan& span) const {
  context.run(Lion{.parameter = span.parameter,
                   .exp_avg = span.states[0],
                   .gradient = span.gradient,
                   .parameter_copy = span.parameter_copy,
                   .lr = span.lr,
                   .beta1 = beta1,
                   .beta2 = beta2,
                   .weight_decay = span.weight_decay,
                   .gradient_scale = span.gradient_scale});
}

void LambOptions::direction(const Context& context, const UpdateSpan& span, const Tensor& out) const {
  context.run(LambDirection{.parameter = span.parameter,
                            .exp_avg = span.states[0],
                            .exp_avg_sq = span.states[1],
                            .gradient = span.gradient,
                            .direction = out,
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .eps = eps,
                            .weight_decay = span.weight_decay,
                            .bias1 = bias_correction ? bias_of(beta1, span.step) : 1,
                            .bias2 = bias_correction ? bias_of(beta2, span.step) : 1,
                            .gradient_scale = span.gradient_scale});
}

void MuonOptions::direction(const Context& context, const UpdateSpan& span, const Tensor& out) const {
  context.run(MomentumDirection{.momentum_buffer = span.states[0],
                                .gradient = span.gradient,
                                .direction = out,
                                .momentum = momentum,
                                .gradient_scale = span.gradient_scale,
                                .nesterov = nesterov});
}

void MuonOptions::orthogonalize(const Context& context, const Tensor& direction) const {
  const int64_t rows = direction.dim(-2), columns = direction.dim(-1), size = rows * columns;
  const double stretch = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
  for (int64_t begin = 0; begin < direction.numel(); begin += size) {
    const Tensor matrix = direction.flat(begin, begin + size).reshape({rows, columns});
    newton_schulz(context, matrix, iterations);
    if (stretch != 1) context.run(Scale{.x = matrix, .factor = stretch});
  }
}

std::vector<StateKind> ParameterRule::states() const {
  return std::visit([](const auto& each) { return each.states(); }, method);
}

namespace {

/// What Muon orthogonalises: the matrices of blocks.
bool is_hidden_matrix(const Parameter& parameter) {
  const bool product = parameter.role == ParameterRole::matrix || parameter.role == ParameterRole::expert ||
                       parameter.role == ParameterRole::adapter || parameter.role == ParameterRole::router;
  return product && parameter.shape.rank() >= 2;
}

}  // namespace

UpdateExchange exchange_of(const Method& method) {
  return std::visit(
      []<class M>(const M&) {
        if constexpr (requires { M::kExchange; }) {
          return M::kExchange;
        } else {
          return UpdateExchange::nothing;
        }
      },
      method);
}

ParameterRule rule_for(const OptimizerOptions& options, const Parameter& parameter) {
  require(parameter.trainable, "parameter {} is not trained: no optimizer updates it", parameter.name);
  const bool decays = options.decay_all || parameter.decay;
  ParameterRule rule{.method = options.method, .weight_decay = decays ? options.weight_decay : 0};
  if (const auto* muon = std::get_if<MuonOptions>(&options.method)) {
    const bool hidden_matrix = is_hidden_matrix(parameter);
    rule.lr_scale = hidden_matrix ? muon->lr_scale : muon->others_lr_scale;
    if (!hidden_matrix) rule.method = AdamOptions(muon->others);
  }
  for (const ParameterGroup& group : options.groups) {
    if (!matches(group, parameter.name)) continue;
    rule.lr_scale *= group.lr_scale;
    rule.weight_decay = group.weight_decay.value_or(rule.weight_decay);
    break;
  }
  return rule;
}

namespace {

template <class T>
concept Directed = requires(const T& t) {
  t.direction(std::declval<const Context&>(), std::declval<const UpdateSpan&>(), std::declval<const Tensor&>());
};

}  // namespace

void update_by(const Method& method, const Context& context, const UpdateSpan& span) {
  std::visit(
      [&](const auto& each) {
        if constexpr (Directed<std::decay_t<decltype(each)>>) {
          fail<Error>("this optimizer updates no element by itself: ask it for a direction");
        } else {
          each.update(context, span);
        }
      },
      method);
}

void direction_by(const Method& method, const Context& context, const UpdateSpan& span, const Tensor& out) {
  std::visit(
      [&](const auto& each) {
        if constexpr (Directed<std::decay_t<decltype(each)>>) {
          each.direction(context, span, out);
        } else {
          fail<Error>("this optimizer has no direction: it updates each element by itself");
        }
      },
      method);
}

Method with_betas(Method method, Betas betas) {
  std::visit(
      [&](auto& each) {
        if constexpr (requires { each.beta1; }) each.beta1 = betas.beta1, each.beta2 = betas.beta2;
      },
      method);
  return method;
}

}  // namespace nought
