// The errors that Nought throws, and require(), which throws them.
//
// A message is one line that names the thing, what was found, what was expected and what to do. Library code throws;
// only main() ends the process. Destructors never throw.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace nought {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// A value that the user wrote (a config file, a command line) is wrong or contradicts another.
class ConfigError : public Error {
 public:
  using Error::Error;
};
/// Tensors whose shapes or dtypes do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// Memory or a device refused a request.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A collective failed, timed out, or a peer is gone.
class CommError : public Error {
 public:
  using Error::Error;
};
/// A file is missing, unreadable, truncated or malformed.
class IoError : public Error {
 public:
  using Error::Error;
};

/// Throws E with the formatted message.
template <class E = Error, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw E(fmt::format(message, std::forward<Args>(args)...));
}

/// Throws E with the formatted message unless the condition holds. The arguments are formatted only then, so a caller
/// on a hot path passes a tensor or a shape itself and not its str().
template <class E = Error, class... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    throw E(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace nought

/// Formats every type that has a str(): tensors, shapes, calls of collectives.
template <class T>
requires requires(const T& value) {
  { value.str() } -> std::same_as<std::string>;
}
struct fmt::formatter<T> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::format_to(context.out(), "{}", value.str());
  }
};
