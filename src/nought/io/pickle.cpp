#include "nought/io/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "nought/base/error.h"
#include "nought/io/strict_json.h"

namespace nought {

namespace {

constexpr size_t kMostValues = size_t{1} << 24;

using Kind = PickleValue::Kind;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& source,
         const std::function<bool(std::string_view)>& allows)
      : bytes_(bytes), source_(source), allows_(allows) {}

  Pickle read() {
    for (bool goes_on = true; goes_on;) {
      opcode_ = at_;
      goes_on = step(take<uint8_t>());
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    say(fmt::format(format, std::forward<Args>(args)...) + ": the file is damaged, copy it again");
  }
  [[noreturn]] void say(const std::string& why) const {
    fail<IoError>("{}: the pickle at byte {}: {}", source_, opcode_, why);
  }
  std::string_view take_bytes(uint64_t count) {
    if (count > bytes_.size() - at_) refuse("{} bytes are announced, {} follow", count, bytes_.size() - at_);
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return taken;
  }
  template <class T>
  T take() {
    T value{};
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) refuse("a name does not end");
    at_ += end + 1;
    return std::string(rest.substr(0, end));
  }
  /// A little-endian number of any length, as Python writes large ones.
  int64_t take_long() {
    const auto size = take<uint8_t>();
    if (size > sizeof(int64_t)) refuse("a number of {} bytes", size);
    const std::string_view digits = take_bytes(size);
    uint64_t value = size > 0 && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
    return static_cast<int64_t>(value);
  }

  size_t make(PickleValue value) {
    if (pickle_.values.size() == kMostValues) refuse("more than {} values", kMostValues);
    pickle_.values.push_back(std::move(value));
    return pickle_.values.size() - 1;
  }
  void push(PickleValue value) { stack_.push_back(make(std::move(value))); }
  void push_text(uint64_t length) { push({.kind = Kind::text, .text = std::string(take_bytes(length))}); }
  void push_integer(int64_t value) { push({.kind = Kind::integer, .integer = value}); }
  size_t pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) refuse("the stack is empty");
    const size_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top(Kind kind, const char* name) {
    if (stack_.empty() || pickle_.values[stack_.back()].kind != kind) refuse("there is no {} to add to", name);
    return pickle_.values[stack_.back()];
  }
  std::vector<size_t> pop_to_mark() {
    if (marks_.empty()) refuse("there is no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<size_t> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<size_t> pop_some(size_t count) {
    std::vector<size_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  void add(Kind kind, const char* name, const std::vector<size_t>& items) {
    std::vector<size_t>& all = top(kind, name).items;
    if (kind == Kind::dict && items.size() % 2 != 0) refuse("a key has no value");
    all.insert(all.end(), items.begin(), items.end());
  }
  /// Sets keys of a dict, or of what was made by a call, as OrderedDict().
  void set_items(const std::vector<size_t>& items) {
    const bool of_call = !stack_.empty() && pickle_.values[stack_.back()].kind == Kind::call;
    add(of_call ? Kind::call : Kind::dict, "dict", items);
  }
  void push_global(const std::string& module, const std::string& name) {
    const std::string whole = module + "." + name;
    if (!allows_(whole))
      say(excerpt(whole) + ": not a part of tensors; nothing of it is run: save the model's state_dict() alone");
    push({.kind = Kind::global, .text = whole});
  }
  void push_call(size_t count) {
    std::vector<size_t> items = pop_some(count);
    if (pickle_.values[items[0]].kind != Kind::global) refuse("what is called is no name");
    push({.kind = Kind::call, .items = std::move(items)});
  }
  void set_state(size_t state) {
    if (stack_.empty()) refuse("there is no object to give a state");
    PickleValue& object = pickle_.values[stack_.back()];
    if (object.kind == Kind::call) object.state = state;
  }
  void remember(uint64_t place) {
    if (stack_.empty()) refuse("there is nothing to remember");
    memo_[place] = stack_.back();
  }
  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) refuse("nothing was remembered as {}", place);
    stack_.push_back(found->second);
  }

  /// Does one instruction; false after the last.
  bool step(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        if (const auto protocol = take<uint8_t>(); protocol > 5)
          say(fmt::format("protocol {}, read are up to 5: save it with pickle_protocol 2", protocol));
        return true;
      case 0x95:  // FRAME
        take<uint64_t>();
        return true;
      case '.':
        return false;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      default:
        if (!step_value(code) && !step_container(code) && !step_object(code))
          refuse("the opcode {:#x} is not read", code);
        return true;
    }
  }
  bool step_value(uint8_t code) {
    switch (code) {
      case 'N':
        return push({}), true;
      case 0x88:
      case 0x89:
        return push({.kind = Kind::boolean, .integer = code == 0x88 ? 1 : 0}), true;
      case 'J':
        return push_integer(take<int32_t>()), true;
      case 'K':
        return push_integer(take<uint8_t>()), true;
      case 'M':
        return push_integer(take<uint16_t>()), true;
      case 0x8a:
        return push_integer(take_long()), true;
      case 'G': {  // big-endian
        const auto bits = __builtin_bswap64(take<uint64_t>());
        return push({.kind = Kind::number, .number = std::bit_cast<double>(bits)}), true;
      }
      case 'X':
      case 'B':
      case 'T':
        return push_text(take<uint32_t>()), true;
      case 0x8c:
      case 'C':
      case 'U':
        return push_text(take<uint8_t>()), true;
      case 0x8d:
      case 0x8e:
        return push_text(take<uint64_t>()), true;
      default:
        return false;
    }
  }
  bool step_container(uint8_t code) {
    switch (code) {
      case '}':
        return push({.kind = Kind::dict}), true;
      case ']':
      case ')':
      case 0x8f:
        return push({.kind = Kind::list}), true;
      case 't':
      case 'l':
        return push({.kind = Kind::list, .items = pop_to_mark()}), true;
      case 'd':
        push({.kind = Kind::dict});
        return set_items(pop_to_mark()), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return push({.kind = Kind::list, .items = pop_some(code - 0x84U)}), true;
      case 'a':
        return add(Kind::list, "list", pop_some(1)), true;
      case 'e':
      case 0x90:
        return add(Kind::list, "list", pop_to_mark()), true;
      case 's':
        return set_items(pop_some(2)), true;
      case 'u':
        return set_items(pop_to_mark()), true;
      default:
        return false;
    }
  }
  bool step_object(uint8_t code) {
    switch (code) {
      case 'c': {
        const std::string module = take_line();
        return push_global(module, take_line()), true;
      }
      case 0x93: {
        const std::vector<size_t> names = pop_some(2);
        for (const size_t name : names)
          if (pickle_.values[name].kind != Kind::text) refuse("the name of a global is no text");
        const std::string module = pickle_.values[names[0]].text, name = pickle_.values[names[1]].text;
        return push_global(module, name), true;
      }
      case 'R':
      case 0x81:
        return push_call(2), true;
      case 'b':
        return set_state(pop()), true;
      case 'Q':
        return push({.kind = Kind::persistent, .items = pop_some(1)}), true;
      case 'q':
        return remember(take<uint8_t>()), true;
      case 'r':
        return remember(take<uint32_t>()), true;
      case 0x94:
        return remember(memo_.size()), true;
      case 'h':
        return recall(take<uint8_t>()), true;
      case 'j':
        return recall(take<uint32_t>()), true;
      case '2': {
        const size_t value = pop();
        stack_.push_back(value), stack_.push_back(value);
        return true;
      }
      default:
        return false;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  const std::function<bool(std::string_view)>& allows_;
  size_t at_ = 0, opcode_ = 0;
  Pickle pickle_;
  std::vector<size_t> stack_, marks_;
  std::unordered_map<uint64_t, size_t> memo_;
};

}  // namespace

