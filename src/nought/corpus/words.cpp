#include "nought/corpus/words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "nought/corpus/characters.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

using Words = std::vector<std::string_view>;

/// Whether a sorted or unsorted list has the character.
bool is_one_of(char32_t c, std::u32string_view list) { return list.find(c) != std::u32string_view::npos; }

constexpr std::u32string_view kMarks = U"…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪";
constexpr std::u32string_view kQuotes = U"'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧";
constexpr std::u32string_view kCurrencies =
    U"$£€¥฿₽﷼₴₠₡₢₣₤₥₦₧₨₩₪₫₭₮₯₰₱₲₳₵₶₷₸₹₺₻₼₾₿";
constexpr std::u32string_view kMoreEnds = U"।｡。";

/// The ASCII characters of a list, for a quick look.
constexpr std::array<bool, 128> ascii_of(std::u32string_view list) {
  std::array<bool, 128> found{};
  for (const char32_t c : list)
    if (c < 128) found[c] = true;
  return found;
}
constexpr std::array<bool, 128> kAsciiMarks = ascii_of(U",:;!?()[]{}<>_#*&'\"`");
/// What may cut a word within it.
constexpr std::array<bool, 128> kAsciiInfixes = ascii_of(U".+-*^,:<>=/~");

bool is_mark(char32_t c) { return c < 128 ? kAsciiMarks[c] : is_one_of(c, kMarks) || is_one_of(c, kQuotes); }

/// Units that end a number, such as the "MB" of "16MB". Longer ones come first.
constexpr std::string_view kUnits[] = {
    "km/h", "km²", "km³", "dm²", "dm³", "cm²", "cm³", "mm²", "mm³", "kmh", "mph", "hPa", "m/s", "km", "m²",
    "m³",   "dm",  "cm",  "mm",  "ha",  "µm",  "nm",  "yd",  "in",  "ft",  "kg",  "mg",  "µg",  "lb", "oz",
    "Pa",   "mb",  "MB",  "kb",  "KB",  "gb",  "GB",  "tb",  "TB",  "m",   "g",   "t",   "T",   "G",  "M",
    "K",    "%",   "км²", "км³", "км",  "м²",  "м³",  "см",  "мм",  "кг",  "мг",  "м/с", "м",   "г"};

/// Abbreviations that keep their full stop.
const std::unordered_set<std::string_view>& abbreviations() {
  static const std::unordered_set<std::string_view> words{
      "Adm.", "Ala.",  "Apr.", "Ariz.", "Ark.",  "Aug.",    "Bros.", "Calif.", "Co.",   "Colo.", "Conn.", "Corp.",
      "D.C.", "Dec.",  "Del.", "Dr.",   "E.G.",  "E.g.",    "Feb.",  "Fla.",   "Ga.",   "Gen.",  "Gov.",  "I.E.",
      "I.e.", "Ia.",   "Id.",  "Ill.",  "Inc.",  "Ind.",    "Jan.",  "Jr.",    "Jul.",  "Jun.",  "Kan.",  "Kans.",
      "Ky.",  "La.",   "Ltd.", "Mar.",  "Mass.", "Messrs.", "Mich.", "Minn.",  "Miss.", "Mo.",   "Mont.", "Mr.",
      "Mrs.", "Ms.",   "Mt.",  "N.C.",  "N.D.",  "N.H.",    "N.J.",  "N.M.",   "N.Y.",  "Neb.",  "Nebr.", "Nev.",
      "No.",  "Nov.",  "Oct.", "Okla.", "Ore.",  "Pa.",     "Ph.D.", "Prof.",  "Rep.",  "Rev.",  "S.C.",  "Sen.",
      "Sep.", "Sept.", "St.",  "Tenn.", "U.S.",  "Va.",     "Wash.", "Wis.",   "a.m.",  "A.m.",  "A.M.",  "e.g.",
      "i.e.", "p.m.",  "P.m.", "P.M.",  "v.s.",  "vs.",     "v.",    "V.",     "C++"};
  return words;
}

