#include "nought/corpus/personal_data.h"

#include "support/golden.h"
#include "support/temp_folder.h"

#include "nought/base/json.h"
#include "nought/corpus/language.h"
#include "nought/corpus/url_blocklist.h"

namespace nought::personal_data_test {

TEST(PersonalData, is_replaced_as_datatrove_replaces_it) {
  const Json golden = read_json_file(test::golden_folder("scale/data_cleaning.json"));
  ASSERT_FALSE(golden["pii"].empty());
  for (const Json& each : golden["pii"]) EXPECT_EQ(redact(each["text"].get<std::string>()).text, each["datatrove"]);
}

TEST(PersonalData, a_number_among_others_is_no_address) {
  for (const char* text : {"999.1.1.1", "1.2.3.4.5", "v8.8.8.8", "8.8.8.8a", "8.8.8.08", "8.8.8", "256.8.8.8"})
    EXPECT_FALSE(redact(text).any()) << text;
  EXPECT_EQ(redact("(8.8.8.8), 8.8.4.4:53.").text, "(22.214.171.124), 126.96.36.199:53.");
  EXPECT_EQ(redact("x+y@a.org and c@d-e.net").text, "email@example.com and firstname.lastname@example.org");
}

TEST(PersonalData, only_public_addresses_are_personal) {
  for (const char* address : {"10.1.2.3", "127.0.0.1", "172.31.0.1", "192.168.1.1", "169.254.0.1", "100.64.0.1",
                              "0.0.0.1", "198.19.0.1", "203.0.113.9", "255.255.255.255"})
    EXPECT_FALSE(is_public_address(address)) << address;
  for (const char* address : {"172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255"})
    EXPECT_TRUE(is_public_address(address)) << address;
}

TEST(Language, is_found_with_its_part_of_the_text) {
  const Language english = language_of("The quick brown fox jumps over the lazy dog, and then it sleeps in the sun.");
  EXPECT_EQ(english.code, "en");
  EXPECT_GE(english.score, 0.9);
  EXPECT_EQ(language_of("Der schnelle braune Fuchs springt \u00fcber den faulen Hund und schl\u00e4ft dann.").code,
            "de");
  EXPECT_TRUE(is_language("en") && is_language("zh") && !is_language("xx") && !is_language("un"));
}

TEST(UrlBlocklist, covers_hosts_below_and_paths_below) {
  const test::TempFolder folder;
  const UrlBlocklist list(folder.write("list", "# comment\n\nBad.example\nhttps://ok.example/spam/\n"));
  EXPECT_EQ(list.size(), 2u);
  for (const char* url : {"http://bad.example/", "https://www.BAD.example:8080/x?y", "bad.example", "ok.example/spam",
                          "http://ok.example/spam/1.html"})
    EXPECT_TRUE(list.blocks(url)) << url;
  for (const char* url : {"http://notbad.example", "bad.example.org", "http://ok.example/spammer", "ok.example", ""})
    EXPECT_FALSE(list.blocks(url)) << url;
}

}  // namespace nought::personal_data_test
