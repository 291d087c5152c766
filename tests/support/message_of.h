// What an error says: for tests of messages.
#pragma once

#include <string>

namespace nought::test {

/// The message of the E that f() throws; "" if it throws nothing. Other exceptions pass.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace nought::test
