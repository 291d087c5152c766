// The optimizers: each is a struct of constant options that names its states and updates a stretch of one parameter.
//
// Design goals: plain values, so that a run's configuration can hold them; what they update is declared in optimizer.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nought/optim/schedule.h"
#include "nought/tensor/dtype.h"

namespace nought {

class CustomOptimizer;
class Tensor;
struct Context;
struct UpdateSpan;

/// What is kept for each trained element: in fp32, in 16 bits, or (states but the master) in 8-bit codes. The gradient
/// is that of an update which is put off; the last two are of local steps (zero/local_steps.h).
enum class StateKind : uint8_t {
  master,
  exp_avg,
  exp_avg_sq,
  momentum_buffer,
  sum,
  gradient,
  exp_avg_sq_fresh,
  outer_momentum,
  outer_delta
};
std::string_view name_of(StateKind kind);
/// True for states that are sums of squares.
constexpr bool is_square(StateKind kind) {
  return kind == StateKind::exp_avg_sq || kind == StateKind::sum || kind == StateKind::exp_avg_sq_fresh;
}

/// What the ranks that share out a parameter say to each other for one update, beyond the sum of its gradients. A
/// method that says something has a constant kExchange.
enum class UpdateExchange : uint8_t {
  nothing,     // each element is updated by itself
  directions,  // norms or matrices of whole parameters decide about a direction, which is formed first
  one_bit      // what they would sum, in one bit (optim/compressed_phase.h)
};

/// Adam (arXiv 1412.6980) and AdamW (arXiv 1711.05101), as torch.optim computes them.
struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled_decay = true;  // AdamW; false adds the decay to the gradient

  std::vector<StateKind> states() const { return {StateKind::exp_avg, StateKind::exp_avg_sq}; }
  void update(const Context& context, const UpdateSpan& span) const;
};

/// torch.optim.SGD.
struct SgdOptions {
  double momentum = 0, dampening = 0;
  bool nesterov = false;

  std::vector<StateKind> states() const;
  void update(const Context& context, const UpdateSpan& span) const;
};

/// torch.optim.Adagrad.
struct AdagradOptions {
  double eps = 1e-10;

  std::vector<StateKind> states() const { return {StateKind::sum}; }
  void update(const Context& context, const UpdateSpan& span) const;
};

/// torch.optim.RMSprop, neither centered nor with momentum.
struct RmsPropOptions {
  double alpha = 0.99, eps = 1e-8;

  std::vector<StateKind> states() const { return {StateKind::exp_avg_sq}; }
  void update(const Context& context, const UpdateSpan& span) const;
};

/// Lion (arXiv 2302.06675).
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;

  std::vector<StateKind> states() const { return {StateKind::exp_avg}; }
  void update(const Context& context, const UpdateSpan& span) const;
};

/// Lamb (arXiv 1904.00962), as DeepSpeed's FusedLamb computes it.
struct LambOptions {
  static constexpr UpdateExchange kExchange = UpdateExchange::directions;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double min_coeff = 0.01, max_coeff = 10;
  bool bias_correction = true;

  std::vector<StateKind> states() const { return {StateKind::exp_avg, StateKind::exp_avg_sq}; }
  /// out: [n] f32.
  void direction(const Context& context, const UpdateSpan& span, const Tensor& out) const;
};

/// Muon (https://kellerjordan.github.io/posts/muon): momentum orthogonalised by Newton-Schulz iterations, for the
/// matrices of the blocks; AdamW for all other parameters.
struct MuonOptions {
  static constexpr UpdateExchange kExchange = UpdateExchange::directions;
  double momentum = 0.95;
  bool nesterov = true;
  int iterations = 5;
  double lr_scale = 1;  // factor on the schedule's rate, for matrices
  AdamOptions others = {};
  double others_lr_scale = 1;

  std::vector<StateKind> states() const { return {StateKind::momentum_buffer}; }
  void direction(const Context& context, const UpdateSpan& span, const Tensor& out) const;
  /// In place: the nearest matrix with singular values near 1, times sqrt(max(1, rows / columns)). [..., rows, columns]
  /// f32; leading dimensions (experts) are matrices of their own.
  void orthogonalize(const Context& context, const Tensor& direction) const;
};

