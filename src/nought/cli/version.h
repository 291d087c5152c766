// The version that the program prints, with the commit that it was built from.
#pragma once

#include <string>

namespace nought {

/// The version and the commit: "0.1.0 (a86533e)". The commit is "a86533e+" if tracked files were changed since, and
/// "unknown" if the program was built without the repository, as from a release archive.
std::string version();

}  // namespace nought
