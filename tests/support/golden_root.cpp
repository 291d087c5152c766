#include "support/golden_root.h"

namespace nought::test {

std::string golden_root() { return NOUGHT_GOLDEN_DIR; }

}  // namespace nought::test
