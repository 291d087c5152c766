#include "nought/io/parquet_layout.h"

#include <cstring>
#include <utility>

#include "nought/base/error.h"
#include "nought/io/thrift_compact.h"

namespace nought {

namespace {

constexpr int kMostLevels = 100;  // of definitions: no table of people has more lists in lists

enum Repetition : int64_t { is_required, is_optional, is_repeated };

/// The numbers of the format for what a column means: of converted types, which old writers have, and of logical ones.
struct Converted {
  enum : int64_t {
    utf8,
    map,
    map_key_value,
    list,
    enumeration,
    decimal,
    date,
    time_millis,
    time_micros,
    timestamp_millis,
    timestamp_micros,
    uint_8,
    uint_64 = 14,
    json = 19
  };
};
struct Logical {
  enum : int {
    string = 1,
    map,
    list,
    enumeration,
    decimal,
    date,
    time,
    timestamp,
    integer = 10,
    json = 12,
    uuid = 14,
    half = 15
  };
};

/// An element of the schema, which is a tree written in the order of a walk through it.
struct Element {
  std::string name;
  int64_t type, length, repetition, children, converted, scale;
  ThriftValue logical;

  explicit Element(const ThriftValue& value)
      : name(value.field(4).bytes),
        type(value.integer_of(1, -1)),
        length(value.integer_of(2, 0)),
        repetition(value.integer_of(3, is_required)),
        children(value.integer_of(5, 0)),
        converted(value.integer_of(6, -1)),
        scale(value.integer_of(7, 0)),
        logical(value.field(10)) {}
  bool is(int type_asked) const { return logical.field(type_asked).kind != ThriftValue::Kind::none; }
  bool is_list() const { return is(Logical::list) || converted == Converted::list; }
  bool is_map() const {
    return is(Logical::map) || converted == Converted::map || converted == Converted::map_key_value;
  }
};

/// How many parts of a second a unit of time is.
int64_t parts_of(const ThriftValue& unit) {
  enum Unit : int { millis = 1, micros, nanos };
  if (unit.field(nanos).kind != ThriftValue::Kind::none) return 1'000'000'000;
  return unit.field(micros).kind != ThriftValue::Kind::none ? 1'000'000 : 1'000;
}

/// Says what the logical type of an element says.
void add_logical_meaning(const Element& element, ParquetColumn& column) {
  using enum ParquetMeaning;
  if (element.is(Logical::string) || element.is(Logical::enumeration) || element.is(Logical::json))
    column.meaning = text;
  if (element.is(Logical::date)) column.meaning = ParquetMeaning::date;
  if (element.is(Logical::uuid)) column.meaning = uuid;
  if (element.is(Logical::half)) column.meaning = half;
  if (element.is(Logical::integer) && !element.logical.field(Logical::integer).integer_of(2, 1))
    column.meaning = unsigned_integer;
  if (element.is(Logical::decimal)) {
    column.meaning = ParquetMeaning::decimal;
    column.scale = element.logical.field(Logical::decimal).integer_of(1, 0);
  }
  for (const auto& [type, meaning] : {std::pair(Logical::time, time), std::pair(Logical::timestamp, timestamp)}) {
    if (!element.is(type)) continue;
    column.meaning = meaning;
    column.is_utc = element.logical.field(type).integer_of(1, 0) != 0;
    column.parts = parts_of(element.logical.field(type).field(2));
  }
}

/// Says what the converted type says, which writers leave beside the logical one.
void add_converted_meaning(const Element& element, ParquetColumn& column) {
  using Meaning = ParquetMeaning;
  const int64_t type = element.converted;
  column.scale = element.scale;
  if (type == Converted::utf8 || type == Converted::enumeration || type == Converted::json)
    column.meaning = Meaning::text;
  if (type == Converted::decimal) column.meaning = Meaning::decimal;
  if (type == Converted::date) column.meaning = Meaning::date;
  if (type == Converted::time_millis || type == Converted::time_micros) column.meaning = Meaning::time;
  if (type == Converted::timestamp_millis || type == Converted::timestamp_micros)
    column.meaning = Meaning::timestamp, column.is_utc = true;
  if (type == Converted::time_millis || type == Converted::timestamp_millis) column.parts = 1'000;
  if (type == Converted::time_micros || type == Converted::timestamp_micros) column.parts = 1'000'000;
  if (Converted::uint_8 <= type && type <= Converted::uint_64) column.meaning = Meaning::unsigned_integer;
}

/// Reads the elements of a schema into fields and columns.
class SchemaReader {
 public:
  explicit SchemaReader(const std::vector<ThriftValue>& elements) : elements_(elements) {}

