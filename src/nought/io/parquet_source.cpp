#include "nought/io/parquet_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "nought/base/error.h"
#include "nought/io/parquet_json.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Writes a row: its columns say by the levels of their next entries what is there. They are all at the row's
/// beginning.
class RowWriter {
 public:
  RowWriter(const ParquetLayout& layout, std::deque<ParquetColumnReader>& columns, std::string& json)
      : layout_(layout), columns_(columns), json_(json) {}

  void row() {
    record(layout_.row);
    json_ += '\n';
  }

 private:
  ParquetColumnReader& first_of(const ParquetField& field) {
    ParquetColumnReader& column = columns_[field.first_column];
    require<IoError>(!column.ended(), "column {} has fewer rows than others", layout_.columns[field.first_column].path);
    return column;
  }

  /// Goes by the entries that say that nothing is there.
  void pass(const ParquetField& field) {
    for (size_t i = field.first_column; i < field.end_column; ++i) {
      require<IoError>(!columns_[i].ended(), "column {} has fewer rows than others", layout_.columns[i].path);
      columns_[i].next();
    }
  }

  void write(const ParquetField& field) {
    if (field.optional && first_of(field).definition() < field.definition) {
      json_ += "null";
      return pass(field);
    }
    switch (field.shape) {
      case ParquetField::Shape::value:
        return value(field, append_json_value);
      case ParquetField::Shape::record:
        return record(field);
      case ParquetField::Shape::list:
        json_ += '[';
        elements(field, [&] { write(field.fields[0]); });
        json_ += ']';
        return;
      case ParquetField::Shape::map:
        json_ += '{';
        elements(field, [&] {
          value(field.fields[0], append_json_key);
          json_ += ':';
          write(field.fields[1]);
        });
        json_ += '}';
    }
  }

  template <class F>
  void value(const ParquetField& field, F&& append) {
    ParquetColumnReader& column = first_of(field);
    const ParquetColumn& described = layout_.columns[field.first_column];
    require<IoError>(field.shape == ParquetField::Shape::value, "the keys of the map \"{}\" are no values", field.name);
    require<IoError>(column.has_value(), "column {}: a value that must be there is missing", described.path);
    append(json_, described, column.value());
    column.next();
  }

  void record(const ParquetField& field) {
    json_ += '{';
    for (size_t i = 0; i < field.fields.size(); ++i) {
      if (i > 0) json_ += ',';
      append_json_string(json_, field.fields[i].name);
      json_ += ':';
      write(field.fields[i]);
    }
    json_ += '}';
  }

  /// Calls f() for each element of a list or a map, with commas between.
  template <class F>
  void elements(const ParquetField& field, F&& f) {
    if (first_of(field).definition() < field.elements) return pass(field);
    const ParquetColumnReader& first = first_of(field);
    for (bool more = false; !more || (!first.ended() && first.repetition() == field.repetition); more = true) {
      if (more) json_ += ',';
      f();
    }
  }

  const ParquetLayout& layout_;
  std::deque<ParquetColumnReader>& columns_;
  std::string& json_;
};

}  // namespace

ParquetSource::ParquetSource(const fs::path& file) : path_(file), file_(file) {
  try {
    layout_ = read_parquet_layout(file_.text());
  } catch (const IoError& error) {
    fail<IoError>("{}: cannot read the Parquet file: {}", path_.string(), error.what());
  }
  for (const ParquetGroup& group : layout_.groups) all_rows_ += std::max<int64_t>(group.rows, 0);
}

void ParquetSource::open_group() {
  const ParquetGroup& group = layout_.groups[group_++];
  columns_.clear();
  for (size_t i = 0; i < layout_.columns.size(); ++i)
    columns_.emplace_back(file_.text(), layout_.columns[i], group.chunks[i]);
  rows_ = group.rows;
}

void ParquetSource::write_row() {
  RowWriter(layout_, columns_, lines_).row();
  --rows_;
  ++done_rows_;
  for (const ParquetColumnReader& column : columns_)
    require<IoError>(column.ended() || (rows_ > 0 && column.repetition() == 0), "a column goes on where others end");
}

size_t ParquetSource::read(std::span<char> into) {
  size_t done = 0;
  try {
    while (done < into.size()) {
      if (taken_ == lines_.size()) {
        lines_.clear();
        taken_ = 0;
        while (rows_ <= 0 && group_ < layout_.groups.size()) open_group();
        if (rows_ <= 0) break;
        write_row();
      }
      const size_t count = std::min(into.size() - done, lines_.size() - taken_);
      std::memcpy(into.data() + done, lines_.data() + taken_, count);
      taken_ += count;
      done += count;
    }
  } catch (const IoError& error) {
    fail<IoError>("{}: cannot read row {} of the Parquet file: {}", path_.string(), done_rows_ + 1, error.what());
  }
  return done;
}

int64_t ParquetSource::file_bytes() const {
  const double part = all_rows_ > 0 ? static_cast<double>(done_rows_) / static_cast<double>(all_rows_) : 1;
  return static_cast<int64_t>(part * static_cast<double>(file_.bytes().size()));
}

}  // namespace nought
