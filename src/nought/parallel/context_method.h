// ContextMethod: how queries meet the keys that other ranks have. No tensors: configurations name it, too.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

enum class ContextMethod : uint8_t {
  ring,    // keys and values go round the ranks (arXiv 2310.01889)
  gather,  // every rank gathers all keys and values (arXiv 2407.21783)
  heads    // ranks exchange tokens for heads: each attends with some heads over all tokens (arXiv 2309.14509)
};

/// By the keys that ask for it: "p2p", "all_gather" (cp_comm_type), "Ulysses" (sp_size).
std::string_view name_of(ContextMethod method);

}  // namespace nought
