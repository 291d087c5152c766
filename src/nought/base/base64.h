// Base64: bytes that a text spells in 64 letters (RFC 4648, with + and /).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nought {

/// With padding.
std::string encode_base64(std::string_view bytes);
/// The bytes, or nothing if another letter is among them. Padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace nought
