// What a Jinja program is made into, what it works on while it runs, and the builtins that it calls.
//
// The parser makes closures of expressions and statements; there is no syntax tree beside them. Scopes lie on the
// stack: macros stand at the outermost level, and see nothing but the outermost scope and their own.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/chat/jinja_value.h"

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

/// Names and their values, which hide those of the scope outside.
struct Scope {
  Scope* outside;
  Items names = {};
};

enum class Flow : uint8_t { on, leave, next };  // leave: break; next: continue

/// The state of one run.
struct Machine {
  Value look_up(const Text& name);
  void assign(Items& to, const Value& name, const Value& value);
  void assign(const Value& name, const Value& value) { assign(innermost->names, name, value); }

  Budget budget;
  const std::tm& now;
  Scope* global;
  Rendered* out;
  Scope* innermost = global;
  Flow flow = Flow::on;
  size_t at = 0;         // where the program stands
  int depth = 0;         // in how many parts of it
  bool refuses = false;  // it called raise_exception()
};

constexpr int kMaxNesting = 120;    // how deep parts of the program may lie in each other
constexpr int kMaxRecursion = 500;  // as it runs: macros can call themselves

/// A part of the program, cheap to copy.
template <class Result>
class Code {
 public:
  using Run = std::function<Result(Machine&)>;
  Code() = default;
  Code(size_t offset, Run run) : offset_(offset), run_(std::make_shared<const Run>(std::move(run))) {}
  explicit operator bool() const { return run_ != nullptr; }
  Result operator()(Machine& machine) const {
    machine.at = offset_;
    machine.budget.step();
    require<ConfigError>(machine.depth < kMaxRecursion, "recurses deeper than {}", kMaxRecursion);
    const ScopedValue<int> deeper(machine.depth, machine.depth + 1);
    return (*run_)(machine);
  }

 private:
  size_t offset_ = 0;
  std::shared_ptr<const Run> run_;
};

using Expression = Code<Value>;
using Statement = Code<void>;

/// Makes the program. ConfigError "line N: ..." for what is malformed, and for a tag, a filter, a test, a method or a
/// function that is not known, by its name. marks_targets: whether it has {% generation %} blocks.
Statement parse(std::string_view source, bool& marks_targets);

/// Arguments in the order of the parameters; null where none is given. Those without a name have an undefined key.
/// ConfigError for others.
std::vector<const Value*> bind_arguments(std::string_view name, const std::vector<Value>& parameters,
                                         const Items& given, Budget& budget);

/// What a builtin is called as, and what it works on. A filter of texts takes the text of anything.
enum Role : uint8_t { kFunction = 1, kFilter = 2, kTest = 4, kMethod = 8, kOfText = 16, kOfMap = 32 };

/// A call of a builtin: x.name(...), x|name(...), x is name(...), or name(...) without an x.
struct Call {
  Machine& machine;
  Budget& budget;
  std::string_view name;
  Value self;
  const Items& given;
  std::vector<const Value*> bound = {};  // by the builtin's parameters

  Value operator[](size_t parameter) const { return bound[parameter] ? *bound[parameter] : Value(); }
};

struct Builtin {
  /// Names and parameters with spaces between them; the parameters "*": any.
  Builtin(int roles, std::string_view names, std::string_view parameters, Value (*run)(Call& call));

  int roles;
  std::vector<std::string> names;
  std::vector<Value> parameters = {};
  bool takes_any;
  Value (*run)(Call& call);
};

/// The builtin of that name in a role, or null.
const Builtin* find_builtin(Role role, std::string_view name);
/// 'the filter "x" is not supported (did you mean "y"?)'
std::string not_supported(Role role, std::string_view name);
Value run_builtin(const Builtin& builtin, Role role, std::string_view name, Machine& machine, Value self,
                  const Items& given);

}  // namespace nought::jinja
