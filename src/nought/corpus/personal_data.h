// E-mail addresses and public IPv4 addresses in text.
//
// The patterns and the replacements are datatrove's (formatters/pii.py), except that a number next to a digit, a letter
// or another part is no address: "999.1.1.1" and "1.2.3.4.5" stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace nought {

struct Redacted {
  std::string text;
  int emails = 0, addresses = 0;
  bool any() const { return emails + addresses > 0; }
};
/// The text, valid UTF-8, with addresses replaced by ones that belong to nobody: several in turn, anew for each text.
Redacted redact(std::string_view text);

/// Whether these four numbers, as in "8.8.8.8", are an address of the public internet (Python's
/// ipaddress.ip_address(x).is_global).
bool is_public_address(std::string_view dotted);

}  // namespace nought
