#!/usr/bin/env python3
"""Opens pages of nought report in headless Chromium and holds what they promise: page-test.py FOLDER PAGE.html...

For each page at 1280 and 390 pixels, light and dark: nothing but the page itself is requested, the console stays empty, no
picture and no frame has come from a run's texts, every chart and control can be reached by keyboard and has a name, texts have a
contrast of 4.5 or more, nothing is wider than the window. The keyboard zooms each page, and all of it comes back. Prints how
long drawing and a zoom take, and writes a screenshot of each into FOLDER. Chromium is spoken to through a pipe.
"""
import base64, json, os, pathlib, subprocess, sys, tempfile

CHECKS = r"""(() => {
  const wrong = [];
  for (const name of ["img", "iframe", "object", "embed", "form"])
    if (document.getElementsByTagName(name).length) wrong.push("there is an element " + name);
  if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push("wider than the window: " + document.documentElement.scrollWidth);
  for (const each of document.querySelectorAll("svg[role=img]"))
    if (each.tabIndex !== 0 || !each.getAttribute("aria-label")) wrong.push("a chart without a name or out of reach");
  for (const each of document.querySelectorAll("button, input, select"))
    if (!(each.labels && each.labels.length) && !each.textContent.trim()) wrong.push("a control without a name");
  const numbers = (text) => text.match(/[\d.]+/g).map(Number);
  const light = (rgb) => { const f = rgb.slice(0, 3).map((c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const ground = (each) => { for (; each; each = each.parentElement) { const c = numbers(getComputedStyle(each).backgroundColor);
    if (c.length < 4 || c[3] > 0.5) return c; } return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255]; };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(each.tagName) || !each.getClientRects().length) continue;
    const style = getComputedStyle(each), text = each.ownerSVGElement ? style.fill : style.color;
    if (text === "none") continue;
    const a = light(numbers(text)), b = light(ground(each)), contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.add(each.tagName + "." + each.getAttribute("class") + " " + contrast.toFixed(2));
  }
  for (const each of [...low].slice(0, 5)) wrong.push("contrast of " + each);
  return wrong;
})()"""
ZOOM = r"""(() => {
  const chart = document.querySelector("svg[role=img]");
  if (!chart) return {time: 0, wrong: []};
  const press = (key) => document.querySelector("svg[role=img]").dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const whole = document.querySelector("svg[role=img]").getAttribute("aria-label"), begin = performance.now();
  press("+");
  const time = performance.now() - begin, zoomed = document.querySelector("svg[role=img]").getAttribute("aria-label");
  press("0");
  const wrong = [];
  if (zoomed === whole) wrong.push("+ does not zoom");
  if (document.querySelector("svg[role=img]").getAttribute("aria-label") !== whole) wrong.push("0 does not show all");
  return {time, wrong};
})()"""


class Browser:
    """One page of a headless Chromium, by the DevTools protocol over a pipe: JSON that ends with a zero byte."""

    def __init__(self, profile):
        there, ours = os.pipe()
        from_browser, to_us = os.pipe()
        def connect():
            os.dup2(there, 3)
            os.dup2(to_us, 4)
        os.set_inheritable(there, True), os.set_inheritable(to_us, True)
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", f"--user-data-dir={profile}"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(there), os.close(to_us)
        self.to, self.back = os.fdopen(ours, "wb", buffering=0), from_browser
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.back, 1 << 20)
            if not more:
                sys.exit("page-test: error: Chromium ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.to.write(json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"page-test: error: {method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            sys.exit(f"page-test: error: {result['exceptionDetails']['exception'].get('description')}")
        return result["result"].get("value")

    def open(self, url, width, dark):
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.evaluate("performance.now()")

    def said(self):
        """What the console, exceptions and requests tell."""
        lines = []
        for event in self.events:
            method, given = event.get("method"), event.get("params", {})
            if method == "Network.requestWillBeSent" and given["request"]["url"] != given["documentURL"] \
                    and not given["request"]["url"].startswith("data:"):
                lines.append("requests " + given["request"]["url"])
            elif method == "Runtime.consoleAPICalled":
                lines.append("console: " + str(given["args"][:1]))
            elif method == "Runtime.exceptionThrown":
                lines.append("exception: " + given["exceptionDetails"]["text"])
            elif method == "Log.entryAdded":
                lines.append("log: " + given["entry"]["text"])
        return lines


def main():
    folder, pages = pathlib.Path(sys.argv[1]), [pathlib.Path(page).resolve() for page in sys.argv[2:]]
    wrong = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        try:
            for page in pages:
                for width, dark in ((1280, False), (1280, True), (390, False)):
                    drawn = browser.open(page.as_uri(), width, dark)
                    zoom = browser.evaluate(ZOOM)
                    name = f"{page.stem}-{width}{'-dark' if dark else ''}"
                    found = browser.evaluate(CHECKS) + zoom["wrong"] + browser.said()
                    wrong += [f"{name}: {line}" for line in found]
                    shot = browser.call("Page.captureScreenshot", format="png")
                    (folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
                    print(f"{name}: {page.stat().st_size / 1e6:.2f} MB, drawn after {drawn:.0f} ms, a zoom takes {zoom['time']:.0f} ms")
            browser.open(pages[0].as_uri(), 1280, False)
            paper = browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
            (folder / f"{pages[0].stem}.pdf").write_bytes(base64.b64decode(paper["data"]))
        finally:
            browser.process.kill()
            browser.process.wait()
    for line in wrong:
        print("page-test: error: " + line, file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"page-test: {len(pages)} pages hold what they promise")


main()
