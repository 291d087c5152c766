#include "nought/cli/activations.h"

#include <string>

#include "nought/base/error.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/rounded_inputs.h"

namespace nought {

namespace {

Activations activations_named(const std::string& name) {
  if (name == "auto") return Activations::automatic;
  if (name == "int8") return Activations::int8;
  if (name == "bf16") return Activations::bf16;
  if (name == "f32") return Activations::f32;
  fail<ConfigError>("--activations {}: expected auto, int8, bf16 or f32", name);
}

}  // namespace

void add_activations_option(CLI::App& command, Activations& activations) {
  command
      .add_option_function<std::string>(
          "--activations", [&activations](const std::string& name) { activations = activations_named(name); },
          "int8: inputs are rounded to 8 bits where they meet codes of a GGUF file or of Q8_0, for speed; bf16, "
          "f32: the model computes in that dtype, without it; auto: int8, but on CPUs with units for bf16 as "
          "the model is stored")
      ->type_name("auto|int8|bf16|f32")
      ->default_str("auto");
}

std::optional<DType> computed_dtype(Activations activations) {
  if (activations == Activations::bf16) return DType::bf16;
  if (activations == Activations::f32) return DType::f32;
  return {};
}

Context context_for(Activations activations, const std::vector<KeptFormat>& kept, const Context& context) {
  const bool asked = activations == Activations::int8;
  if (!asked && activations != Activations::automatic) return context;
  const bool on_host = context.memory->device().is_host();
  require<ConfigError>(!asked || (on_host && !kept.empty()), "--activations int8: {}",
                       on_host ? "the weights are dense; it rounds for those of a GGUF file, or of Q8_0, in codes"
                               : "only the kernels of CPUs round inputs");
  if (!asked && (kept.empty() || !on_host || !can_round_inputs() || has_bf16_units())) return context;
  Context rounding = context;
  rounding.kernels = make_rounding_cpu_kernels();
  return rounding;
}

bool rounds_inputs(const Context& context) { return context.kernels->name() == kRoundingKernels; }

}  // namespace nought
