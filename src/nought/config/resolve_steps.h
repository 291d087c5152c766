// The steps of resolve(): each reads what the Resolver has and sets a part of its plan. ConfigError names a value that
// cannot be. Each is in the file of its name.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "nought/config/elasticity.h"
#include "nought/config/resolver.h"

namespace nought {

// resolve_adapter.cpp
/// The section adapter, or peft_config.
void resolve_adapter_section(Resolver& r);
/// ConfigError for what an adapter does not go with; LoRA+'s rates.
void check_adapter(Resolver& r);

// resolve_aio.cpp
/// The section aio. `to_files`: whether something is offloaded to files; else its keys have no effect, and say so.
void resolve_aio(Resolver& r, bool to_files);

// resolve_alignment.cpp
/// The section alignment. ConfigError for a method or a loss that is not available.
void resolve_alignment(Resolver& r);
/// The most tokens of a prompt with an answer. seq_length: that of data.
Candidate<int64_t> length_of_answers(const Resolver& r, const Candidate<int64_t>& seq_length);
/// Checks the section data of a run that learns from judged answers.
void check_pair_data(Resolver& r);
/// ConfigError for what does not go with pairs of answers.
void check_alignment(const Resolver& r);
/// ConfigError for a key of the section that is given, but not read by the run's method.
void refuse_unless(const Resolver& r, const char* key, bool given, std::initializer_list<AlignmentMethod> methods);
/// ConfigError if an answer that the model writes may be as long as its sequence.
void require_room_for_prompts(const Resolver& r);

// resolve_distillation.cpp
/// What gkd reads.
void take_distillation(Resolver& r);
/// ConfigError for keys that only gkd reads, and the run's method does not.
void refuse_keys_of_distillation(const Resolver& r);
/// ConfigError for layouts that gkd does not know, and where answers have no room.
void check_distillation(const Resolver& r);

// resolve_buckets.cpp
void explain_automatic_buckets(Resolver& r);
void resolve_buckets(Resolver& r);

// resolve_checks.cpp
void resolve_checks(Resolver& r);

// resolve_collectives.cpp
void resolve_collectives(Resolver& r);

// resolve_compression.cpp
/// OneBitAdam, ZeroOneAdam, OneBitLamb.
Method resolve_one_bit(Resolver& r, const OptimizerArgs& args, std::pair<double, double> betas, double eps);
void resolve_comm_hook(Resolver& r);
/// ConfigError unless all else lets ranks compress to one bit, or to factors of gradients.
void check_compression(Resolver& r);

// resolve_context.cpp
/// How many of so many ranks share each sequence, and how they attend.
int64_t resolve_context(Resolver& r, int64_t ranks);
/// ConfigError unless sequences are long enough for the ranks that share them.
void check_context(const Resolver& r);

// resolve_elasticity.cpp
/// The batch by DeepSpeed's section "elasticity", if it is enabled. ConfigError if other keys give one, too.
std::optional<ElasticBatch> resolve_elasticity(Resolver& r);

// resolve_local_steps.cpp
void resolve_local_steps(Resolver& r);
void resolve_async(Resolver& r);

// resolve_live_parameters.cpp
/// What stays gathered between passes at stage 3.
void resolve_live_parameters(Resolver& r);

// resolve_mesh.cpp
/// ", left of 8 by tp_size 4,": which sizes have left so many ranks of all; "" where it is all of them.
std::string what_left(const Resolver& r, int64_t ranks);
/// ConfigError unless the schedule can run the micro-batches of a step.
void check_pipeline(const Resolver& r);
void resolve_mesh(Resolver& r);

// resolve_offload.cpp
/// An older key that says "cpu".
struct OlderName {
  const char* key;
  const Setting<bool>& setting;
};
/// `device` of a section that offloads, at `path`: none unless it is given, there or by one of its older names.
Candidate<std::string> offload_device(const Resolver& r, const std::string& path, const Auto<std::string>& setting,
                                      std::initializer_list<OlderName> older);
/// The device as the file has it: "place = value".
std::string written(const Candidate<std::string>& device);
/// Its nvme_path; ConfigError without. what: what the folder is to hold.
Candidate<std::string> offload_folder(const Resolver& r, const std::string& path, const Setting<std::string>& setting,
                                      const char* what);
/// Offloading to the host has no effect where that is the device.
void warn_of_host_memory(Resolver& r, const Candidate<std::string>& device);
void note_pin_memory(Resolver& r, const std::string& name, const std::string& path, const Setting<bool>& setting);
void resolve_offload(Resolver& r);
void resolve_delayed_update(Resolver& r);
void resolve_gradient_tier(Resolver& r);
void resolve_early_update(Resolver& r);

// resolve_offload_param.cpp
void resolve_offload_param(Resolver& r);

// resolve_optimizer.cpp
void resolve_optimizer(Resolver& r);

// resolve_pipeline.cpp
/// How the layers are shared out over so many ranks.
StagePartition resolve_partition(Resolver& r, int64_t ranks);
void resolve_checkpoint_interval(Resolver& r);

// resolve_ppo.cpp
/// How much a departure from the reference counts, which says whether there is one.
void take_kl(Resolver& r);
/// What ppo reads beside, and how its answers are written.
void take_ppo(Resolver& r);
/// What the value model begins with, once it is known what judges answers.
void take_value_model(Resolver& r);
/// ConfigError for keys that only ppo reads, and the run's method does not.
void refuse_keys_of_ppo(const Resolver& r);
/// ConfigError for what does not go with two models that are trained.
void check_ppo(const Resolver& r);

// resolve_precision.cpp
void resolve_precision(Resolver& r);
void resolve_masters(Resolver& r);

// resolve_quantization.cpp
/// The section quantization_config. ConfigError without an adapter.
void resolve_quantization(Resolver& r);

// resolve_recompute.cpp
void resolve_recompute(Resolver& r);

// resolve_replicas.cpp
/// How many of so many data-parallel ranks share out the states of parameters, if DeepSpeed's key says it.
std::optional<Candidate<int64_t>> mics_shard_size(const Resolver& r, int64_t data);
/// How many replicas so many data-parallel ranks hold.
Candidate<int64_t> replicate_size(const Resolver& r, int64_t data);
/// Whether parameters are gathered by hosts, and how many ranks a host has then.
void resolve_hierarchical_gather(Resolver& r);

// resolve_rewards.cpp
/// What methods read that learn from rewards of a model's own answers.
void take_rewards(Resolver& r);
/// How much a departure from the reference counts, and where.
void take_policy_beta(Resolver& r);
/// ConfigError for keys that only they read, and the run's method does not.
void refuse_keys_of_rewards(const Resolver& r);
/// Groups of answers to a prompt are whole in each step, and there is room for a prompt beside an answer.
void check_rewards(const Resolver& r);

// resolve_saving.cpp
void resolve_saving(Resolver& r);
/// Whether checkpoints are written beside the training.
void resolve_async_save(Resolver& r);
void resolve_reports(Resolver& r);

// resolve_schedule.cpp
void resolve_length(Resolver& r);
void resolve_schedule(Resolver& r);

// resolve_tiles.cpp
void resolve_unit_tiles(Resolver& r);

// resolve_virtual_ranks.cpp
/// training.virtual_ranks, if it is not 0. ConfigError unless the data-parallel ranks divide it.
std::optional<Candidate<int64_t>> virtual_ranks(const Resolver& r);
/// ConfigError unless all else keeps the bits.
void resolve_virtual_ranks(Resolver& r);

// resolve_smaller.cpp
/// training.qat.
void resolve_qat(Resolver& r);
/// compression_training.activation_quantization.
void resolve_activation_quantization(Resolver& r);
/// compression_training.sparse_pruning.
void resolve_sparse_pruning(Resolver& r);

// resolve_weight_quantization.cpp
/// compression_training.weight_quantization.
void resolve_weight_quantization(Resolver& r);

// resolve_zeropp.cpp
/// What ranks send each other quantized, and what they keep of gathers.
void resolve_zeropp(Resolver& r);
void resolve_quantized_frozen(Resolver& r);
void resolve_quantized_dispatch(Resolver& r);

}  // namespace nought
