// random_nonce(): what the Content-Security-Policy of a page allows its own scripts and styles by.
#pragma once

#include <string>

namespace nought {

/// 32 hexadecimal digits that nobody knew before, from the system's source of random numbers.
std::string random_nonce();

}  // namespace nought
