// What programs handle besides plain values: functions, macros, loops, and the scopes that macros see.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/data/jinja_builtins.h"
#include "nought/data/jinja_syntax.h"

namespace nought::jinja {

/// Names and their values. Blocks, loops and macros have one of their own.
struct Scope {
  std::vector<std::pair<std::string, Value>> names;
  std::shared_ptr<Scope> parent;

  Value* find(std::string_view name) {
    for (auto& [key, value] : names)
      if (key == name) return &value;
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    if (Value* old = find(name)) return void(*old = std::move(value));
    names.emplace_back(name, std::move(value));
  }
};

class Function final : public Object {
 public:
  explicit Function(const Builtin& builtin) : builtin_(builtin) {}
  std::string_view what() const override { return "a function"; }
  Value attribute(std::string_view name) const override { return Value::undefined(name); }
  const Builtin& builtin() const { return builtin_; }

 private:
  const Builtin& builtin_;
};

class Macro final : public Object {
 public:
  Macro(const Node& node, std::shared_ptr<Scope> scope) : node_(node), scope_(std::move(scope)) {}
  std::string_view what() const override { return "a macro"; }
  Value attribute(std::string_view name) const override {
    return name == "name" ? Value(Text(node_.name)) : Value::undefined(name);
  }
  const Node& node() const { return node_; }
  const std::shared_ptr<Scope>& scope() const { return scope_; }

 private:
  const Node& node_;
  std::shared_ptr<Scope> scope_;  // where it was defined
};

/// The variable "loop".
class Loop final : public Object {
 public:
  /// `items` is a list.
  Loop(Value items, size_t index) : items_(std::move(items)), index_(static_cast<int64_t>(index)) {}
  std::string_view what() const override { return "a loop"; }
  int depth() const override { return items_.list()->depth; }
  Value attribute(std::string_view name) const override {
    const auto& items = items_.list()->items;
    const auto size = static_cast<int64_t>(items.size());
    if (name == "index") return index_ + 1;
    if (name == "index0") return index_;
    if (name == "revindex") return size - index_;
    if (name == "revindex0") return size - index_ - 1;
    if (name == "first") return index_ == 0;
    if (name == "last") return index_ == size - 1;
    if (name == "length") return size;
    if (name == "depth" || name == "depth0") return int64_t{name == "depth"};  // loops are not recursive
    if (name == "previtem" && index_ > 0) return items[static_cast<size_t>(index_ - 1)];
    if (name == "nextitem" && index_ + 1 < size) return items[static_cast<size_t>(index_ + 1)];
    return Value::undefined(name);
  }

 private:
  Value items_;
  int64_t index_;
};

}  // namespace nought::jinja
