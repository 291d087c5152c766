// How tokens choose their experts. A choice must not depend on the device: scores are computed side by side, but what
// kernels/routing.h adds one after the other is added in that order, by one lane.
#include "nought/cuda/backend/columns.h"
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

constexpr int kTokens = 4;  // of a block: one for each warp

template <class Real>
struct RouterArrays {
  RouterRule rule;
  const Real *logits, *bias;
  int32_t* experts;
  Real* weights;
  Real* probabilities;  // [tokens, experts]: workspace
  int64_t tokens, count;
};
template <class Real>
struct RouterBackwardArrays {
  RouterRule rule;
  const Real* logits;
  const int32_t* experts;
  const Real *d_weights, *d_probabilities;
  Real *d_logits, *weights;  // weights: [tokens, top_k], workspace
  int64_t tokens, count;
};

template <class Real>
__device__ constexpr Real lowest() {
  return -static_cast<Real>(INFINITY);
}

/// The best of all lanes' values, the first of equal ones, in every lane. -1: there is none.
template <class Real>
struct Best {
  Real value;
  int at;
};
template <class Real>
__device__ Best<Real> best_of_warp(Best<Real> best) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const Real value = __shfl_xor_sync(kAllLanes, best.value, lanes);
    const int at = __shfl_xor_sync(kAllLanes, best.at, lanes);
    const bool is_first = at >= 0 && (best.at < 0 || at < best.at);
    if (value > best.value || (value == best.value && is_first)) best = {value, at};
  }
  return best;
}

/// row[e] = softmax(logits)[e] for one warp: the sum is the first lane's, in order.
template <class Real, class Row>
__device__ void softmax_of(const Real* logits, Row row, int64_t begin, int count, int lane) {
  Real largest = lowest<Real>();
  for (int e = lane; e < count; e += kWarpSize) largest = logits[e] > largest ? logits[e] : largest;
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const Real other = __shfl_xor_sync(kAllLanes, largest, lanes);
    largest = other > largest ? other : largest;
  }
  for (int e = lane; e < count; e += kWarpSize) row[begin + e] = exp(logits[e] - largest);
  __syncwarp();
  Real total = 0;
  if (lane == 0)
    for (int e = 0; e < count; ++e) total += row[begin + e];
  total = __shfl_sync(kAllLanes, total, 0);
  __syncwarp();
  for (int e = lane; e < count; e += kWarpSize) row[begin + e] = row[begin + e] / total;
  __syncwarp();
}

/// row[e] = the score of each expert, for one warp.
template <class Real, class Row>
__device__ void scores_of(const RouterRule& rule, const Real* logits, Row row, int64_t begin, int count, int lane) {
  if (rule.scores == RouterScores::softmax) return softmax_of(logits, row, begin, count, lane);
  for (int e = lane; e < count; e += kWarpSize)
    row[begin + e] = rule.scores == RouterScores::sigmoid ? 1 / (1 + exp(-logits[e])) : logits[e];
  __syncwarp();
}

/// The weights of the chosen experts, by one lane. Returns what they were divided by.
template <class Real, class Row>
__device__ Real weigh(const RouterRule& rule, Row scores, int64_t begin, const int32_t* experts, Real* weights) {
  const auto k = static_cast<int>(rule.top_k);
  const bool is_softmax = rule.scores == RouterScores::chosen_softmax;
  Real largest = scores[begin + experts[0]];
  for (int i = 0; i < k; ++i) {
    weights[i] = scores[begin + experts[i]];
    largest = largest < weights[i] ? weights[i] : largest;
  }
  if (is_softmax)
    for (int i = 0; i < k; ++i) weights[i] = exp(weights[i] - largest);
  Real total = 1;
  if (rule.normalise || is_softmax) {
    total = static_cast<Real>(1e-20);  // as DeepSeek-V3 keeps a sum of sigmoids from 0
    for (int i = 0; i < k; ++i) total += weights[i];
  }
  for (int i = 0; i < k; ++i) weights[i] *= static_cast<Real>(rule.scaling) / total;
  return total;
}

/// The experts outside of the best groups count as 0 in the choice. A lane has every 32nd group.
template <class Real, class Row>
__device__ void keep_best_groups(const RouterRule& rule, Row choice, Row scores, int64_t begin, int count, int lane) {
  const auto groups = static_cast<int>(rule.num_groups), size = count / groups;
  for (int g = lane; g < groups; g += kWarpSize) {
    Real best = lowest<Real>(), second = best;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const Real value = choice[begin + e], least = value < best ? value : best;
      second = second < least ? least : second;
      best = best < value ? value : best;
    }
    scores[begin + g] = rule.group_score == GroupScore::best ? best : best + second;
  }
  __syncwarp();
  uint32_t kept[kMostExperts / kWarpSize] = {};
  for (int64_t i = 0; i < rule.kept_groups; ++i) {
    int best = -1;  // every lane finds the same
    for (int g = 0; g < groups; ++g) {
      if ((kept[g / kWarpSize] >> (g % kWarpSize) & 1u) != 0) continue;
      const Real value = scores[begin + g];
      if (best < 0 || value > static_cast<Real>(scores[begin + best])) best = g;
    }
    kept[best / kWarpSize] |= 1u << (best % kWarpSize);
  }
  for (int e = lane; e < count; e += kWarpSize) {
    const int g = e / size;
    if ((kept[g / kWarpSize] >> (g % kWarpSize) & 1u) == 0) choice[begin + e] = 0;
  }
  __syncwarp();
}

