// Base64: bytes that a text file spells in 64 letters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nought {

/// The bytes, or nothing if another letter is among them. Padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace nought
