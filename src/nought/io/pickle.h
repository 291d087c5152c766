// Reads Python's pickles as data: what a file says, and nothing of it is run.
//
// Design goals: a global is a name, and a call of it is the name with its arguments; only names that the caller allows
// get through. Every count is checked before memory is taken, and values that contain themselves do no harm.
// Non-goals: pickles as programs; protocol 0, which is text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,  // integer: 0 or 1
    integer,
    number,
    text,       // also bytes
    list,       // also tuples and sets
    dict,       // items: keys and values in turn
    global,     // text: "module.name"
    call,       // items: what is called, and its arguments; what was set of it since
    persistent  // items: the one value that it stands for
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double number = 0;
  std::string text = {};
  std::vector<size_t> items = {};  // of Pickle::values
};

/// Values refer to each other by index, so that one may contain itself.
struct Pickle {
  std::vector<PickleValue> values;
  size_t root = 0;

  const PickleValue& operator[](size_t index) const { return values[index]; }
  const PickleValue& item(const PickleValue& of, size_t index) const { return values[of.items.at(index)]; }
};

/// Reads protocols 1 to 5. `source` names the file in an IoError; `allows`: the globals that may occur, by
/// "module.name"; any other is refused by its name.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source,
                   const std::function<bool(std::string_view name)>& allows);

}  // namespace nought
