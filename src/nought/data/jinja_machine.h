// What a Jinja program is made into, what it works on while it runs, and the builtins that it calls.
//
// The parser makes closures of expressions and statements; there is no syntax tree beside them. Scopes lie on the
// stack: macros stand at the outermost level, and see nothing but the outermost scope and their own.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/data/jinja_value.h"

namespace nought::jinja {

/// Gives a place another value, while it lives.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~ScopedValue() { place_ = before_; }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& place_;
  T before_;
};

class Scope;

/// The state of one run.
struct Machine {
  Machine(const std::tm& today, Budget limits);
  /// What refers to itself is taken apart.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Value look_up(std::string_view name);
  void assign(std::string_view name, Value value);
  std::shared_ptr<Object> make(Object object);

  Budget budget;
  const std::tm& now;
  Scope *global = nullptr, *innermost = nullptr;
  Value piped = {};  // the text of a block, on its way through filters
  size_t at = 0;     // where the program stands
  int depth = 0;     // in how many parts of it
  std::vector<std::shared_ptr<Object>> objects = {};
};

/// Names and their values: the innermost ones, while it lives.
class Scope {
 public:
  Scope(Machine& machine, Scope* outside) : parent(outside), outer_(machine.innermost, this) {}
  explicit Scope(Machine& machine) : Scope(machine, machine.innermost) {}

  Variables names = {};
  Scope* const parent;

 private:
  ScopedValue<Scope*> outer_;
};

/// What a loop or a set assigns to: a name, several, or an attribute of one.
struct Target {
  std::vector<std::string> names = {};
  bool unpacks = false;
  std::string attribute = {};

  void assign(Machine& machine, const Value& value) const;
};

constexpr int kMaxNesting = 120;    // of parts of the program, as it is written
constexpr int kMaxRecursion = 500;  // as it runs: macros can call themselves

/// A part of the program, cheap to copy.
template <class Result, class... Out>
class Code {
 public:
  using Run = std::function<Result(Machine&, Out&...)>;
  Code() = default;
  Code(size_t offset, Run run) : offset_(offset), run_(std::make_shared<const Run>(std::move(run))) {}
  explicit operator bool() const { return run_ != nullptr; }
  Result operator()(Machine& machine, Out&... out) const {
    machine.at = offset_;
    machine.budget.step();
    require<ConfigError>(machine.depth < kMaxRecursion, "recurses deeper than {}", kMaxRecursion);
    const ScopedValue<int> deeper(machine.depth, machine.depth + 1);
    return (*run_)(machine, out...);
  }

 private:
  size_t offset_ = 0;
  std::shared_ptr<const Run> run_;
};

enum class Flow : uint8_t { on, leave, next };  // leave: break; next: continue
using Expression = Code<Value>;
using Statement = Code<Flow, Text>;  // writes to the text

/// Makes the program. ConfigError "line N: ..." for what is malformed, and for a tag, a filter, a test, a method or a
/// function that is not known, by its name. marks_targets: whether it has {% generation %} blocks.
Statement parse(std::string_view source, bool& marks_targets);

/// What a builtin is called as. A method is one of texts or of mappings.
enum Role : uint8_t { kFunction = 1, kFilter = 2, kTest = 4, kTextMethod = 8, kMapMethod = 16 };

/// What raise_exception() throws: the program refuses what it was given.
class Refusal final : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// A call of a builtin: x.name(...), x|name(...), x is name(...), or name(...) without an x.
struct Call {
  Machine& machine;
  Budget& budget;
  Value self;
  Arguments given;
  std::vector<std::optional<Value>> bound = {};  // by the builtin's parameters

  Value operator[](size_t parameter) const { return bound[parameter].value_or(Value()); }
};

struct Builtin {
  int roles;
  std::string_view name;
  std::string_view parameters;  // names with spaces between; "*": any
  Value (*run)(Call& call);
};

/// The builtin with one of these roles, or null.
const Builtin* find_builtin(int roles, std::string_view name);
/// 'the filter "x" is not supported (did you mean "y"?)'
std::string not_supported(int roles, std::string_view name);
Value run_builtin(const Builtin& builtin, Machine& machine, Value self, Arguments given);
/// The arguments in the order of the parameters; nothing where none is given. ConfigError for others.
std::vector<std::optional<Value>> bind_arguments(std::string_view name, const std::vector<std::string>& parameters,
                                                 Arguments given);

}  // namespace nought::jinja
