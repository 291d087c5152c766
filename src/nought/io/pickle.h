// Reads Python's pickles as data: what a file says, and nothing of it is run.
//
// Design goals: a global is a name, and a call of it is the name with its arguments; only names that the caller allows
// get through. Every count is checked before memory is taken, and values that contain themselves do no harm.
// Non-goals: pickles as programs; protocol 0, which is text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
    call,       // items: what is called, and its arguments; keys and values that were set of it since
    persistent  // items: the one value that it stands for
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double number = 0;
  std::string text = {};
  std::vector<size_t> items = {};    // indices of Pickle::values
  std::optional<size_t> state = {};  // of a call: what its object was given after it was made
};

/// Values refer to each other by index, so that one may contain itself.
struct Pickle {
  std::vector<PickleValue> values;
  size_t root = 0;

  const PickleValue& operator[](size_t index) const { return values[index]; }
  const PickleValue& item(const PickleValue& of, size_t index) const { return values[of.items.at(index)]; }
  /// Whether a value was made by a call of this global.
  bool calls(const PickleValue& value, std::string_view function) const;
  /// Keys and values in turn: of a dict, or of an OrderedDict. nullopt if the value is none of them.
  std::optional<std::span<const size_t>> entries(const PickleValue& value) const;
  /// Calls visit(key, value) for each entry of a dict or an OrderedDict, in their order. False if it is none of them.
  template <class Visit>
  bool for_each_entry(const PickleValue& dict, const Visit& visit) const {
    const auto all = entries(dict);
    for (size_t i = 0; all && i + 1 < all->size(); i += 2) visit(values[(*all)[i]], values[(*all)[i + 1]]);
    return all.has_value();
  }
  /// The value of a key of a dict; of an object, of a key of its state. nullptr if there is none.
  const PickleValue* find(const PickleValue& of, std::string_view key) const;
  /// The integers of a tuple, a list or a torch.Size. nullopt if it is something else.
  std::optional<std::vector<int64_t>> integers(const PickleValue& value) const;
};

/// Reads protocols 1 to 5. `source` names the file in an IoError; `allows`: the globals that may occur, by
/// "module.name"; any other is refused by its name.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source,
                   const std::function<bool(std::string_view name)>& allows);

}  // namespace nought
