// simplify(): text as searches for near duplicates compare it, without what copies differ in.
#pragma once

#include <string>
#include <string_view>

namespace nought {

/// The text, valid UTF-8, in small letters, with "0" for each number, without punctuation and accents, and with one
/// space between words (datatrove's simplify_text()).
std::string simplify(std::string_view text);

}  // namespace nought
