#include "nought/train/model_beside.h"

#include "nought/engine/pipeline_cut.h"
#include "nought/models/context_choice.h"
#include "nought/models/decoder.h"
#include "nought/models/expert_spread.h"
#include "nought/models/tensor_cuts.h"

namespace nought {

void require_shareable(const RunPlan& plan, const ModelConfig& config) {
  const Layout& layout = plan.layout;
  require_cuttable(config, layout.tensor_ranks, layout.ranks);
  require_spreadable(config, layout.expert_ranks, layout.token_ranks() / layout.replicas);
  if (layout.context_method == ContextMethod::heads)
    require_heads_for(config, layout.context_ranks, layout.tensor_ranks, layout.ranks);
  require_stages(plan, config);
}

void require_same_vocabulary(const ModelConfig& config, int64_t vocab_size) {
  require<ConfigError>(config.vocab_size == vocab_size,
                       "the model has {} tokens, and the one that is trained {}: they must read the same tokens",
                       config.vocab_size, vocab_size);
}

void require_reads(const RunPlan& plan, const ModelConfig& config, const std::string& folder,
                   const Tokenizer& tokenizer) {
  require<ConfigError>(!holds_tokenizer(folder) || make_tokenizer(folder)->fingerprint() == tokenizer.fingerprint(),
                       "its tokenizer gives texts other tokens than {}: they must be the same", tokenizer.name());
  Decoder(config).require_positions(plan.layout.seq_length);
}

}  // namespace nought
