// FittedConstants: what a generation of GPUs reaches of its data sheet, fitted to published step times.
//
// Design goals: one set for a generation of chips, the same for every framework and layout; each number has a physical
// meaning. fitted.json holds all of them, and scripts/fit-simulator.py fits them again.
#pragma once

#include <map>
#include <string>

#include "nought/base/visit.h"

namespace nought {

struct FittedConstants {
  double products = 0, knee = 0, fp8 = 0, attention = 0, passes = 0, exchange = 0, link = 0, network = 0, latency = 0,
         overlap = 0, contention = 0, fixed = 0, permutation = 0, experts = 0, operations = 0;

  template <class V>
  void visit(V& v) {
    v("products", products, "the share of the peak that a large product reaches");
    v("knee", knee, "a dimension of a product at which it reaches half of that");
    v("fp8", fp8, "the share of `products` that FP8 products reach of the FP8 peak");
    v("attention", attention, "the share of the peak that fused attention reaches with heads of 128 elements");
    v("passes", passes, "element-wise passes of a layer's forward pass over its activations");
    v("exchange", exchange, "the share of `link` that rows of experts reach inside a host; in a rack they reach all");
    v("link", link, "the share of the fast link's bandwidth that collectives reach");
    v("network", network, "the share of a network card's bandwidth that collectives reach");
    v("latency", latency, "seconds of each hop of a collective between hosts");
    v("overlap", overlap, "the share of exchanges within a layer that frameworks hide which try to");
    v("contention", contention, "the share of hidden exchanges by which their neighbour is slower");
    v("fixed", fixed, "seconds of a step that nothing else explains");
    v("permutation", permutation, "passes over the rows of experts to permute them");
    v("experts", experts, "the share of `products` that grouped products of experts reach");
    v("operations", operations, "seconds of starting the operations of a layer's forward pass");
  }
};

/// fitted.json as text.
const char* fitted_text();
/// The sets by the name of the generation: "a100", "h100", "blackwell". ConfigError in one line for a constant that is
/// missing, unknown, negative or not finite; `name` stands in front.
std::map<std::string, FittedConstants> read_fitted(const std::string& text, const std::string& name);
/// The sets that the program was built with.
const std::map<std::string, FittedConstants>& fitted_constants();

}  // namespace nought