template <class Real>
__global__ void __launch_bounds__(kTokens* kWarpSize) route_kernel(RouterArrays<Real> a) {
  NOUGHT_SHARED(Real, scores, kTokens * kMostExperts);
  NOUGHT_SHARED(Real, choice, kTokens * kMostExperts);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto count = static_cast<int>(a.count);
  const int64_t begin = warp * kMostExperts;
  for (int64_t t = blockIdx.x * int64_t{kTokens} + warp; t < a.tokens; t += int64_t{gridDim.x} * kTokens) {
    const Real* const logits = a.logits + t * a.count;
    int32_t* const experts = a.experts + t * a.rule.top_k;
    scores_of(a.rule, logits, scores, begin, count, lane);
    for (int e = lane; e < count; e += kWarpSize)
      choice[begin + e] = a.bias != nullptr ? scores[begin + e] + a.bias[e] : static_cast<Real>(scores[begin + e]);
    __syncwarp();
    if (a.rule.num_groups > 1) {
      keep_best_groups<Real>(a.rule, choice, scores, begin, count, lane);
      scores_of(a.rule, logits, scores, begin, count, lane);  // groups have used its place
    }
    for (int64_t k = 0; k < a.rule.top_k; ++k) {
      // The first of equal scores. A NaN is never larger; but nothing is larger than it, if it comes first.
      Best<Real> best{lowest<Real>(), -1};
      for (int e = lane; e < count; e += kWarpSize) {
        Real value = choice[begin + e];
        if (isnan(value)) value = e == 0 ? static_cast<Real>(INFINITY) : lowest<Real>();
        if (best.at < 0 || value > best.value) best = {value, e};
      }
      best = best_of_warp(best);
      if (lane == 0) experts[k] = best.at;
      if (lane == best.at % kWarpSize) choice[begin + best.at] = lowest<Real>();
      __syncwarp();
    }
    if (lane == 0) weigh(a.rule, scores, begin, experts, a.weights + t * a.rule.top_k);
    __syncwarp();
    softmax_of(logits, choice, begin, count, lane);
    for (int e = lane; e < count; e += kWarpSize) a.probabilities[t * a.count + e] = choice[begin + e];
    __syncwarp();
  }
}

template <class P>
struct Probabilities {
  using Real = double;
  static constexpr int kSums = 1, kWidth = 1;
  const P* probabilities;
  int64_t count;
  template <int kCount>
  __device__ void add(int64_t t, int64_t e, double (&sums)[1][kCount]) const {
    sums[0][0] += static_cast<double>(probabilities[t * count + e]);
  }
};

/// d_logits from the gradient of the weights, by one lane: only the chosen experts have one, but for a softmax of all.
template <class Real, class Row>
__device__ void choices_backward(const RouterBackwardArrays<Real>& a, int64_t t, Row scores, int64_t begin, Row mean) {
  const auto k = static_cast<int>(a.rule.top_k);
  const int32_t* const experts = a.experts + t * k;
  const Real* const d_weights = a.d_weights + t * k;
  Real *const d_logits = a.d_logits + t * a.count, *const weights = a.weights + t * k;
  const Real chosen_total = weigh(a.rule, scores, begin, experts, weights), scaling = static_cast<Real>(a.rule.scaling);
  const bool is_softmax = a.rule.scores == RouterScores::chosen_softmax, sums_to_one = a.rule.normalise || is_softmax;
  Real shared = 0, sum = 0;
  for (int i = 0; i < k; ++i) shared += d_weights[i] * weights[i];
  const Real total = a.rule.normalise ? chosen_total : Real{1};
  for (int i = 0; i < k; ++i) {
    const Real d_chosen = sums_to_one ? d_weights[i] * scaling - shared : d_weights[i] * scaling;
    const Real s = scores[begin + experts[i]];
    Real& d = d_logits[experts[i]];
    if (is_softmax) {
      d = weights[i] / scaling * d_chosen;
    } else if (a.rule.scores == RouterScores::sigmoid) {
      d = d_chosen / total * s * (1 - s);
    } else {
      d = d_chosen / total;
      sum += d * s;
    }
  }
  mean[threadIdx.x / kWarpSize] = sum;
}

