// Lines, bars and tables that fit a terminal. A width is a number of columns; 0 stands for no limit.
//
// Design goals: nothing is cut. Where there is no room, what matters least is left out, or the line goes on below.
// Non-goals: characters that are two columns wide.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// How many columns a text takes: one per character of UTF-8.
int columns_of(std::string_view text);

/// A field of a line.
struct Field {
  std::string text;
  int rank = 0;  // where there is no room, the field with the largest rank goes first
};
/// The fields in their order, two spaces apart, without those that find no room. One stays in any case. Fields without
/// text are left out.
std::string fit_fields(std::vector<Field> fields, int width);

/// The text with its longer lines broken at spaces. What goes on below begins with `indent` spaces. A word that is
/// wider than that is not broken.
std::string wrap(std::string_view text, int width, int indent = 0);

/// A line that begins with a bar, of which `part` (0 to 1) is full. The bar gets shorter before fields go, and goes
/// before the last field does.
std::string bar_line(double part, const std::vector<Field>& fields, int width);

/// A table whose first column is aligned to the left, and the others to the right.
struct Table {
  std::vector<int> ranks;                      // a rank per column behind the first, as in Field; 0: the column stays
  std::vector<std::vector<std::string>> rows;  // a row may be shorter than others
  int name_columns = 0, cell_columns = 0;      // the least widths of the first column and of the others, if all fits
};
/// One line for each row, without spaces at its end. A name that leaves no room for the columns that always stay is
/// wrapped.
std::string fit_table(const Table& table, int width);

}  // namespace nought
