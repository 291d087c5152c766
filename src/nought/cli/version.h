// The version that the program prints, with the commit that it was built from.
#pragma once

#include <string>

namespace nought {

/// "0.1.0 (a86533e)"; "(a86533e+)" if tracked files were changed since that commit, "(unknown)" where there was no
/// repository, as in a release archive.
std::string version();

}  // namespace nought
