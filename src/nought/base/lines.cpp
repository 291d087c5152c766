#include "nought/base/lines.h"

#include <algorithm>

#include <fmt/core.h>

namespace nought {

namespace {

constexpr int kGap = 2;  // columns between fields, and between the columns of a table

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string spaces(int count) { return std::string(static_cast<size_t>(std::max(count, 0)), ' '); }

std::string without_end(std::string text) {
  text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

/// The last space at which a line can be broken so that its beginning has at most `width` columns; else the first one;
/// npos if its only spaces stand before its first word.
size_t break_of(std::string_view line, int width) {
  const size_t begin = line.find_first_not_of(' ');
  size_t found = std::string_view::npos;
  int columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ' && i > begin) {
      if (columns > width && found != std::string_view::npos) break;
      found = i;
    }
    if (!continues_character(line[i])) ++columns;
  }
  return found;
}

std::string wrap_line(std::string line, int width, int indent) {
  std::string text;
  while (columns_of(line) > width) {
    const size_t at = break_of(line, width);
    const size_t next = at == std::string::npos ? at : line.find_first_not_of(' ', at);
    if (next == std::string::npos) break;
    text += without_end(line.substr(0, at)) + '\n';
    line = spaces(indent) + line.substr(next);
  }
  return text + line;
}

}  // namespace

int columns_of(std::string_view text) {
  return static_cast<int>(text.size() -
                          static_cast<size_t>(std::count_if(text.begin(), text.end(), continues_character)));
}

std::string fit_fields(std::vector<Field> fields, int width) {
  std::erase_if(fields, [](const Field& field) { return field.text.empty(); });
  const auto columns = [&] {
    int sum = -kGap;
    for (const Field& field : fields) sum += columns_of(field.text) + kGap;
    return sum;
  };
  while (width > 0 && fields.size() > 1 && columns() > width) {
    auto least = fields.begin();
    for (auto each = fields.begin(); each != fields.end(); ++each)
      if (each->rank >= least->rank) least = each;
    fields.erase(least);
  }
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : spaces(kGap)) + field.text;
  return line;
}

std::string wrap(std::string_view text, int width, int indent) {
  if (width <= 0) return std::string(text);
  std::string wrapped;
  while (true) {
    const size_t end = text.find('\n');
    wrapped += wrap_line(std::string(text.substr(0, end)), width, indent);
    if (end == std::string_view::npos) return wrapped;
    wrapped += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string bar_line(double part, const std::vector<Field>& fields, int width) {
  constexpr int kLongest = 30, kShortest = 10, kFrame = 3;  // the brackets and a space
  const int asked = columns_of(fit_fields(fields, 0));
  const int cells = width <= 0 ? kLongest : std::clamp(width - asked - kFrame, kShortest, kLongest);
  const std::string text = fit_fields(fields, width <= 0 ? 0 : std::max(width - cells - kFrame, 1));
  if (width > 0 && columns_of(text) + cells + kFrame > width) return fit_fields(fields, width);
  const int full = std::clamp(static_cast<int>(part * cells), 0, cells);
  return fmt::format("[{}{}] {}", std::string(static_cast<size_t>(full), '#'), spaces(cells - full), text);
}

namespace {

/// The widths of a table's columns. 0 for one that is left out.
class TableWidths {
 public:
  TableWidths(const Table& table, int width) : table_(table), columns_(table.ranks.size() + 1) {
    fit(table.name_columns, table.cell_columns);
    if (width <= 0 || sum() <= width) return;
    fit(0, 0);
    while (sum() > width && leave_out_one()) continue;
    constexpr int kLeastName = 12;
    if (sum() > width) columns_[0] = std::max(columns_[0] - (sum() - width), std::min(columns_[0], kLeastName));
  }

  int of(size_t column) const { return columns_[column]; }

 private:
  void fit(int name, int cell) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      columns_[c] = c == 0 ? name : cell;
      for (const std::vector<std::string>& row : table_.rows)
        if (c < row.size()) columns_[c] = std::max(columns_[c], columns_of(row[c]));
    }
  }
  int sum() const {
    int sum = columns_[0];
    for (size_t c = 1; c < columns_.size(); ++c) sum += columns_[c] > 0 ? columns_[c] + kGap : 0;
    return sum;
  }
  bool leave_out_one() {
    size_t least = 0;
    int rank = 0;
    for (size_t c = 1; c < columns_.size(); ++c)
      if (columns_[c] > 0 && table_.ranks[c - 1] > 0 && table_.ranks[c - 1] >= rank)
        least = c, rank = table_.ranks[c - 1];
    if (least > 0) columns_[least] = 0;
    return least > 0;
  }

  const Table& table_;
  std::vector<int> columns_;
};

}  // namespace

std::string fit_table(const Table& table, int width) {
  const TableWidths widths(table, width);
  std::string text;
  for (const std::vector<std::string>& row : table.rows) {
    std::string line = row.empty() ? "" : wrap(row[0], widths.of(0));
    const size_t last = line.rfind('\n') + 1;  // the cells stand in the last of the name's lines
    line += spaces(widths.of(0) - columns_of(std::string_view(line).substr(last)));
    for (size_t c = 1; c <= table.ranks.size(); ++c) {
      if (widths.of(c) == 0) continue;
      const std::string cell = c < row.size() ? row[c] : "";
      line += spaces(kGap + widths.of(c) - columns_of(cell)) + cell;
    }
    text += without_end(std::move(line)) + '\n';
  }
  return text;
}

}  // namespace nought