/// Whether a word is a letter and a full stop, or a known abbreviation.
bool is_abbreviation(std::string_view word) {
  if (word.size() == 2 && word[1] == '.') return word[0] >= 'a' && word[0] <= 'z';
  return (word.back() == '.' || word.back() == '+') && abbreviations().contains(word);
}

/// Faces of two characters that spaCy knows as words.
bool is_face(std::string_view word) {
  if (word.size() != 2) return false;
  constexpr std::string_view kFirst = "):;(=8[]<'xX", kSecond = "):*(;8]|/0123>}=['oOpPxXD";
  if (kFirst.find(word[0]) == std::string_view::npos || kSecond.find(word[1]) == std::string_view::npos) return false;
  constexpr std::string_view kFaces[] = {":)", "):", ":(", "(:", ":*", ":]", "[:", "8)", "8D", ";)", "(;",
                                         ";D", ":/", ":|", ":0", ":1", ":3", ":>", ":}", "=)", "(=", "=(",
                                         "=]", "[=", "]=", "=[", "=|", "=/", "=3", "=D", "<3", "xD", "XD",
                                         ":o", ":O", ":p", ":P", ":x", ":X", ":D", "''"};
  return std::find(std::begin(kFaces), std::end(kFaces), word) != std::end(kFaces);
}

/// A word that is not cut further, whatever it is made of.
bool is_whole(std::string_view word) { return is_face(word) || is_abbreviation(word); }

/// Where a word of English is cut that is two words written as one: "do|n't", "we|'ll", "can|not"; 0: nowhere.
size_t contraction_at(std::string_view word) {
  constexpr std::string_view kEnds[] = {"n't", "n’t", "'ll", "’ll", "'ve", "’ve", "'re", "’re", "'m", "’m", "'d", "’d"};
  if (word.size() < 3 || !is_letter(first_character(word).code)) return 0;
  if (std::string_view("tlemdao").find(word.back()) == std::string_view::npos) return 0;
  for (const std::string_view end : kEnds)
    if (word.size() > end.size() && word.ends_with(end)) {
      const std::string_view stem = word.substr(0, word.size() - end.size());
      const bool plain =
          std::all_of(stem.begin(), stem.end(), [](char c) { return is_letter(static_cast<uint8_t>(c)); });
      return plain ? stem.size() : 0;
    }
  if (word == "cannot" || word == "Cannot" || word == "gonna" || word == "Gonna" || word == "gotta" || word == "Gotta")
    return 3;
  return 0;
}

/// A run of at least two full stops at the start.
size_t ellipsis_at(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of('.'), text.size());
  return end >= 2 ? end : 0;
}

size_t prefix_of(std::string_view word) {
  const Character c = first_character(word);
  if (c.code == '.') return ellipsis_at(word);
  if (c.code < 128 && ((is_letter(c.code) && word.find('$') > 2) || is_digit(c.code))) return 0;
  if (c.code == '+') return word.size() > 1 && is_digit(word[1]) ? 0 : 1;
  for (const std::string_view money : {"US$", "C$", "A$"})
    if (word.starts_with(money)) return money.size();
  const bool is_prefix =
      is_one_of(c.code, U"§%=—–") || is_mark(c.code) || is_one_of(c.code, kCurrencies) || is_picture(c.code);
  return is_prefix ? c.length : 0;
}

/// The full stop at the end of a word, if what stands before it makes it one.
size_t full_stop_of(std::string_view word) {
  const size_t run = word.size() - (word.find_last_not_of('.') + 1);
  if (run >= 2) return run;
  const std::string_view before = word.substr(0, word.size() - 1);
  if (before.empty()) return 0;
  const Character last = last_character(before);
  if (is_digit(last.code) || is_lower_letter(last.code) || is_one_of(last.code, U"%²-+|") || is_mark(last.code))
    return 1;
  const std::string_view rest = before.substr(0, before.size() - last.length);
  if (rest.empty()) return 0;
  const char32_t second = last_character(rest).code;
  if (is_one_of(last.code, U"FCK") && second == U'°') return 1;
  return is_upper_letter(last.code) && is_upper_letter(second) ? 1 : 0;
}

