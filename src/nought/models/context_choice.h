// How the ranks of the context axis attend together, which depends on the model.
#pragma once

#include <optional>
#include <string>

#include "nought/models/config.h"
#include "nought/parallel/context_method.h"

namespace nought {

struct ContextChoice {
  ContextMethod method = ContextMethod::ring;
  std::string reason;          // for the user
  int64_t gathered_heads = 0;  // see ContextRanks
};

/// For so many ranks with parts of the same sequences, where so many share each matrix. asked: the one that it must be.
/// Both send as much. Gathering takes one call of attention, and merges nothing; but then the keys and values of a
/// whole sequence are in memory at once. So they are gathered as long as they take no more than the widest activations
/// of a layer that a rank has of its own tokens, and else go round. If they must be gathered all the same, it is so
/// many heads at a time that those are no wider, or one.
ContextChoice choose_context_method(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks,
                                    std::optional<ContextMethod> asked = {});

/// True if ranks that attend by Ulysses can share out the heads that each of the ranks that share matrices has.
bool can_share_heads(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks);
/// ConfigError, with the nearest number that is possible, if the ranks attend by Ulysses and cannot share out the heads
/// that each of the ranks that share matrices has. It divides `of`, the ranks of the whole job; not given: they are
/// all.
void require_heads_for(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks, std::optional<int64_t> of = {});

}  // namespace nought