  ParquetField row(std::vector<ParquetColumn>& columns) {
    columns_ = &columns;
    const Element root = next();
    ParquetField row{.name = root.name, .shape = ParquetField::Shape::record};
    add_fields(row, root, {});
    require<IoError>(at_ == elements_.size(), "its schema has {} elements and uses {}", elements_.size(), at_);
    return row;
  }

 private:
  struct Levels {
    int definition = 0, repetition = 0;
  };

  Element next() {
    require<IoError>(at_ < elements_.size(), "its schema ends within a field");
    return Element(elements_[at_++]);
  }

  void add_fields(ParquetField& field, const Element& element, Levels levels) {
    require<IoError>(0 <= element.children && element.children <= static_cast<int64_t>(elements_.size()),
                     "a field with {} children", element.children);
    field.first_column = columns_->size();
    for (int64_t i = 0; i < element.children; ++i) field.fields.push_back(read(next(), levels));
    field.end_column = columns_->size();
    require<IoError>(field.first_column < field.end_column, "the field \"{}\" has no columns", element.name);
  }

  /// A field and all below it.
  ParquetField read(const Element& element, Levels levels) {
    require<IoError>(levels.definition < kMostLevels, "fields in fields, more than {} deep", kMostLevels);
    names_.push_back(element.name);
    ParquetField field;
    if (element.repetition == is_repeated) {
      field = repeated_field(levels, [&](Levels inner) { return content(element, inner); });
      field.definition = levels.definition;
    } else {
      levels.definition += element.repetition == is_optional;
      field = content(element, levels);
      field.optional = element.repetition == is_optional;
      field.definition = levels.definition;
    }
    field.name = element.name;
    names_.pop_back();
    return field;
  }

  /// A list of what `read_element` reads.
  template <class F>
  ParquetField repeated_field(Levels levels, F&& read_element) {
    ++levels.definition, ++levels.repetition;
    ParquetField list{.shape = ParquetField::Shape::list};
    list.elements = levels.definition;
    list.repetition = levels.repetition;
    list.first_column = columns_->size();
    list.fields.push_back(read_element(levels));
    list.end_column = columns_->size();
    return list;
  }

  /// What a field is when it is there once.
  ParquetField content(const Element& element, Levels levels) {
    if (element.type >= 0 && element.children == 0) return value(element, levels);
    if ((element.is_list() || element.is_map()) && element.children == 1 && at_ < elements_.size() &&
        Element(elements_[at_]).repetition == is_repeated)
      return annotated(element, next(), levels);
    ParquetField field{.shape = ParquetField::Shape::record};
    add_fields(field, element, levels);
    return field;
  }

  /// A group that says that it is a list or a map, and has the repeated group that either must have.
  ParquetField annotated(const Element& group, const Element& inner, Levels levels) {
    names_.push_back(inner.name);
    ParquetField field = repeated_field(levels, [&](Levels within) {
      const bool wraps = inner.children == 1 && inner.name != "array" && inner.name != group.name + "_tuple";
      if (group.is_list() && wraps) return read(next(), within);
      ParquetField element = content(inner, within);
      element.definition = within.definition;
      return element;
    });
    const ParquetField& entry = field.fields.front();
    const bool pairs = entry.shape == ParquetField::Shape::record && entry.fields.size() == 2;
    if (group.is_map() && pairs) {
      std::vector<ParquetField> both = entry.fields;
      field.fields = std::move(both);
      field.shape = ParquetField::Shape::map;
    }
    names_.pop_back();
    return field;
  }

