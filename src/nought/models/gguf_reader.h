// MetadataReader: collects the config.json that a GGUF file was made of, and the table of architectures that are read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/gguf_file.h"

namespace nought {

struct MetadataReader {
  const GgufFile& file;
  std::string architecture;
  Json json = Json::object();

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture, name); }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(
        one_line(fmt::format("{}: {}", file.path().string(), fmt::format(format, std::forward<Args>(args)...))));
  }
  std::optional<int64_t> count(std::string_view name) const { return file.integer(key(name)); }
  int64_t needed(std::string_view name) const {
    const std::optional<int64_t> found = count(name);
    if (!found) refuse("has no {}, which the model's config follows from", key(name));
    return *found;
  }
  /// A float is what its shortest decimal says, as a config.json has it.
  std::optional<double> number(std::string_view name) const {
    const std::optional<double> found = file.number(key(name));
    if (!found || static_cast<double>(static_cast<float>(*found)) != *found) return found;
    return std::stod(fmt::format("{}", static_cast<float>(*found)));
  }
  void copy(const char* to, std::string_view from) {
    if (const auto found = count(from)) json[to] = *found;
  }
  void copy_number(const char* to, std::string_view from) {
    if (const auto found = number(from)) json[to] = *found;
  }
  bool has_tensor(std::string_view name) const { return file.find(name) != nullptr; }
};

struct KnownArchitecture {
  std::string_view name, family;
  void (*read)(MetadataReader& reader) = nullptr;  // what only this architecture has
};

std::span<const KnownArchitecture> read_architectures();

}  // namespace nought
