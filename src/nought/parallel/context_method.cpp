#include "nought/parallel/context_method.h"

namespace nought {

std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::ring:
      return "p2p";
    case ContextMethod::gather:
      return "all_gather";
    case ContextMethod::heads:
      return "Ulysses";
  }
  return "";
}

}  // namespace nought
