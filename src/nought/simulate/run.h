// SimulatedRun: a training run as far as the time of its step depends on it: model, layout, batch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nought/base/visit.h"
#include "nought/simulate/shape.h"
#include "nought/simulate/software.h"

namespace nought {

enum class Recomputed : uint8_t {
  none,
  light,      // norms, activations and such: what no product is in
  attention,  // the core of attention; a fused one does so by itself
  products,   // light, and every second product (torchtitan's selective)
  full        // layers as wholes
};
enum class Products : uint8_t { bf16, fp8 };
enum class SimulatedSchedule : uint8_t { gpipe, one_f_one_b, interleaved, zbh1, zbv, dual_pipe };

std::string_view name_of(Recomputed recompute);
std::string_view name_of(SimulatedSchedule schedule);

struct SimulatedRun {
  ModelShape model;
  Software software;
  double sequence = 0, global_batch = 0, micro_batch = 1;
  double tp = 1, pp = 1, vp = 1, cp = 1, ep = 1, dp = 1;
  bool sequence_parallel = false;
  int zero_stage = 0;
  Recomputed recompute = Recomputed::none;
  Products products = Products::bf16;
  SimulatedSchedule schedule = SimulatedSchedule::one_f_one_b;
  bool offload_states = false;

  double ranks() const { return tp * pp * cp * dp; }
  double micro_batches() const { return global_batch / dp / micro_batch; }
  /// Tokens of a micro-batch on a rank, before tensor parallelism.
  double tokens() const { return micro_batch * sequence / cp; }
  /// Micro-batches, as wholes of all layers of a rank, whose activations the first rank of a pipeline holds at once.
  double in_flight() const;
  /// "tp 8 pp 16 vp 4 cp 1 ep 1 dp 128, stage 1, micro-batch 1, recompute full, states on the host"
  std::string str() const;
  double tokens_per_step() const { return global_batch * sequence; }
};

}  // namespace nought
