// --activations: what the inputs of products are computed in.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/kernels/kernels.h"
#include "nought/weights/kept_codes.h"

namespace nought {

enum class Activations : uint8_t {
  automatic,  // int8 where weights are kept as codes and the CPU has no units for bf16, else as the model is stored
  int8,       // rounded to 8 bits where they meet codes
  bf16,       // the model computes in bf16
  f32         // in fp32: nothing is rounded
};

void add_activations_option(CLI::App& command, Activations& activations);
/// The dtype that replaces the stored one, if any.
std::optional<DType> computed_dtype(Activations activations);
/// `context`, whose kernels round if that is wanted of a model with these codes. ConfigError if it is asked for and
/// there is nothing to round for; DeviceError if no kernels do it.
Context context_for(Activations activations, const std::vector<KeptFormat>& kept, const Context& context);
/// Whether the kernels of context_for() round.
bool rounds_inputs(const Context& context);

}  // namespace nought
