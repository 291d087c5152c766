// training.virtual_ranks: the number of ranks whose bits a run has, whatever its own.
#include <bit>

#include "nought/config/resolve_steps.h"
#include "nought/config/run_traits.h"
#include "nought/optim/compressed_phase.h"

namespace nought {

namespace {

constexpr int64_t kMostVirtualRanks = 4096;

/// "1, 2, 4": the powers of two up to `most`.
std::string powers_up_to(int64_t most) {
  std::string text;
  for (int64_t power = 1; power <= most; power *= 2) text += fmt::format("{}{}", power > 1 ? ", " : "", power);
  return text;
}

/// What virtual ranks do not go with, and why.
void refuse_what_has_other_bits(const Resolver& r, const std::string& place) {
  const ShardingOptions& sharding = r.plan.layout.sharding;
  const auto refuse_if = [&](bool is, std::string_view what) {
    require<ConfigError>(!is, "{}: not with {}: remove one of the two", place, what);
  };
  const auto refused = first_refused(
      r.plan, {{Trait::makes_local_steps, "training.diloco, whose workers make steps of their own"},
               {Trait::splits_experts, "ep_size above 1, whose experts add up the tokens of several ranks at once"}});
  if (refused) refuse_if(true, refused->what);
  refuse_if(r.plan.layout.staleness.has_value(), "training.async_data_parallel, whose updates depend on time");
  refuse_if(r.plan.layout.context_ranks > 1,
            "cp_size or sp_size above 1, whose ranks add up parts of the same sequences");
  refuse_if(compresses(sharding.optimizer.method),
            "OneBitAdam, ZeroOneAdam or OneBitLamb, whose ranks send what each has rounded");
  refuse_if(std::holds_alternative<LambOptions>(sharding.optimizer.method), "Lamb, whose norms are added up by ranks");
  refuse_if(sharding.power_sgd.has_value(), "training.ddp_comm_hook, whose factors are of each rank's gradients");
  refuse_if(!sharding.codes.plain(), "ZeRO++'s quantized weights or gradients, whose blocks end where shards do");
  refuse_if(sharding.gradient_dtype != DType::f32,
            "data_types.grad_accum_dtype other than fp32, in which partial sums are kept");
  refuse_if(sharding.wire() != DType::f32,
            "communication_data_type other than fp32, to which ranks would round their partial sums");
  refuse_if(r.plan.gradient_factor != 1, "prescale_gradients = false, whose factor is of the ranks");
}

/// What keeps the bits, and what agrees with them up to rounding, of the axes that the run has.
std::string axes_of(const Layout& layout) {
  std::string text = "the same bits for any number of data-parallel ranks, at every ZeRO stage";
  if (layout.tensor_ranks > 1)
    text += fmt::format(", with tp_size {}; another tp_size agrees up to rounding", layout.tensor_ranks);
  if (layout.stages() > 1) text += ", and for any pp_size";
  return text;
}

}  // namespace

std::optional<Candidate<int64_t>> virtual_ranks(const Resolver& r) {
  const auto virtual_ranks = r.training("virtual_ranks", r.config.training.virtual_ranks);
  if (virtual_ranks.value == 0) return {};
  require<ConfigError>(virtual_ranks.value > 0 && virtual_ranks.value <= kMostVirtualRanks &&
                           std::has_single_bit(static_cast<uint64_t>(virtual_ranks.value)),
                       "{}: expected 0 or a power of two up to {}, got {}", virtual_ranks.place, kMostVirtualRanks,
                       virtual_ranks.value);
  const int64_t ranks = r.plan.layout.data_ranks();
  require<ConfigError>(virtual_ranks.value % ranks == 0,
                       "{} = {}: {} data-parallel ranks do not divide it; {} would fit", virtual_ranks.place,
                       virtual_ranks.value, ranks, powers_up_to(virtual_ranks.value));
  return virtual_ranks;
}

void resolve_virtual_ranks(Resolver& r) {
  const auto given = virtual_ranks(r);
  if (!given) return;
  const Layout& layout = r.plan.layout;
  const int64_t ranks = layout.data_ranks(), micro_batches = given->value / ranks;
  require<ConfigError>(layout.accumulation == micro_batches,
                       "{} = {}: {} data-parallel rank{} x gradient_accumulation_steps {} make {}; {} would fit, as "
                       "without the key",
                       given->place, given->value, ranks, ranks == 1 ? "" : "s", layout.accumulation,
                       ranks * layout.accumulation, micro_batches);
  refuse_what_has_other_bits(r, given->place);
  r.plan.layout.sharding.virtual_ranks = static_cast<int>(r.note("virtual_ranks", *given));
  const int levels = std::bit_width(static_cast<uint64_t>(micro_batches)) - 1;
  r.plan.resolved.push_back(
      {"virtual_ranks.sums",
       levels == 0 ? std::string("no memory: a micro-batch in a step")
                   : fmt::format("{} of {} gradients in fp32{}", levels,
                                 layout.zero_stage >= 2 ? "this rank's shard of the" : "all",
                                 levels > 1 ? fmt::format(", {} more than without virtual ranks", levels - 1) : ""),
       fmt::format("a tree over {} micro-batch{}", micro_batches, micro_batches == 1 ? "" : "es")});
  r.plan.resolved.push_back({"virtual_ranks.bits", axes_of(layout), "docs/communication.md"});
}

}  // namespace nought
