#include "nought/corpus/personal_data.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "nought/corpus/characters.h"
#include "nought/text/regex.h"

namespace nought {

namespace {

constexpr std::array<std::string_view, 2> kEmails{"email@example.com", "firstname.lastname@example.org"};
constexpr std::array<std::string_view, 6> kAddresses{"22.214.171.124", "126.96.36.199",  "188.8.131.52",
                                                     "184.108.40.206", "220.127.116.11", "18.104.22.168"};

const Regex& email_pattern() {
  static const Regex pattern(
      R"(\b[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)");
  return pattern;
}

/// The four numbers of an address; nothing if one is above 255 or begins with a 0 that it does not need.
std::optional<uint32_t> address_of(std::string_view dotted) {
  uint32_t address = 0;
  for (int part = 0; part < 4; ++part) {
    const size_t end = std::min(dotted.find_first_not_of("0123456789"), dotted.size());
    if (end == 0 || end > 3 || (end > 1 && dotted[0] == '0')) return std::nullopt;
    uint32_t number = 0;
    for (const char digit : dotted.substr(0, end)) number = number * 10 + static_cast<uint32_t>(digit - '0');
    if (number > 255) return std::nullopt;
    address = address << 8U | number;
    dotted.remove_prefix(end);
    if (part == 3) break;
    if (dotted.empty() || dotted[0] != '.') return std::nullopt;
    dotted.remove_prefix(1);
  }
  return dotted.empty() ? std::optional(address) : std::nullopt;
}

/// Networks that are not global (IANA's registry of special addresses): the first address, and the bits that count.
constexpr std::pair<uint32_t, int> kSpecialNetworks[] = {
    {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},  {0xA9FE0000, 16},
    {0xAC100000, 12}, {0xC0000000, 29}, {0xC00000AA, 31}, {0xC0000200, 24}, {0xC0A80000, 16},
    {0xC6120000, 15}, {0xC6336400, 24}, {0xCB007100, 24}, {0xF0000000, 4}};

/// Where a run of digits and full stops may be an address on its own.
bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const auto is_part = [](char32_t c) { return c == '_' || (c >= '0' && c <= '9') || is_letter(c); };
  if (begin > 0 && is_part(last_character(text.substr(0, begin)).code)) return false;
  return end == text.size() || !is_part(first_character(text.substr(end)).code);
}

std::string without_addresses(std::string_view text, int& count) {
  std::string rest;
  size_t copied = 0;
  for (size_t at = text.find_first_of("0123456789"); at < text.size();) {
    size_t end = std::min(text.find_first_not_of("0123456789.", at), text.size());
    while (text[end - 1] == '.') --end;  // the full stop of a sentence
    const std::string_view dotted = text.substr(at, end - at);
    if (dotted.size() >= 7 && stands_alone(text, at, end) && is_public_address(dotted)) {
      rest += text.substr(copied, at - copied);
      rest += kAddresses[static_cast<size_t>(count++) % kAddresses.size()];
      copied = end;
    }
    at = text.find_first_of("0123456789", end);
  }
  return rest += text.substr(copied);
}

}  // namespace

bool is_public_address(std::string_view dotted) {
  const auto address = address_of(dotted);
  if (!address) return false;
  return std::none_of(std::begin(kSpecialNetworks), std::end(kSpecialNetworks), [&](const auto& network) {
    return (*address ^ network.first) >> static_cast<unsigned>(32 - network.second) == 0;
  });
}

Redacted redact(std::string_view text) {
  Redacted redacted;
  std::vector<Regex::Match> emails;
  if (text.find('@') != std::string_view::npos) email_pattern().find_all(text, emails);
  std::string without_emails;
  size_t copied = 0;
  for (const Regex::Match& match : emails) {
    without_emails += text.substr(copied, match.begin - copied);
    without_emails += kEmails[static_cast<size_t>(redacted.emails++) % kEmails.size()];
    copied = match.end;
  }
  without_emails += text.substr(copied);
  redacted.text = without_addresses(without_emails, redacted.addresses);
  return redacted;
}

}  // namespace nought
