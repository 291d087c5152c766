// A value of a Parquet file in JSON's notation.
#pragma once

#include <string>
#include <string_view>

#include "nought/io/parquet_column.h"
#include "nought/io/parquet_layout.h"

namespace nought {

/// Appends a string in quotes. Bytes that are no UTF-8 stay, for the reader to find.
void append_json_string(std::string& json, std::string_view text);
/// Appends a value, see ParquetSource. IoError, without the name of the file, for a value that its type can not have.
void append_json_value(std::string& json, const ParquetColumn& column, const ParquetValue& value);
/// What a value is as the key of an object: a string is itself, all else is what append_json_value() writes.
void append_json_key(std::string& json, const ParquetColumn& column, const ParquetValue& value);

}  // namespace nought
