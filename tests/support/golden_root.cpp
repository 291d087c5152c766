#include "support/golden_root.h"

namespace nought::test {

std::string golden_root() { return NOUGHT_GOLDEN_DIR; }

std::string docs_root() { return NOUGHT_DOCS_DIR; }

}  // namespace nought::test
