"""What every test of the page does: open it, look at it, press what is there, and ask the service what came of it."""

import atexit
import functools
import json
import os
import time
import unittest
import urllib.request

from selenium.webdriver.common.by import By

from browser import open_browser, prefer, shape
from fake import ADMIN_TOKEN, Fake

REAL = os.environ.get("PAGE_URL", "").rstrip("/")
TOKEN = os.environ.get("PAGE_ADMIN_TOKEN", ADMIN_TOKEN)
needs_fake = unittest.skipIf(REAL, "needs the controls of the fake service")
PATIENCE_S = 20


@functools.cache
def the_browser():
    """One for all tests: it takes longer to start than most of them."""
    driver = open_browser()
    atexit.register(driver.quit)
    return driver


class PageTest(unittest.TestCase):
    scene = "well"
    look_token = None
    #: What the console may say: a refused token and a lost connection are written there by the browser itself.
    console_may_say = ()

    @classmethod
    def setUpClass(cls):
        cls.driver = the_browser()

    def setUp(self):
        self.fake = None if REAL else Fake(self.scene, self.look_token).start()
        self.url = REAL or self.fake.url
        shape(self.driver, 1280, 900)
        prefer(self.driver, prefers_color_scheme="light", prefers_reduced_motion="no-preference")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.open()

    def tearDown(self):
        violations = self.driver.execute_script("return window.violations")
        told = [entry["message"] for entry in self.driver.get_log("browser")]
        asked = requests(self.driver.get_log("performance"))
        self.driver.get("about:blank")
        if self.fake:
            self.fake.stop()
        self.assertEqual(violations, [], "the policy was violated")
        self.assertEqual([line for line in told if not any(word in line for word in self.console_may_say)], [])
        self.assertEqual([url for url in asked if not url.startswith((self.url, "data:", "about:"))], [])

    def open(self, language="en"):
        self.driver.get(self.url)
        self.driver.execute_script("localStorage.clear(); sessionStorage.clear(); localStorage.setItem('call-budget.language', arguments[0])", language)
        self.driver.get(self.url)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        # At once: a node may be replaced between finding and reading it.
        return self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def attribute(self, selector, name):
        return self.driver.execute_script("return document.querySelector(arguments[0])?.getAttribute(arguments[1])", selector, name)

    def until(self, what, found, seconds=PATIENCE_S):
        deadline = time.monotonic() + seconds
        while not (value := found()):
            if time.monotonic() > deadline:
                self.fail(f"not within {seconds} s: {what}; the page shows:\n{self.text('body')}")
            time.sleep(0.1)
        return value

    def until_live(self):
        self.until("the page is live", lambda: self.attribute("#link", "data-link") == "live" and self.text("#headline-title"))

    def until_shown(self, selector, words):
        self.until(f"{words!r} in {selector}", lambda: words in self.text(selector))

    def at_service(self, name):
        """The budget as the service has it, whatever the page shows."""
        asked = urllib.request.Request(f"{self.url}/v1/budgets", headers={"authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return next(budget for budget in json.load(answer)["budgets"] if budget["name"] == name)

    def first_budget(self):
        self.until_live()
        return self.until("a budget", lambda: self.text("#budget-1 .name"))

    def press(self, *keys):
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def fill(self, **fields):
        for name, words in fields.items():
            field = self.find(f"#act-{name}")
            field.clear()
            field.send_keys(words)

    def set_running(self, name):
        """At a real service the test before may have left it paused."""
        if self.at_service(name)["paused"]:
            self.do("resume", **({"token": TOKEN} if self.asks_token() else {}))

    def asks_token(self):
        return self.driver.execute_script("return !sessionStorage.getItem('call-budget.token.admin')")

    def do(self, deed, **fields):
        self.until(f"the button to {deed}", lambda: self.find(f"#budget-1 [data-act={deed}]").is_displayed())
        self.find(f"#budget-1 [data-act={deed}]").click()
        self.fill(**fields)
        self.find("#act-go").click()

    def never_wider_than(self, *widths):
        for width in widths:
            shape(self.driver, width, 740, 2, True)
            time.sleep(0.3)
            inner, scroll = self.driver.execute_script("return [innerWidth, document.scrollingElement.scrollWidth]")
            self.assertEqual(inner, width)
            self.assertLessEqual(scroll, inner)
            wide = self.driver.execute_script(
                "return [...document.querySelectorAll('body *:not(.unseen, .skip)')].filter((node) => node.checkVisibility() &&"
                " node.getBoundingClientRect().right > innerWidth + 1 && !node.closest('.unseen, thead, .cut, .name')).map((node) => node.outerHTML.slice(0, 200))"
            )
            self.assertEqual(wide, [])


def requests(entries):
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    return [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]


LUMINANCE = """
const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
const seen = new Map();
const rgba = (color) => {
  if (!seen.has(color)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    seen.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
  }
  return seen.get(color);
};
const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const color = rgba(getComputedStyle(node).backgroundColor);
    if (color[3] === 255) return color;
  }
  return [255, 255, 255, 255];
};
"""
LUMINANCE_OF_BODY = LUMINANCE + "return luminance(ground(document.body));"
# Texts with less than 4.5 to 1 before their ground.
PALE_TEXTS = (
    LUMINANCE
    + """
return [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility() && !node.closest('[data-stale=true]')
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())).map((node) => {
  const [a, b] = [luminance(rgba(getComputedStyle(node).color)), luminance(ground(node))].sort((x, y) => y - x);
  return [(a + 0.05) / (b + 0.05), node.className + ' ' + node.textContent.slice(0, 60)];
}).filter(([ratio]) => ratio < 4.5);"""
)
