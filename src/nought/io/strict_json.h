// Reads the JSON of files that may be damaged or hostile, and quotes their text safely in messages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "nought/base/json.h"

namespace nought {

/// The text as a message quotes it: one short line of printable characters.
std::string excerpt(std::string_view text);

/// How many levels of lists and objects a JSON text has, by its brackets. What is no JSON has some number, too.
int nesting_of(std::string_view text);

/// Parses JSON, and refuses what the JSON library would let pass: a key given twice in one object, and nesting beyond
/// `max_depth`. `part` says what the text is within the file ("the header"). The IoError names file and part.
Json parse_strictly(const std::string& file, std::string_view part, std::string_view text, int max_depth);

/// Parses an object with very many members: each that is an object itself is given to `member` and not kept, for the
/// library looks through all that it kept whenever an object ends. Returns the members that are left.
Json parse_strictly(const std::string& file, std::string_view part, std::string_view text, int max_depth,
                    const std::function<void(const std::string& name, const Json& value)>& member);

}  // namespace nought
