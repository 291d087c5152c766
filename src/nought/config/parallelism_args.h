// training.parallelism_config: how many ranks each axis of the mesh has.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/visit.h"

namespace nought {

/// accelerate's ParallelismConfig, and beside it pipeline stages, experts and Megatron-LM's sequence_parallel: how many
/// ranks each axis of the mesh has.
struct ParallelismArgs {
  Setting<int64_t> dp_replicate_size{int64_t{1}};
  Setting<int64_t> dp_shard_size;
  Setting<int64_t> cp_size{int64_t{1}};
  Setting<int64_t> sp_size{int64_t{1}};
  Setting<std::string> cp_comm_type{"auto"};
  Setting<int64_t> tp_size{int64_t{1}};
  Setting<int64_t> pp_size{int64_t{1}};
  Setting<std::string> pipeline_parallel_schedule{"1F1B"};
  Setting<int64_t> virtual_pipeline_size;
  Setting<std::string> pipeline_parallel_partition{"parameters"};
  Setting<int64_t> pipeline_parallel_first_stage_less_layers{int64_t{1}};
  Setting<int64_t> pipeline_parallel_last_stage_less_layers{int64_t{1}};
  Setting<int64_t> ep_size{int64_t{1}};
  Setting<bool> sequence_parallel{false};

  template <class V>
  void visit(V& v) {
    v("dp_replicate_size", dp_replicate_size,
      "HSDP: copies of the sharded model, whose ranks read different samples; each rank adds its shard of the "
      "gradients over them once in a step");
    v("dp_shard_size", dp_shard_size,
      "ranks that read different samples and share out what the ZeRO stage shards; default: all ranks / "
      "(dp_replicate_size x cp_size x sp_size x tp_size x pp_size)");
    v("cp_size", cp_size,
      "context parallelism: neighbouring ranks that each have a part of every sequence, and meet the keys of the "
      "others by cp_comm_type");
    v("sp_size", sp_size,
      "Ulysses: the same, but for attention the ranks exchange tokens for heads, which they share out; one of the two "
      "sizes is 1");
    v("cp_comm_type", cp_comm_type,
      "p2p: keys and values go round the ranks (ring attention); all_gather: every rank gathers them; auto: they are "
      "gathered as long as they take no more memory than the widest activations of a layer");
    v("tp_size", tp_size,
      "tensor parallelism: neighbouring ranks that share the matrices, the heads and the vocabulary, and see the same "
      "samples");
    v("pp_size", pp_size,
      "pipeline parallelism: ranks that each hold some of the layers and pass the hidden states of micro-batches on; "
      "gradient_accumulation_steps is the number of micro-batches");
    v("pipeline_parallel_schedule", pipeline_parallel_schedule,
      "the order of their passes, by torch's names: GPipe, 1F1B, Interleaved1F1B, ZBH1 or ZBVZeroBubble");
    v("virtual_pipeline_size", virtual_pipeline_size,
      "stages that each of these ranks holds; default: 2 with Interleaved1F1B and ZBVZeroBubble, else 1");
    v("pipeline_parallel_partition", pipeline_parallel_partition,
      "how the embedding, the blocks and the head are shared out over the stages: their parameters are balanced "
      "(parameters, or best), or their time, which is measured before the run (profile), or the number of those whose "
      "names match a regular expression (type:block); or stages have as many each (uniform)");
    v("pipeline_parallel_first_stage_less_layers", pipeline_parallel_first_stage_less_layers,
      "how many layers the first stage has less than others of a uniform partition, for the embedding");
    v("pipeline_parallel_last_stage_less_layers", pipeline_parallel_last_stage_less_layers,
      "the same of the last stage, for the head; with one of the two the partition is uniform");
    v("ep_size", ep_size,
      "expert parallelism: of the ranks that have different tokens, how many neighbours hold different experts and "
      "exchange tokens; it divides cp_size x sp_size x dp_shard_size and the number of experts");
    v("sequence_parallel", sequence_parallel,
      "between their products, the ranks of tp_size have a slice of the tokens each: less activations, the same "
      "result");
  }
};

}  // namespace nought