/// 1-bit Adam (arXiv 2102.02888), as DeepSpeed's OneBitAdam: Adam without bias correction for freeze_step updates, with
/// decoupled decay; then the second moments stay, and ranks send their momenta in one bit (zero/compressed_update).
struct OneBitAdamOptions {
  static constexpr UpdateExchange kExchange = UpdateExchange::one_bit;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t freeze_step = 100000;

  std::vector<StateKind> states() const { return {StateKind::exp_avg, StateKind::exp_avg_sq}; }
  void update(const Context& context, const UpdateSpan& span) const;  // of the first updates
};

/// 0/1 Adam (arXiv 2202.06009), as DeepSpeed's ZeroOneAdam. The second moments are updated every so often, which
/// doubles after var_update_scaler times; between, ranks send gradients in one bit. From var_freeze_step on each rank
/// updates by itself, and they synchronize every so often, which doubles every local_step_scaler updates up to
/// local_step_clipper.
struct ZeroOneAdamOptions {
  static constexpr UpdateExchange kExchange = UpdateExchange::one_bit;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t var_freeze_step = 100000, var_update_scaler = 16;
  int64_t local_step_scaler = 32678, local_step_clipper = 16;

  std::vector<StateKind> states() const { return {StateKind::exp_avg, StateKind::exp_avg_sq}; }
  void update(const Context& context, const UpdateSpan& span) const;  // of the second moments too
};

/// 1-bit Lamb (arXiv 2104.06069), as DeepSpeed's OneBitLamb: Lamb for freeze_step updates; then as 1-bit Adam, with
/// trust ratios that are estimated.
struct OneBitLambOptions {
  static constexpr UpdateExchange kExchange = UpdateExchange::one_bit;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double min_coeff = 0.01, max_coeff = 10;
  int64_t freeze_step = 100000;
  double coeff_beta = 0.9;                  // of the mean of trust ratios
  double factor_max = 4, factor_min = 0.5;  // bounds of what that is multiplied by later
  double factor_threshold = 0.1;            // by how much that may change in an update

  std::vector<StateKind> states() const {
    return {StateKind::exp_avg, StateKind::exp_avg_sq, StateKind::exp_avg_sq_fresh};
  }
  /// out: [n] f32. Of the first updates.
  void direction(const Context& context, const UpdateSpan& span, const Tensor& out) const;
};

/// An optimizer that is not Nought's own (optim/custom_optimizer.h).
struct CustomOptions {
  std::shared_ptr<const CustomOptimizer> optimizer;

  /// Error if the optimizer keeps what it can not.
  std::vector<StateKind> states() const;
  void update(const Context& context, const UpdateSpan& span) const;
};

using Method = std::variant<AdamOptions, SgdOptions, AdagradOptions, RmsPropOptions, LionOptions, LambOptions,
                            MuonOptions, OneBitAdamOptions, ZeroOneAdamOptions, OneBitLambOptions, CustomOptions>;

UpdateExchange exchange_of(const Method& method);
/// Whether a direction is formed first.
inline bool gives_direction(const Method& method) { return exchange_of(method) == UpdateExchange::directions; }
/// Whether ranks send in one bit what others would sum.
inline bool compresses(const Method& method) { return exchange_of(method) == UpdateExchange::one_bit; }
/// Whether an update takes all ranks, at the same time: nobody makes it overlapped with other work.
inline bool talks_to_ranks(const Method& method) { return exchange_of(method) != UpdateExchange::nothing; }

/// What parameters whose name contains a match of the pattern (ECMAScript) do differently. The first match counts.
struct ParameterGroup {
  std::string pattern;
  double lr_scale = 1;
  std::optional<double> weight_decay = {};  // also where the parameter would not decay otherwise
};

struct OptimizerOptions {
  Method method = AdamOptions{};
  double weight_decay = 0;
  bool decay_all = false;          // also norms and biases, which are left out by default
  int64_t state_block = 0;         // > 0: states are 8-bit codes with one scale for so many elements (arXiv 2110.02861)
  DType state_dtype = DType::f32;  // states that are not codes have it: f32, or the parameters' 16-bit dtype
  bool master_weights = true;      // false: 16-bit parameters are updated themselves, without fp32 masters
  /// 16-bit values without fp32 ones beside them are rounded at random, drawn from `seed`; false: to the nearest.
  bool stochastic_rounding = true;
  uint64_t seed = 0;
  std::vector<ParameterGroup> groups = {};
  std::optional<Schedule> momentum_cycle = {};  // a OneCycle schedule that moves the betas as well
};

}  // namespace nought
