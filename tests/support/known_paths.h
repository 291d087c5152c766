// Where CMake made what a test program starts or reads: nought_known_paths() in tests/CMakeLists.txt. The paths stand
// in one generated file of each program, so that another checkout's tests are the same text for ccache.
#pragma once

#include <string>
#include <string_view>

namespace nought::test {

/// The path of what the program's CMakeLists.txt gives this name. Ends the program if it gives none.
std::string known_path(std::string_view name);

}  // namespace nought::test
