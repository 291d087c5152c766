#include "nought/autograd/moe.h"

#include <algorithm>
#include <numeric>

#include "nought/autograd/detail.h"
#include "nought/kernels/grouping.h"

namespace nought {

void RouterLog::share(const Context& context, int64_t experts, Communicator& stages) {
  const int64_t width = 2 * experts + 1;
  std::vector<double> known;
  for (const Layer& layer : layers_) {
    std::vector<double> values(static_cast<size_t>(width));
    std::transform(layer.load.begin(), layer.load.end(), values.begin(),
                   [](int64_t n) { return static_cast<double>(n); });
    values.back() = static_cast<double>(layer.tokens);
    known.insert(known.end(), values.begin(), values.end());
  }
  shared_ = context.upload<double>({std::ssize(known)}, known, Category::workspace);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * width + experts;
    if (layers_[i].probability_sums)
      context.run(AddTo{.x = layers_[i].probability_sums, .into = shared_.flat(begin, begin + experts)});
  }
  stages_ = &stages;
  arrival_ = stages.all_reduce(shared_);
}

/// The layers are added in their order, as one rank adds them.
Tensor RouterLog::shared_sums(const Context& context, double weight) const {
  stages_->wait(arrival_, *context.stream);
  const int64_t width = shared_.numel() / std::ssize(layers_);
  std::vector<double> known(static_cast<size_t>(width) + 1);
  known.back() = weight;
  Tensor sums = context.upload<double>({width + 1}, known, Category::workspace);
  for (int64_t begin = 0; counts_ && begin < shared_.numel(); begin += width)
    context.run(AddTo{.x = shared_.flat(begin, begin + width), .into = sums.flat(0, width)});
  return sums;
}

Tensor RouterLog::sums(const Context& context, double weight, Communicator& ranks) const {
  Tensor sums = stages_ != nullptr ? shared_sums(context, weight) : local_sums(context, weight);
  if (ranks.size() > 1) ranks.wait(ranks.all_reduce(sums), *context.stream);
  return sums;
}

Tensor RouterLog::local_sums(const Context& context, double weight) const {
  const size_t experts = layers_.empty() ? 0 : layers_.front().load.size();
  std::vector<double> known(2 * experts + 2);  // the choices of each expert, places for probabilities, tokens, weight
  if (counts_) {
    for (const Layer& layer : layers_) {
      for (size_t e = 0; e < experts; ++e) known[e] += static_cast<double>(layer.load.at(e));
      known[2 * experts] += static_cast<double>(layer.tokens);
    }
    known[2 * experts + 1] = weight;
  }
  const auto count = static_cast<int64_t>(experts);
  Tensor sums = context.upload<double>({2 * count + 2}, known, Category::workspace);
  if (counts_)
    for (const Layer& layer : layers_)
      context.run(AddTo{.x = layer.probability_sums, .into = sums.flat(count, 2 * count)});
  return sums;
}

void RouterLoads::add(const RouterLog& log) {
  chosen.resize(log.layers().size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    const RouterLog::Layer& layer = log.layers()[i];
    if (layer.load.empty()) continue;  // another rank has it
    chosen[i].resize(layer.load.size());
    std::transform(layer.load.begin(), layer.load.end(), chosen[i].begin(), chosen[i].begin(),
                   [](int64_t more, double sum) { return sum + static_cast<double>(more); });
    dropped += static_cast<double>(layer.dropped);
  }
}

Tensor RouterLoads::summed(const Context& context, int64_t experts, Communicator& ranks) const {
  std::vector<double> values{dropped};
  for (std::vector<double> layer : chosen) {
    layer.resize(static_cast<size_t>(experts));  // a layer of another rank has no counts here
    values.insert(values.end(), layer.begin(), layer.end());
  }
  const Tensor sums = context.upload<double>({static_cast<int64_t>(values.size())}, values, Category::workspace);
  if (ranks.size() > 1) ranks.wait(ranks.all_reduce(sums), *context.stream);
  return sums;
}

RouterLoads RouterLoads::of(std::span<const double> sums, size_t layers) {
  RouterLoads loads;
  loads.dropped = sums.front();
  const size_t experts = (sums.size() - 1) / layers;
  for (size_t i = 0; i < layers; ++i) {
    const auto layer = sums.subspan(1 + i * experts, experts);
    loads.chosen.emplace_back(layer.begin(), layer.end());
  }
  return loads;
}

double RouterLoads::choices() const {
  double sum = 0;
  for (const std::vector<double>& layer : chosen) sum = std::accumulate(layer.begin(), layer.end(), sum);
  return sum;
}

double RouterLoads::imbalance() const {
  double worst = 1;
  for (const std::vector<double>& layer : chosen) {
    const double sum = std::accumulate(layer.begin(), layer.end(), 0.0);
    if (sum > 0)
      worst = std::max(worst, *std::max_element(layer.begin(), layer.end()) * static_cast<double>(layer.size()) / sum);
  }
  return worst;
}