bool Pickle::calls(const PickleValue& value, std::string_view function) const {
  return value.kind == Kind::call && item(value, 0).text == function;
}

std::optional<std::span<const size_t>> Pickle::entries(const PickleValue& value) const {
  const bool ordered = calls(value, "collections.OrderedDict");
  if (value.kind != Kind::dict && !ordered) return std::nullopt;
  return std::span(value.items).subspan(ordered ? 2 : 0);
}

const PickleValue* Pickle::find(const PickleValue& of, std::string_view key) const {
  // An OrderedDict may have a state of its own: _metadata of a module's.
  const PickleValue& dict = of.state && !entries(of) ? values[*of.state] : of;
  const std::span<const size_t> all = entries(dict).value_or(std::span<const size_t>());
  for (size_t i = 0; i + 1 < all.size(); i += 2)
    if (values[all[i]].kind == Kind::text && values[all[i]].text == key) return &values[all[i + 1]];
  return nullptr;
}

std::optional<std::vector<int64_t>> Pickle::integers(const PickleValue& value) const {
  if (calls(value, "torch.Size")) {
    const PickleValue& arguments = item(value, 1);
    const bool one = arguments.kind == Kind::list && arguments.items.size() == 1;
    return one && item(arguments, 0).kind == Kind::list ? integers(item(arguments, 0)) : std::nullopt;
  }
  if (value.kind != Kind::list) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const size_t each : value.items) {
    if (values[each].kind != Kind::integer) return std::nullopt;
    numbers.push_back(values[each].integer);
  }
  return numbers;
}

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source,
                   const std::function<bool(std::string_view name)>& allows) {
  return Reader(bytes, source, allows).read();
}

}  // namespace nought
