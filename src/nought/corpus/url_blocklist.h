// UrlBlocklist: hosts, domains and addresses that documents must not come from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>

namespace nought {

class UrlBlocklist {
 public:
  UrlBlocklist() = default;
  /// A text file with one entry a line: a host, which stands for all hosts below it, or a host with the beginning of a
  /// path. Empty lines and those that begin with # say nothing. IoError.
  explicit UrlBlocklist(const std::filesystem::path& file);

  /// Whether an entry covers the address, with or without a scheme. Capital letters count as small ones.
  bool blocks(std::string_view url) const;
  size_t size() const { return entries_.size(); }

 private:
  std::unordered_set<std::string> entries_;
};

}  // namespace nought
