// JSON schemas as expressions of a grammar: all that is written satisfies the schema.
//
// Supported: type (also a list of them), properties, required, additionalProperties, items, prefixItems, minItems,
// maxItems, enum, const, anyOf, oneOf (read as anyOf), allOf of objects, $ref and $defs (recursive, too), minLength,
// maxLength, pattern, format date, time, date-time and uuid, and minimum, maximum, exclusiveMinimum and
// exclusiveMaximum of integers. Properties come in the order of the schema; where it says nothing of others, there are
// none. Between parts stand a space, a line break with at most 20 spaces, or nothing.
#pragma once

#include "nought/base/json.h"
#include "nought/base/json_fwd.h"
#include "nought/grammar/grammar.h"

namespace nought {

/// ConfigError names the keyword that is not supported or malformed, and the place in the schema.
Grammar::Expression json_schema_expression(Grammar& grammar, const OrderedJson& schema);
/// Any JSON object.
Grammar::Expression json_object_expression(Grammar& grammar);
/// White space as it may stand between the parts of JSON.
Grammar::Expression json_space(Grammar& grammar);

}  // namespace nought
