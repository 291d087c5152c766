// GpuRates: what a GPU reaches, for a prediction of a step where there is none.
#pragma once

#include <string>

#include "nought/base/visit.h"

namespace nought {

/// FLOP/s, B/s and seconds of one GPU. What operations reach on it, and not what its data sheet promises, but for
/// `peak`.
struct GpuRates {
  std::string name = {};
  double peak = 0, products = 0, products_f32 = 0, attention = 0, memory = 0;
  double exchange = 0, bus = 0, host_memory = 0, launch = 0;

  template <class V>
  void visit(V& v) {
    v("name", name, "what it is called");
    v("peak", peak, "FLOP/s of 16 bits by its data sheet, without sparsity: what MFU is a share of");
    v("products", products, "FLOP/s of a large product in bf16 or f16, besides moving its operands");
    v("products_f32", products_f32, "FLOP/s of a large product in f32");
    v("attention", attention, "FLOP/s of attention in bf16 or f16 with heads of 128 elements, forward and backward");
    v("memory", memory, "B/s of a copy, read and written");
    v("exchange", exchange, "B/s that a GPU sends to others of its host while they send as much");
    v("bus", bus, "B/s between the host's memory and the GPU's, in each direction");
    v("host_memory", host_memory, "B/s of the host's memory, for each GPU");
    v("launch", launch, "seconds of the host to start an operation");
  }
};

/// The rates of a GPU that is known by name: a100, h100, h200 (SXM), 4090; or of a file, a JSON object with all of the
/// keys above (`name` may be missing). ConfigError, in one line, for another name, a file that can not be read, and a
/// rate that is missing, unknown, or no finite number above 0.
GpuRates gpu_rates(const std::string& name_or_file);

}  // namespace nought
