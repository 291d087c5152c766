#include "nought/corpus/url_blocklist.h"

#include <algorithm>

#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

/// The address in small letters without its scheme, its user, its port and the slashes at its end.
std::string plain_url(std::string_view url) {
  url = trim(url);
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  const size_t host_end = std::min(url.find_first_of("/?#"), url.size());
  std::string_view host = url.substr(0, host_end), rest = url.substr(host_end);
  if (const size_t user = host.rfind('@'); user != std::string_view::npos) host.remove_prefix(user + 1);
  host = host.substr(0, host.find(':'));
  while (host.ends_with('.')) host.remove_suffix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  return lower_case(std::string(host)) + std::string(rest);
}

}  // namespace

UrlBlocklist::UrlBlocklist(const std::filesystem::path& file) {
  for (const std::string& line : split(read_text(file), '\n'))
    if (const std::string_view entry = trim(line); !entry.empty() && entry[0] != '#') entries_.insert(plain_url(entry));
}

bool UrlBlocklist::blocks(std::string_view url) const {
  const std::string plain = plain_url(url);
  const size_t host = std::min(plain.find_first_of("/?#"), plain.size());
  // The host, then the hosts that it is below of.
  for (size_t at = 0; at < host; at = plain.find('.', at) + 1) {
    if (entries_.contains(plain.substr(at, host - at))) return true;
    if (plain.find('.', at) >= host) break;
  }
  for (size_t end = host + 1; end < plain.size(); ++end)
    if ((plain[end] == '/' || plain[end] == '?') && entries_.contains(plain.substr(0, end))) return true;
  return host < plain.size() && entries_.contains(plain);
}

}  // namespace nought
