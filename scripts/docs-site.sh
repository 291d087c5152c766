#!/usr/bin/env bash
# Makes a site of the manual with a search, and pages of the library's interface: scripts/docs-site.sh [FOLDER]
#
# The pages are the texts of this repository as they are (README.md, docs/, CONTRIBUTING.md, CHANGELOG.md), by mkdocs; the
# interface is what cmake/public_headers.txt lists, by doxygen, which must not warn. At the end every link of the site is
# followed: to a page, to a place in it, to a file; nothing is loaded from elsewhere. FOLDER: by default build/site. It needs
# the packages of deps/apt-docs.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
site=$(realpath -m "${1:-build/site}")
work=$PWD/build/site-work

fail() {
  echo "docs-site: error: $*" >&2
  exit 1
}

for program in mkdocs doxygen; do
  command -v $program >/dev/null || fail "$program is not installed: scripts/install-deps.sh docs"
done
version=$(sed -nE 's/^project\(nought VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
rm -rf "$work" "$site"
mkdir -p "$work/pages"

# What pages link to lies where it lies here. A folder gets a page that lists its files.
cp -r README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE docs "$work/pages/"
links() { grep -ohE '\]\([^)#: ]+' "$work/pages"/*.md "$work/pages"/docs/*.md | sed 's/^](//; s|^\.\./||' | sort -u; }
while read -r link; do
  [[ -e $link && ! -e $work/pages/$link ]] || continue
  mkdir -p "$work/pages/$(dirname "$link")"
  cp -r "$link" "$work/pages/$link"
done < <(links)
while read -r link; do
  folder=$work/pages/$link
  [[ -d $folder && ! -e $folder/README.md ]] || continue
  { echo "# $link" && echo && (cd "$folder" && find . -maxdepth 1 -type f | sed -E 's|^\./(.*)|- [\1](\1)|' | LC_ALL=C sort); } \
    >"$folder/README.md"
done < <(links)
# mkdocs takes no link to a folder for a page.
for page in "$work/pages"/*.md "$work/pages"/docs/*.md; do
  while read -r link; do
    [[ -d $(dirname "$page")/$link ]] && sed -i "s|](${link})|](${link%/}/README.md)|g" "$page"
  done < <(grep -ohE '\]\([^)#: ]+\)' "$page" | sed 's/^](//; s/)$//' | sort -u)
done

# Lines of the menu: pages that docs/README.md lists below "How it works inside", and the others.
pages() {
  local page inside kind
  inside=$(sed -n '/^## How it works inside/,$p' docs/README.md | grep -oE '[a-z_]+\.md')
  for page in docs/*.md; do
    page=$(basename "$page")
    [[ $page == README.md ]] && continue
    kind=use
    grep -qxF "$page" <<<"$inside" && kind=inside
    [[ $kind == "$1" ]] && printf '    - "%s": docs/%s\n' "$(sed -n '1s/^# //p' "docs/$page" | tr -d '"`')" "$page"
  done | sort
}

cat >"$work/mkdocs.yml" <<END
site_name: Nought $version
docs_dir: pages
site_dir: $site
use_directory_urls: false
theme: {name: mkdocs, highlightjs: false}
plugins: [search]
markdown_extensions: [tables, {toc: {permalink: false}}]
nav:
  - Nought: README.md
  - What do you want to do?: docs/README.md
  - Use:
$(pages use)
  - Inside:
$(pages inside)
  - Interface: api/index.html
  - Contributing: CONTRIBUTING.md
  - Changelog: CHANGELOG.md
END
mkdocs build --quiet --config-file "$work/mkdocs.yml" 2>"$work/log" || fail "mkdocs: $(tail -3 "$work/log")"

sed 's|^|src/nought/|' cmake/public_headers.txt >"$work/headers"
cat >"$work/Doxyfile" <<END
PROJECT_NAME = Nought
PROJECT_NUMBER = $version
OUTPUT_DIRECTORY = $work
HTML_OUTPUT = $site/api
INPUT = $(tr '\n' ' ' <"$work/headers")
STRIP_FROM_PATH = src
FULL_PATH_NAMES = YES
GENERATE_LATEX = NO
JAVADOC_AUTOBRIEF = YES
EXTRACT_ALL = YES
HIDE_FRIEND_COMPOUNDS = YES
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
HAVE_DOT = NO
INPUT_FILTER = "sed s/fmt::formatter<T>/formatter/" # of which doxygen 1.9 finds no scope
QUIET = YES
WARN_AS_ERROR = FAIL_ON_WARNINGS
HTML_TIMESTAMP = NO
END
doxygen "$work/Doxyfile" >"$work/log" 2>&1 || fail "doxygen: $(head -20 "$work/log")"

python3 - "$site" <<'END'
import html.parser, os, sys, urllib.parse
site = sys.argv[1]
class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.places, self.loads = [], set(), []
        self.feed(open(path, encoding="utf-8").read())
    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"): self.places.add(value)
            elif tag == "a" and name == "href" and value: self.links.append(value)
            elif name in ("src", "href") and value and tag in ("script", "link", "img", "iframe"): self.loads.append(value)
pages = {}
for folder, _, files in os.walk(site):
    for file in files:
        if file.endswith(".html"):
            path = os.path.join(folder, file)
            pages[path] = Page(path)
wrong, followed = [], 0
for path, page in pages.items():
    for link in page.links + page.loads:
        url = urllib.parse.urlsplit(link)
        if url.scheme or link.startswith("//"):
            if link in page.loads and url.scheme not in ("data", "javascript"): wrong.append(f"{path}: loads {link}")
            continue
        followed += 1
        begin = site if url.path.startswith("/") else os.path.dirname(path)  # the page for what is not found has whole paths
        target = os.path.normpath(os.path.join(begin, urllib.parse.unquote(url.path).lstrip("/"))) if url.path else path
        if os.path.isdir(target): target = os.path.join(target, "index.html")
        if not os.path.exists(target): wrong.append(f"{path}: no file {link}")
        elif url.fragment and target in pages and "/api/" not in target \
                and urllib.parse.unquote(url.fragment) not in pages[target].places: wrong.append(f"{path}: no place {link}")
for line in wrong[:30]: print(line.replace(site + "/", ""), file=sys.stderr)
if wrong: sys.exit(f"docs-site: error: {len(wrong)} links lead nowhere")
print(f"docs-site: {len(pages)} pages, {followed} links followed")
END
echo "docs-site: $site/index.html; the interface is in $site/api"