size_t suffix_of(std::string_view word) {
  const Character c = last_character(word);
  if (c.code == '.') return full_stop_of(word);
  for (const std::string_view possessive : {"'s", "'S", "’s", "’S"})
    if (word.ends_with(possessive)) return possessive.size();
  if (is_mark(c.code) || c.code == U'—' || c.code == U'–' || is_picture(c.code)) return c.length;
  const auto follows_digit = [&](size_t size) {
    return word.size() > size && is_digit(word[word.size() - size - 1]) ? size : 0;
  };
  if (c.code == '+') return follows_digit(1);
  if (is_one_of(c.code, kCurrencies)) return follows_digit(c.length);
  if (word.find_first_of("0123456789") == std::string_view::npos) return 0;
  for (const std::string_view unit : kUnits)
    if (word.ends_with(unit) && follows_digit(unit.size()) > 0) return unit.size();
  return 0;
}

/// The host of an address: labels with full stops between them, the last of small letters; npos if there is none.
size_t end_of_host(std::string_view text) {
  size_t at = 0, label = 0, labels = 0;
  while (at < text.size()) {
    const Character c = first_character(text.substr(at));
    const bool inner = c.code == '-' || c.code == '_';
    if (c.code >= 0x80 || is_letter(c.code) || is_digit(c.code) || (inner && at > label)) {
      at += c.length;
    } else if (c.code == '.' && at > label && text[at - 1] != '-' && text[at - 1] != '_') {
      label = ++at;
      ++labels;
    } else {
      break;
    }
  }
  if (labels == 0 || at < label + 2) return std::string_view::npos;
  for (size_t i = label; i < at;) {
    const Character c = first_character(text.substr(i));
    if (!is_lower_letter(c.code)) return std::string_view::npos;
    i += c.length;
  }
  return at;
}

/// Whether the word is an address of the web or of mail, which is one word.
bool is_address(std::string_view word) {
  if (word.find('.') == std::string_view::npos) return false;
  if (const size_t scheme = word.find("://"); scheme != std::string_view::npos && scheme >= 2)
    word.remove_prefix(scheme + 3);
  if (const size_t user = word.rfind('@'); user != std::string_view::npos && user > 0) word.remove_prefix(user + 1);
  const size_t host = end_of_host(word);
  if (host == std::string_view::npos) return false;
  word.remove_prefix(host);
  if (word.size() >= 3 && word[0] == ':' && is_digit(word[1])) {
    word.remove_prefix(1);
    word.remove_prefix(std::min(word.find_first_not_of("0123456789"), word.size()));
  }
  return word.empty() || word[0] == '/' || word[0] == '?' || word[0] == '#';
}

size_t hyphens_at(std::string_view text) {
  if (text[0] == '-') return std::min<size_t>(std::min(text.find_first_not_of('-'), text.size()), 3);
  if (text[0] == '~') return 1;
  for (const std::string_view hyphen : {"——", "–", "—"})
    if (text.starts_with(hyphen)) return hyphen.size();
  return 0;
}

/// The length of what cuts the word at `at`, not at its start; 0 if nothing does.
size_t infix_at(std::string_view word, size_t at) {
  const std::string_view rest = word.substr(at);
  const Character c = first_character(rest);
  if (const size_t dots = c.code == '.' ? ellipsis_at(rest) : 0) return dots;
  if (c.code == U'…' || is_picture(c.code)) return c.length;
  const char32_t before = at > 0 ? last_character(word.substr(0, at)).code : 0;
  const auto code_behind = [&](size_t length) {
    return length < rest.size() ? first_character(rest.substr(length)).code : char32_t{0};
  };
  const char32_t next = code_behind(c.length);
  if (is_one_of(c.code, U"+-*^") && is_digit(before) && (is_digit(next) || next == '-')) return 1;
  if (c.code == '.')
    return (is_lower_letter(before) || is_one_of(before, kQuotes)) &&
           (is_upper_letter(next) || is_one_of(next, kQuotes));
  if (c.code == ',') return is_letter(before) && is_letter(next);
  if (!is_letter(before) && !is_digit(before)) return 0;
  if (is_one_of(c.code, U":<>=/")) return is_letter(next);
  const size_t hyphens = hyphens_at(rest);
  return hyphens > 0 && is_letter(code_behind(hyphens)) ? hyphens : 0;
}