template <class Real>
__global__ void __launch_bounds__(kTokens* kWarpSize) route_backward_kernel(RouterBackwardArrays<Real> a) {
  NOUGHT_SHARED(Real, scores, kTokens * kMostExperts);
  NOUGHT_SHARED(Real, means, kTokens);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto count = static_cast<int>(a.count);
  const int64_t begin = warp * kMostExperts;
  for (int64_t t = blockIdx.x * int64_t{kTokens} + warp; t < a.tokens; t += int64_t{gridDim.x} * kTokens) {
    const Real* const logits = a.logits + t * a.count;
    Real* const d_logits = a.d_logits + t * a.count;
    for (int e = lane; e < count; e += kWarpSize) d_logits[e] = 0;
    scores_of(a.rule, logits, scores, begin, count, lane);  // and all zeros have been written
    if (lane == 0) choices_backward(a, t, scores, begin, means);
    __syncwarp();
    if (a.rule.scores == RouterScores::softmax) {
      const Real mean = means[warp];
      for (int e = lane; e < count; e += kWarpSize) d_logits[e] = scores[begin + e] * (d_logits[e] - mean);
    }
    __syncwarp();
    if (a.d_probabilities == nullptr) continue;
    softmax_of(logits, scores, begin, count, lane);
    if (lane == 0) {
      Real mean = 0;
      for (int e = 0; e < count; ++e) mean += scores[begin + e] * a.d_probabilities[e];
      means[warp] = mean;
    }
    __syncwarp();
    const Real mean = means[warp];
    for (int e = lane; e < count; e += kWarpSize) d_logits[e] += scores[begin + e] * (a.d_probabilities[e] - mean);
    __syncwarp();
  }
}

struct Balance {
  const double* sums;
  double *loss, *gradient;
  double weight, coefficient, gradient_scale;
  int64_t experts;
};

/// One block: the first thread adds, in the order of experts.
__global__ void __launch_bounds__(kThreads) balance_kernel(Balance a) {
  const double *const choices = a.sums, *const probabilities = choices + a.experts,
                      *const rest = probabilities + a.experts;
  const double tokens = rest[0], weight = rest[1], count = static_cast<double>(a.experts);
  if (threadIdx.x == 0) {
    double products = 0;
    for (int64_t e = 0; e < a.experts; ++e) products += choices[e] * probabilities[e];
    const double balance = tokens == 0 ? 0 : count * products / (tokens * tokens);
    *a.loss = a.weight * a.coefficient * balance;
  }
  const double scale = weight * a.coefficient * a.gradient_scale;
  const double factor = tokens == 0 ? 0 : scale * count / (tokens * tokens);
  for (int64_t e = threadIdx.x; e < a.experts; e += kThreads) a.gradient[e] = choices[e] * factor;
}

/// Calls f(TypeTag<Real>()) with the type of logits.
template <class F>
void visit_logits(DType dtype, const F& f) {
  dtype == DType::f64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

}  // namespace

void start(const Route& op, Place& at) {
  const int64_t tokens = op.logits.dim(0), count = op.logits.dim(1);
  const DType dtype = op.logits.dtype();
  visit_logits(dtype, [&](auto tag) {
    using Real = typename decltype(tag)::type;
    auto* const probabilities = static_cast<Real*>(at.room());
    const Real* bias = nullptr;
    if (op.choice_bias) {  // of any float dtype
      const Array wide{at.room(), dtype};
      cast(at.launch, array_of(op.choice_bias), wide, count);
      bias = wide.as<const Real>();
    }
    const RouterArrays<Real> arrays{op.rule,
                                    op.logits.data<Real>(),
                                    bias,
                                    op.experts.data<int32_t>(),
                                    op.weights.data<Real>(),
                                    probabilities,
                                    tokens,
                                    count};
    launch(at.launch, (tokens + kTokens - 1) / kTokens, dim3(kTokens * kWarpSize), route_kernel<Real>, arrays);
    auto* const parts = static_cast<double*>(at.room());
    sum_columns(at.launch, tokens, count, Probabilities<Real>{probabilities, count}, parts,
                array_of(op.probability_sums), false);
  });
}

void start(const RouteBackward& op, Place& at) {
  const int64_t tokens = op.logits.dim(0), count = op.logits.dim(1);
  visit_logits(op.logits.dtype(), [&](auto tag) {
    using Real = typename decltype(tag)::type;
    const RouterBackwardArrays<Real> arrays{
        .rule = op.rule,
        .logits = op.logits.data<Real>(),
        .experts = op.experts.data<int32_t>(),
        .d_weights = op.d_weights.data<Real>(),
        .d_probabilities = op.d_probabilities ? op.d_probabilities.data<Real>() : nullptr,
        .d_logits = op.d_logits.data<Real>(),
        .weights = static_cast<Real*>(at.room()),
        .tokens = tokens,
        .count = count};
    launch(at.launch, (tokens + kTokens - 1) / kTokens, dim3(kTokens * kWarpSize), route_backward_kernel<Real>, arrays);
  });
}

void start(const BalanceLoss& op, Place& at) {
  const Balance arrays{.sums = op.sums.data<double>(),
                       .loss = op.loss.data<double>(),
                       .gradient = op.gradient.data<double>(),
                       .weight = op.weight,
                       .coefficient = op.coefficient,
                       .gradient_scale = op.gradient_scale,
                       .experts = op.gradient.numel()};
  launch(at.launch, 1, dim3(kThreads), balance_kernel, arrays);
}

}  // namespace nought::cuda
