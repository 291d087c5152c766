// Variables of the environment for the length of a test.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nought::test {

/// Sets variables of this process's environment, and puts back what they were. "" unsets one.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<std::string, std::string>> values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      if (before != nullptr) before_[name] = before;
      names_.push_back(name);
      set(name, value);
    }
  }
  ~Environment() {
    for (const std::string& name : names_) set(name, before_[name]);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void set(const std::string& name, const std::string& value) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }

  std::map<std::string, std::string> before_;
  std::vector<std::string> names_;
};

}  // namespace nought::test