/// The middle of a word, without its prefixes and suffixes.
void split_middle(std::string_view word, Words& words) {
  if (is_address(word)) return words.push_back(word);
  size_t begin = 0;
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<uint8_t>(word[at]);
    if (byte < 128 && !kAsciiInfixes[byte]) {
      ++at;
      continue;
    }
    const size_t infix = infix_at(word, at);
    if (infix == 0) {
      at += first_character(word.substr(at)).length;
      continue;
    }
    if (at > begin) {
      words.push_back(word.substr(begin, at - begin));
      words.push_back(word.substr(at, infix));
      begin = at + infix;
    }
    at += infix;
  }
  if (begin < word.size()) words.push_back(word.substr(begin));
}

bool is_plain(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; });
}

/// Joins neighbours from `first` on that are one word together: the "):" behind something in brackets is a face, and
/// the "s." of "tokens/s." an abbreviation.
void join_wholes(Words& words, size_t first) {
  for (size_t i = first; i + 1 < words.size(); ++i) {
    if (words[i].size() != 1 || words[i + 1].size() != 1 || !is_whole({words[i].data(), 2})) continue;
    words[i] = {words[i].data(), 2};
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

/// What stands between two spaces.
void split_word(std::string_view word, Words& words) {
  Words suffixes;
  const size_t first = words.size();
  while (!word.empty()) {
    if (const size_t cut = is_whole(word) ? word.size() : contraction_at(word)) {
      words.push_back(word.substr(0, cut));
      if (cut < word.size()) words.push_back(word.substr(cut));
      word = {};
      break;
    }
    if (is_plain(word)) break;
    const size_t prefix = prefix_of(word);
    if (prefix > 0) {
      words.push_back(word.substr(0, prefix));
      word.remove_prefix(prefix);
      if (word.empty() || is_whole(word) || contraction_at(word) > 0) continue;
    }
    const size_t suffix = suffix_of(word);
    if (suffix > 0) {
      suffixes.push_back(word.substr(word.size() - suffix));
      word.remove_suffix(suffix);
    }
    if (prefix == 0 && suffix == 0) break;
  }
  if (!word.empty()) split_middle(word, words);
  words.insert(words.end(), suffixes.rbegin(), suffixes.rend());
  join_wholes(words, first);
}

bool is_mark_only(std::string_view word) {
  while (!word.empty()) {
    const Character c = first_character(word);
    if (!is_punctuation(c.code)) return false;
    word.remove_prefix(c.length);
  }
  return true;
}

}  // namespace

void split_words(std::string_view text, std::vector<std::string_view>& words) {
  thread_local Words pieces;
  pieces.clear();
  split_at_spaces(text, pieces);
  for (const std::string_view piece : pieces) {
    if (piece.size() < 5 && is_plain(piece))
      words.push_back(piece);
    else
      split_word(piece, words);
  }
}

int64_t count_sentences(std::string_view text) {
  Words words;
  split_words(text, words);
  int64_t sentences = words.empty() ? 0 : 1;
  bool ended = false;
  for (const std::string_view word : words) {
    const Character c = first_character(word);
    const bool ends = c.length == word.size() && (ends_sentence(c.code) || is_one_of(c.code, kMoreEnds));
    if (ends) {
      ended = true;
    } else if (ended && !is_mark_only(word)) {
      ++sentences;
      ended = false;
    }
  }
  return sentences;
}

}  // namespace nought
