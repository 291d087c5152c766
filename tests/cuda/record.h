// The record of tests that run in parts, each in a process of its own: a machine that is lent for minutes goes on where
// it stopped, and a test that ends its process is known by name.
//
// A file of lines: "began NAME", then "passed NAME SECONDS", "skipped NAME SECONDS" or "failed NAME SECONDS". What
// began and did not end has ended its process: that is a failure, and it does not run again.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nought/base/error.h"

namespace nought::test {

class Record {
 public:
  struct Test {
    std::string name, outcome;
    double seconds = 0;
    bool passed() const { return outcome == "passed" || outcome == "skipped"; }
  };

  /// Reads what the file holds, if it is there.
  explicit Record(std::filesystem::path path) : path_(std::move(path)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      Test test;
      words >> test.outcome >> test.name >> test.seconds;
      if (test.outcome == "began") {
        tests_.push_back({.name = test.name, .outcome = "did not end"});
      } else if (!tests_.empty() && tests_.back().name == test.name) {
        tests_.back() = test;
      } else {
        fail<IoError>("{}: \"{}\" ends no test that began", path_.string(), line);
      }
    }
  }

  const std::vector<Test>& tests() const { return tests_; }

  /// Each line is in the file before the test goes on: whatever ends the process comes later.
  void begin(const std::string& name) {
    tests_.push_back({.name = name, .outcome = "did not end"});
    write(fmt::format("began {}\n", name));
  }
  void end(const std::string& outcome, double seconds) {
    Test& test = tests_.back();
    test.outcome = outcome;
    test.seconds = seconds;
    write(fmt::format("{} {} {:.3f}\n", outcome, test.name, seconds));
  }

  /// The filter of GoogleTest without the tests that are done.
  std::string without_done(const std::string& filter) const {
    std::string result = filter;
    char separator = filter.find('-') == std::string::npos ? '-' : ':';
    for (const Test& test : tests_) {
      result += separator + test.name;
      separator = ':';
    }
    return result;
  }

 private:
  void write(const std::string& line) {
    std::ofstream file(path_, std::ios::app);
    file << line << std::flush;
    require<IoError>(file.good(), "cannot write {}", path_.string());
  }

  std::filesystem::path path_;
  std::vector<Test> tests_;
};

}  // namespace nought::test