namespace {

/// Rows of x that are widened to fp32 at a time.
constexpr int64_t kRouterRows = 1024;

/// `x` itself if it has the dtype, else a converted copy.
Tensor in_dtype(const Context& context, const Tensor& x, DType dtype) {
  if (!x || x.dtype() == dtype) return x;
  Tensor y = context.empty(x.shape(), dtype, Category::workspace);
  context.run(Cast{.x = x, .y = y});
  return y;
}

/// Writes or adds a gradient of any float dtype to where it belongs.
void write(const Context& context, const Tensor& gradient, const GradSink& sink) {
  if (sink.accumulate) {
    context.run(AddTo{.x = gradient, .into = sink.into});
  } else {
    context.run(Cast{.x = gradient, .y = sink.into});
  }
}

/// Calls body(begin, end) for runs of rows.
template <class Body>
void for_each_run(int64_t rows, const Body& body) {
  for (int64_t begin = 0; begin < rows; begin += kRouterRows) body(begin, std::min(begin + kRouterRows, rows));
}

void router_backward(Gradients& gradients, const Var& x, const ParameterView& weight, const ParameterView& bias,
                     const Tensor& d_logits) {
  const Context& context = gradients.context();
  const DType wide = d_logits.dtype();
  const int64_t tokens = x.value.rows(), hidden = x.value.dim(-1);
  const Tensor flat = x.value.reshape({tokens, hidden}), table = in_dtype(context, weight.value(), wide);
  const GradSink dw = gradients.sink(weight), dx = gradients.sink(x);
  const Tensor dw_wide = dw ? context.zeros(weight.shape(), wide, Category::workspace) : Tensor{};
  const Tensor flat_dx = dx ? dx.into.reshape({tokens, hidden}) : Tensor{};
  for_each_run(tokens, [&](int64_t begin, int64_t end) {
    const Tensor d = d_logits.slice(begin, end);
    if (dw) {
      const Tensor rows = in_dtype(context, flat.slice(begin, end), wide);
      context.run(MatMul{.a = d, .b = rows, .c = dw_wide, .transpose_a = true, .accumulate = true});
    }
    if (!dx) return;
    const Tensor rows = context.empty({end - begin, hidden}, wide, Category::workspace);
    context.run(MatMul{.a = d, .b = table, .c = rows});
    write(context, rows, {flat_dx.slice(begin, end), dx.accumulate});
  });
  if (dw) write(context, dw_wide, dw);
  if (const GradSink db = gradients.sink(bias)) {
    const Tensor sums = context.empty(bias.shape(), wide, Category::workspace);
    context.run(SumRows{.x = d_logits, .out = sums});
    write(context, sums, db);
  }
}

}  // namespace

Var router_logits(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias) {
  const Context& context = tape.context();
  const int64_t tokens = x.value.rows();
  const DType wide = statistics_dtype(x.value.dtype());
  const Tensor flat = x.value.reshape({tokens, x.value.dim(-1)}), table = in_dtype(context, weight.value(), wide);
  const Tensor shift = bias.defined() ? in_dtype(context, bias.value(), wide) : Tensor{};
  Tensor logits = context.empty({tokens, weight.shape()[0]}, wide);
  for_each_run(tokens, [&](int64_t begin, int64_t end) {
    context.run(MatMul{.a = in_dtype(context, flat.slice(begin, end), wide),
                       .b = table,
                       .c = logits.slice(begin, end),
                       .bias = shift,
                       .transpose_b = true});
  });
  return tape.record(logits, {x, weight, bias}, [x, weight, bias](Gradients& gradients, const Tensor& d_logits) {
    router_backward(gradients, x, weight, bias, d_logits);
  });
}

Var add_widened(Tape& tape, const Var& logits, const Var& x) {
  tape.context().run(AddTo{.x = x.value, .into = logits.value});
  return tape.record(logits.value, {logits, x},
                     [logits = Var{{}, logits.slot}, x = Saved(x, false)](Gradients& gradients, Tensor d) {
                       const Context& context = gradients.context();
                       if (const GradSink dx = gradients.sink(x)) detail::put(context, d, dx);
                       gradients.give(logits, std::move(d));
                     });
}

