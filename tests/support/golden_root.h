// Where the golden files and the docs are. Each program has it from golden_root.cpp, which knows the path of this
// checkout.
#pragma once

#include <string>

namespace nought::test {

/// The folder tests/golden.
std::string golden_root();

/// The folder docs.
std::string docs_root();

}  // namespace nought::test
