// JSON that people write: it may have comments and trailing commas, and an error message names the place of the
// mistake.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"

namespace nought {

/// The number that parse_json() reads where a file says Infinity, as Python's json module writes it.
inline constexpr double kJsonInfinity = 1e308;

/// Parses JSON with // /* */ and # comments, trailing commas and Infinity. `name` stands before "line:column" in
/// messages. ConfigError for malformed text and for a key given twice in one object.
Json parse_json(std::string_view text, std::string_view name);

/// parse_json of a file; IoError if it cannot be read.
Json read_json_file(const std::string& path);

/// Describes a value for messages: "the string \"abc\"", "the number 3", "true", "a list", "null".
std::string describe_json(const Json& value);

/// The path of a key inside a path: "a" + "b" = "a.b"; "" + "b" = "b".
std::string join_path(std::string_view path, std::string_view key);

/// Where each value of a config was written: a file, a file that one section was read from, or the command line.
class Origins {
 public:
  Origins() = default;
  explicit Origins(std::string file) : file_(std::move(file)) {}

  /// Everything at and below `path` was read from its own file, in which paths start at `path`.
  void add_file(const std::string& path, const std::string& file);
  /// Everything at and below `path` was given by --set.
  void add_override(const std::string& path);

  /// "RUN.json: training.seed", "ds.json: zero_optimization.stage" or "--set training.seed".
  std::string place(std::string_view path) const;
  bool is_override(std::string_view path) const;
  /// The files: the main one, then those of sections.
  std::vector<std::string> files() const;

 private:
  void replace(const std::string& path, const std::string& file);
  /// The source that covers `path` and the part of the path that it covers; null = the main file.
  std::pair<std::string_view, const std::string*> find(std::string_view path) const;

  std::string file_ = "the configuration";
  std::map<std::string, std::string, std::less<>> sources_;  // path -> file, "" = --set; the longest path counts
};

/// One `--set a.b=c`.
struct Override {
  std::string path;
  Json value;
  std::string text = {};  // what stands behind '=', as written: the value of a key that holds text
};

/// Splits "a.b=c"; c's value is JSON if it parses as JSON, else a string. ConfigError without '=' or with an empty key.
Override parse_override(std::string_view text);

/// Writes the value into `root` and creates the objects on the way. Returns the path of the outermost key that was not
/// there before, or the whole path if all keys were. ConfigError if the way leads through something other than an
/// object.
std::string apply_override(Json& root, const Override& override);

}  // namespace nought