  ParquetField value(const Element& element, Levels levels) {
    require<IoError>(element.type <= static_cast<int64_t>(ParquetType::fixed_bytes), "a column of the type {}",
                     element.type);
    ParquetColumn column{.type = static_cast<ParquetType>(element.type), .length = element.length};
    for (const std::string& name : names_) column.path += (column.path.empty() ? "" : ".") + name;
    require<IoError>(column.type != ParquetType::fixed_bytes || (0 <= element.length && element.length < INT32_MAX),
                     "column {}: values of {} bytes", column.path, element.length);
    add_converted_meaning(element, column);
    add_logical_meaning(element, column);
    constexpr int64_t kMostDigits = 76;  // the format's own limit
    require<IoError>(0 <= column.scale && column.scale <= kMostDigits,
                     "column {}: decimals with {} digits behind the point", column.path, column.scale);
    column.most_definition = levels.definition;
    column.most_repetition = levels.repetition;
    ParquetField field;
    field.first_column = columns_->size();
    columns_->push_back(std::move(column));
    field.end_column = columns_->size();
    return field;
  }

  const std::vector<ThriftValue>& elements_;
  std::vector<ParquetColumn>* columns_ = nullptr;
  std::vector<std::string> names_;
  size_t at_ = 0;
};

ParquetChunk chunk_of(const ThriftValue& chunk, const ParquetColumn& column, size_t end_of_pages) {
  const ThriftValue& data = chunk.field(3);
  require<IoError>(chunk.field(1).bytes.empty(), "column {} lies in another file, {}", column.path,
                   chunk.field(1).bytes);
  require<IoError>(data.kind == ThriftValue::Kind::structure, "column {} is encrypted or has no description",
                   column.path);
  const int64_t pages = data.integer_of(9), dictionary = data.integer_of(11, 0), bytes = data.integer_of(7);
  const int64_t begin = dictionary > 0 && dictionary < pages ? dictionary : pages;
  const auto end = static_cast<int64_t>(end_of_pages);
  require<IoError>(0 <= begin && begin <= end && 0 <= bytes && bytes <= end - begin,
                   "column {} lies at {} to {}, beyond the {} bytes of the columns", column.path, begin,
                   static_cast<double>(begin) + static_cast<double>(bytes), end_of_pages);
  require<IoError>(data.integer_of(1) == static_cast<int64_t>(column.type), "column {} has the types {} and {}",
                   column.path, data.integer_of(1), static_cast<int>(column.type));
  return {.begin = static_cast<size_t>(begin),
          .end = static_cast<size_t>(begin + bytes),
          .codec = data.integer_of(4),
          .values = data.integer_of(5)};
}

}  // namespace

ParquetLayout read_parquet_layout(std::string_view file) {
  constexpr size_t kTail = 8;
  const bool whole = file.size() >= 12 && file.ends_with(kParquet);
  require<IoError>(!file.ends_with("PARE"), "it is encrypted");
  require<IoError>(whole, "it is cut off: its last bytes, at {}, should be \"{}\"", file.size() - kParquet.size(),
                   kParquet);
  uint32_t footer;
  std::memcpy(&footer, file.data() + file.size() - kTail, sizeof(footer));
  require<IoError>(footer <= file.size() - 12, "its description should have {} bytes, and it has {} in all", footer,
                   file.size());
  const size_t begin = file.size() - kTail - footer;
  std::string_view bytes = file.substr(begin, footer);
  const ThriftValue description = read_thrift(bytes);
  ParquetLayout layout;
  layout.row = SchemaReader(description.list_of(2)).row(layout.columns);
  for (const ThriftValue& group : description.list_of(4)) {
    const std::vector<ThriftValue>& chunks = group.list_of(1);
    require<IoError>(chunks.size() == layout.columns.size(), "a group of rows has {} columns, expected {}",
                     chunks.size(), layout.columns.size());
    ParquetGroup read{.rows = group.integer_of(3), .chunks = {}};
    for (size_t i = 0; i < chunks.size(); ++i) read.chunks.push_back(chunk_of(chunks[i], layout.columns[i], begin));
    layout.groups.push_back(std::move(read));
  }
  return layout;
}

}  // namespace nought