Routing route(Tape& tape, const Var& logits, const RouterRule& rule, const ParameterView& choice_bias,
              const std::shared_ptr<RouterLog>& log, int64_t layer) {
  const Context& context = tape.context();
  const int64_t tokens = logits.value.dim(0), num_experts = logits.value.dim(1);
  Tensor experts = context.empty({tokens, rule.top_k}, DType::i32);
  Tensor weights = context.empty({tokens, rule.top_k}, logits.value.dtype());
  const Tensor sums = context.empty({num_experts}, DType::f64);
  context.run(Route{.rule = rule,
                    .logits = logits.value,
                    .choice_bias = choice_bias.defined() ? choice_bias.value() : Tensor{},
                    .experts = experts,
                    .weights = weights,
                    .probability_sums = sums});
  if (log) {
    RouterLog::Layer& record = log->layer(layer);
    record.tokens = tokens;
    record.probability_sums = sums;
  }
  const Var out =
      tape.record(weights, {logits}, [logits, rule, experts, log](Gradients& gradients, const Tensor& d_weights) {
        const Context& context = gradients.context();
        const Tensor d_probabilities =
            log ? in_dtype(context, log->probability_gradient(), logits.value.dtype()) : Tensor{};
        Tensor d_logits = context.empty(logits.value.shape(), logits.value.dtype());
        context.run(RouteBackward{.rule = rule,
                                  .logits = logits.value,
                                  .experts = experts,
                                  .d_weights = d_weights,
                                  .d_logits = d_logits,
                                  .d_probabilities = d_probabilities});
        gradients.give(logits, std::move(d_logits));
      });
  return {experts, out};
}

Var add_auxiliary_loss(Tape& tape, const Var& loss, const std::shared_ptr<RouterLog>& log, double weight,
                       double coefficient, double gradient_scale, Communicator& ranks) {
  const Context& context = tape.context();
  const Tensor balances = log->sums(context, weight, ranks);
  const Tensor sum = context.empty({1}, DType::f64), gradient = context.empty({(balances.numel() - 2) / 2}, DType::f64);
  context.run(BalanceLoss{.sums = balances,
                          .loss = sum,
                          .gradient = gradient,
                          .weight = weight,
                          .coefficient = coefficient,
                          .gradient_scale = gradient_scale});
  context.run(AddTo{.x = loss.value, .into = sum});
  const bool counts = log->counts() && coefficient != 0 && gradient_scale != 0;
  return tape.record(
      sum, {loss},
      [loss = Var{{}, loss.slot}, log, gradient = counts ? gradient : Tensor{}](Gradients& gradients, Tensor seed) {
        log->set_probability_gradient(gradient);  // first of all nodes: the routers' backward reads it
        gradients.give(loss, std::move(seed));
      });
}

Var expect_auxiliary_gradient(Tape& tape, const Var& x, const std::shared_ptr<RouterLog>& log, double weight,
                              double coefficient, double gradient_scale, Communicator& ranks) {
  const auto backward = [=, &ranks, slot = x.slot](Gradients& gradients, Tensor d_x) {
    const Context& context = gradients.context();
    const Tensor balances = log->sums(context, weight, ranks);
    const Tensor loss = context.empty({1}, DType::f64),
                 gradient = context.empty({(balances.numel() - 2) / 2}, DType::f64);
    context.run(BalanceLoss{.sums = balances,
                            .loss = loss,
                            .gradient = gradient,
                            .weight = weight,
                            .coefficient = coefficient,
                            .gradient_scale = gradient_scale});
    if (log->counts() && coefficient != 0 && gradient_scale != 0) log->set_probability_gradient(gradient);
    gradients.give(Var{{}, slot}, std::move(d_x));
  };
  return tape.record(x.value, {x}, backward);
}

ExpertRows group_by_expert(const Context& context, const Tensor& experts, int64_t num_experts, int64_t capacity) {
  const int64_t most = most_rows(experts.numel(), num_experts, capacity);
  const Tensor counts = context.empty({num_experts}, DType::i32, Category::workspace);
  const Tensor token = context.empty({most}, DType::i32), pair = context.empty({most}, DType::i32);
  ExpertRows rows;
  rows.capacity = capacity, rows.most = most;
  rows.row = context.empty(experts.shape(), DType::i32);
  context.run(GroupByExpert{
      .experts = experts, .counts = counts, .row = rows.row, .token = token, .pair = pair, .capacity = capacity});
  rows.load = context.to_host<int64_t>(counts);
  rows.blocks = expert_blocks<int64_t>(rows.load, capacity);
  for (const int64_t chosen : rows.load) rows.dropped += chosen - taken_choices(chosen, capacity);
  rows.token = token.flat(0, rows.rows());
  rows.pair = pair.flat(0, rows.rows());
  return rows;
}

Var scale_rows(Tape& tape, const Var& y, const Var& weights) {
  Tensor out = tape.context().empty(y.value.shape(), y.value.dtype());
  tape.context().run(ScaleRows{.x = y.value, .factors = weights.value, .y = out});
  return tape.record(out, {y, weights}, [y, weights](Gradients& gradients, Tensor d_out) {
    const Context& context = gradients.context();
    if (const GradSink d = gradients.sink(weights))
      context.run(DotRows{.a = d_out, .b = y.value, .out = d.into, .accumulate = d.accumulate});
    d_out = detail::writable(context, std::move(d_out));
    context.run(ScaleRows{.x = d_out, .factors = weights.value, .y = d_out});
    gradients.give(y, std::move(d_out));
  });
}

}  // namespace nought
