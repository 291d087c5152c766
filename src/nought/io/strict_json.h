// JSON of files that anyone may have damaged: read strictly, and quoted safely.
#pragma once

#include <string>
#include <string_view>

#include "nought/base/json.h"

namespace nought {

/// What is quoted of such a file: one short printable line.
std::string excerpt(std::string_view text);

/// Refuses what the JSON library would let pass: a key given twice in one object, and nesting beyond `max_depth`.
/// IoError names the file and the part of it that the text is ("the header").
Json parse_strictly(const std::string& file, std::string_view part, std::string_view text, int max_depth);

}  // namespace nought
