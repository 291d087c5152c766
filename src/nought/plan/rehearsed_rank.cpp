#include "nought/plan/rehearsed_rank.h"

#include <algorithm>

#include "nought/models/stages.h"

namespace nought {

namespace {

int rank_at(const Layout& layout, int place) {
  return place * (layout.ranks / layout.stages()) + layout.tensor_ranks * layout.with_most_tokens();
}

Mesh silent_mesh(Communicator& ranks, const Context& context, const Layout& layout) {
  return {ranks, layout.grid(), [&](const std::vector<int>& group) {
            const auto here = std::find(group.begin(), group.end(), ranks.rank()) - group.begin();
            return make_silent_communicator(context, static_cast<int>(here), static_cast<int>(group.size()),
                                            layout.wire);
          }};
}

PipelineCut stage_cut(const ModelConfig& config, const Layout& layout) {
  PipelineCut cut = cut_of(layout.pipeline);
  cut.partition = with_costs(std::move(cut.partition), config, layout.seq_length);
  return cut;
}

Decoder& frozen(Decoder& decoder, const Layout& layout) {
  apply(layout.freezing, decoder);
  return decoder;
}

ShardedModel::Options options_of(const Layout& layout) {
  ShardedModel::Options options = layout.sharding;
  options.policy = Policy::stage(layout.zero_stage);
  // What is put off after some steps takes most from the first step after them on.
  if (options.offload_optimizer.delay_after) options.offload_optimizer.delay_after = 0;
  return options;
}

}  // namespace

RehearsedRank::RehearsedRank(const ModelConfig& config, const Layout& layout, int place)
    : context{Memory::create_virtual(), make_counting_kernels(work)},
      ranks(make_silent_communicator(context, rank_at(layout, place), layout.ranks, layout.wire)),
      mesh(silent_mesh(*ranks, context, layout)),
      decoder(config, layout.recompute, layout.fp8,
              ModelRanks(mesh, layout.sequence_parallel, stage_cut(config, layout), layout.context_method)),
      model(context, mesh, frozen(decoder, layout), options_of(layout)) {}

}  // namespace nought
