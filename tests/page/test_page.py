"""The page in a real browser. Against the fake service, or with PAGE_URL and PAGE_ADMIN_TOKEN against a real one: then what needs the
fake's controls is skipped. What a button did is judged at the service."""

import json
import os
import re
import time
import unittest
import urllib.request
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import open_browser, prefer, shape
from fake import ADMIN_TOKEN, Fake
from scenes import HANGUL, HOSTILE, LONG

REAL = os.environ.get("PAGE_URL", "").rstrip("/")
TOKEN = os.environ.get("PAGE_ADMIN_TOKEN", ADMIN_TOKEN)
FILES = Path(__file__).resolve().parents[2] / "src/service/http/page"
needs_fake = unittest.skipIf(REAL, "needs the controls of the fake service")
PATIENCE_S = 20

driver = None


def setUpModule():
    global driver
    driver = open_browser()


def tearDownModule():
    driver.quit()


class PageTest(unittest.TestCase):
    scene = "well"
    look_token = None
    #: What the console may say: a refused token and a lost connection are written there by the browser itself.
    console_may_say = ()

    def setUp(self):
        self.fake = None if REAL else Fake(self.scene, self.look_token).start()
        self.url = REAL or self.fake.url
        shape(driver, 1280, 900)
        prefer(driver, prefers_color_scheme="light", prefers_reduced_motion="no-preference")
        driver.get_log("browser"), driver.get_log("performance")
        self.open()

    def tearDown(self):
        violations = driver.execute_script("return window.violations")
        told = [entry["message"] for entry in driver.get_log("browser")]
        asked = requests(driver.get_log("performance"))
        driver.get("about:blank")
        if self.fake:
            self.fake.stop()
        self.assertEqual(violations, [], "the policy was violated")
        self.assertEqual([line for line in told if not any(word in line for word in self.console_may_say)], [])
        self.assertEqual([url for url in asked if not url.startswith((self.url, "data:", "about:"))], [])

    def open(self, language="en"):
        driver.get(self.url)
        driver.execute_script("localStorage.clear(); sessionStorage.clear(); localStorage.setItem('call-budget.language', arguments[0])", language)
        driver.get(self.url)

    def find(self, selector):
        return driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        # At once: a node may be replaced between finding and reading it.
        return driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def attribute(self, selector, name):
        return driver.execute_script("return document.querySelector(arguments[0])?.getAttribute(arguments[1])", selector, name)

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
            driver.switch_to.active_element.send_keys(key)

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
        return driver.execute_script("return !sessionStorage.getItem('call-budget.token.admin')")

    def do(self, deed, **fields):
        self.until(f"the button to {deed}", lambda: self.find(f"#budget-1 [data-act={deed}]").is_displayed())
        self.find(f"#budget-1 [data-act={deed}]").click()
        self.fill(**fields)
        self.find("#act-go").click()


class Looking(PageTest):
    def test_it_loads_with_nothing_in_the_console_and_asks_nobody_else(self):
        self.until_live()
        self.until("a title", lambda: "call-budget" in driver.title)
        # tearDown looks at the console, the policy and every request.

    def test_it_stays_live_while_nothing_happens(self):
        self.until_live()
        for _ in range(16):
            time.sleep(0.5)
            self.assertEqual(self.attribute("#link", "data-link"), "live")

    def test_it_has_landmarks_and_every_control_has_a_name(self):
        self.until_live()
        for landmark in ("header", "main", "nav[aria-label]", "footer", "section[aria-label], section[aria-labelledby]"):
            self.assertTrue(driver.find_elements(By.CSS_SELECTOR, landmark), landmark)
        nameless = driver.execute_script(
            """return [...document.querySelectorAll('button, input, dialog, section, [role=img]')].filter((node) => !(
                 node.getAttribute('aria-label') || node.innerText?.trim() || node.textContent.trim() || node.labels?.length ||
                 document.getElementById(node.getAttribute('aria-labelledby') ?? ''))).map((node) => node.outerHTML)"""
        )
        self.assertEqual(nameless, [])

    def test_dark_and_light_are_two_and_both_are_readable(self):
        self.until_live()
        grounds = []
        for scheme in ("light", "dark"):
            prefer(driver, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            time.sleep(0.5)
            grounds.append(driver.execute_script(LUMINANCE_OF_BODY))
            self.assertEqual(driver.execute_script(PALE_TEXTS), [], scheme)
        self.assertGreater(grounds[0], 0.8)
        self.assertLess(grounds[1], 0.05)

    def test_a_phone_needs_no_sideways_scrolling(self):
        for language in ("en", "ko"):
            self.open(language)
            self.until_live()
            self.never_wider_than(360, 320)

    def never_wider_than(self, *widths):
        for width in widths:
            shape(driver, width, 740, 2, True)
            time.sleep(0.3)
            inner, scroll = driver.execute_script("return [innerWidth, document.scrollingElement.scrollWidth]")
            self.assertEqual(inner, width)
            self.assertLessEqual(scroll, inner)
            wide = driver.execute_script(
                "return [...document.querySelectorAll('body *:not(.unseen, .skip)')].filter((node) => node.checkVisibility() &&"
                " node.getBoundingClientRect().right > innerWidth + 1 && !node.closest('.unseen, thead, .cut, .name')).map((node) => node.outerHTML.slice(0, 200))"
            )
            self.assertEqual(wide, [])

    def test_nothing_moves_for_who_wants_no_motion(self):
        self.first_budget()
        moving = "return [...document.querySelectorAll('*')].filter((node) => parseFloat(getComputedStyle(node).transitionDuration) > 0 || getComputedStyle(node).animationName !== 'none').length"
        self.assertGreater(driver.execute_script(moving), 0)
        prefer(driver, prefers_reduced_motion="reduce")
        self.until("nothing moves", lambda: driver.execute_script(moving) == 0)

    def test_korean_is_shown_and_said_so(self):
        self.until_live()
        self.assertEqual(self.attribute("html", "lang"), "en")
        self.find("#language").click()
        self.assertEqual(self.attribute("html", "lang"), "ko")
        self.until_shown("#breakers-title", "서킷 브레이커")
        self.until_shown("#link", "실시간")
        driver.refresh()
        self.until_live()
        self.assertEqual(self.attribute("html", "lang"), "ko")

    def test_a_korean_browser_gets_korean_without_asking(self):
        driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "test", "acceptLanguage": "ko-KR,ko"})
        try:
            driver.execute_script("localStorage.clear()")
            driver.get(self.url)
            self.until_live()
            self.assertEqual(self.attribute("html", "lang"), "ko")
        finally:
            driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "", "acceptLanguage": "en-US"})

    def test_single_keys_work_and_can_be_turned_off(self):
        self.first_budget()
        self.press("?")
        self.until("the list of keys", lambda: self.find("#help").is_displayed())
        self.press(Keys.ESCAPE)
        self.assertFalse(self.find("#help").is_displayed())
        self.press("1")
        self.assertEqual(driver.switch_to.active_element.get_attribute("id"), "budget-1")
        self.press("b")
        self.assertEqual(driver.switch_to.active_element.get_attribute("id"), "breakers")
        self.press("l")
        self.assertEqual(self.attribute("html", "lang"), "ko")
        self.find("#keys").click()
        self.find("#single-keys").click()
        self.find("#help-close").click()
        self.press("l")
        self.assertEqual(self.attribute("html", "lang"), "ko")


class Doing(PageTest):
    console_may_say = ("401",)

    def test_pause_needs_the_token_and_then_everybody_sees_it(self):
        name = self.first_budget()
        self.set_running(name)
        self.find("#budget-1 [data-act=pause]").click()
        self.fill(reason="a test asks")
        self.find("#act-go").click()
        self.assertIn("admin_token_file", self.text("#act-failed"))
        self.assertFalse(self.at_service(name)["paused"])

        self.fill(token="not-the-token")
        self.find("#act-go").click()
        self.until_shown("#act-failed", "401")
        self.assertFalse(self.at_service(name)["paused"])
        self.assertTrue(self.asks_token(), "a wrong token is not kept")

        self.fill(token=TOKEN)
        self.find("#act-go").click()
        self.until("the service has it", lambda: self.at_service(name)["paused"])
        self.assertEqual(self.at_service(name)["paused_reason"], "a test asks")
        self.until_shown("#headline-title", f"{name} is paused")
        self.until_shown("#headline-detail", "a test asks")
        self.assertEqual(self.text("#budget-1 .chip.state"), "paused")
        self.until_shown("#said", f"{name} is paused")
        self.assertIn("paused", driver.title)
        self.assertFalse(self.find("#act").is_displayed())

        kept = driver.execute_script("return JSON.stringify({...localStorage}) + location.href + document.documentElement.outerHTML + act.querySelector('#act-token').value")
        self.assertNotIn(TOKEN, kept)
        self.do("resume")
        self.until("the service has it", lambda: not self.at_service(name)["paused"])
        self.until("the page shows it", lambda: self.text("#budget-1 .chip.state") in ("running", "idle"))
        self.assertNotIn("paused", self.text("#headline-title"))

        self.find("#forget").click()
        self.assertTrue(self.asks_token())
        self.assertFalse(self.find("#forget").is_displayed())

    def test_a_pause_without_a_reason_is_not_sent(self):
        name = self.first_budget()
        self.set_running(name)
        self.do("pause", token=TOKEN)
        self.assertIn("reason", self.text("#act-failed"))
        self.assertEqual(driver.switch_to.active_element.get_attribute("id"), "act-reason")
        self.assertFalse(self.at_service(name)["paused"])

    def test_pushback_moves_the_slots_and_counts_down(self):
        name = self.first_budget()
        self.set_running(name)
        self.do("pushback", duration="0", reason="EGW00201", token=TOKEN)
        self.assertIn("3600", self.text("#act-failed"))
        self.assertEqual(self.at_service(name)["blocked_for_us"], 0)

        self.fill(duration="9")
        self.find("#act-go").click()
        self.until("the service has it", lambda: self.at_service(name)["blocked_for_us"] > 0)
        self.until_shown("#headline-title", f"{name} is pushed back")
        self.until_shown("#headline-detail", "EGW00201")
        left = lambda: float(re.match(r"([\d.]+) m?s left", self.text("#headline-detail"))[1])
        first = left()
        self.assertLessEqual(first, 9)
        self.until("it counts down", lambda: left() < first - 2)
        self.until("it ends by itself", lambda: "pushed back" not in self.text("#headline-title"))

    def test_it_can_be_done_by_keyboard_alone(self):
        name = self.first_budget()
        self.set_running(name)
        driver.refresh()
        self.first_budget()
        self.tab_to(lambda node: node.get_attribute("data-act") == "pause")
        outline = driver.execute_script("const style = getComputedStyle(document.activeElement); return [style.outlineStyle, style.outlineWidth]")
        self.assertEqual(outline[0], "solid")
        self.assertGreaterEqual(float(outline[1].removesuffix("px")), 2)

        self.press(Keys.ENTER, "given up", Keys.ESCAPE)
        self.assertFalse(self.find("#act").is_displayed())
        self.assertEqual(driver.switch_to.active_element.get_attribute("data-act"), "pause", "the focus is back where it was")
        self.assertFalse(self.at_service(name)["paused"])

        self.press(Keys.ENTER, "no mouse here")
        if self.asks_token():
            self.press(Keys.TAB, TOKEN)
        self.press(Keys.ENTER)
        self.until("the service has it", lambda: self.at_service(name)["paused"])
        self.until_shown("#budget-1 .chip.state", "paused")
        self.tab_to(lambda node: node.get_attribute("data-act") == "resume")
        self.press(Keys.SPACE)
        self.assertEqual(driver.switch_to.active_element.get_attribute("id"), "act-go")
        self.press(Keys.ENTER)
        self.until("the service has it", lambda: not self.at_service(name)["paused"])

    def tab_to(self, wanted):
        for _ in range(40):
            self.press(Keys.TAB)
            if wanted(driver.switch_to.active_element):
                return
        self.fail("Tab does not lead there")


@needs_fake
class Moving(PageTest):
    def test_figures_and_bars_follow_what_is_granted(self):
        with self.fake.lock:
            for name, one in self.fake.world["budgets"]["kis-real"]["classes"].items():
                one.update(rate={"order": 6.0, "minute": 3.0}.get(name, 0.0), sway=0)
        self.first_budget()
        before = driver.execute_script("return [...document.querySelectorAll('#budget-1 svg path')].map((path) => path.getAttribute('d')).join()")
        self.until("nine a second", lambda: 8 <= float(self.text("#budget-1 .figure")) <= 10)
        self.until("six and three", lambda: self.rate("order") and 5 <= self.rate("order") <= 7 and 2 <= self.rate("minute") <= 4 and self.rate("eod") == 0)
        after = driver.execute_script("return [...document.querySelectorAll('#budget-1 svg path')].map((path) => path.getAttribute('d')).join()")
        self.assertNotEqual(before, after)
        share = lambda: int(self.text("#budget-1 tbody tr .share-figure").removesuffix("%"))
        first = share()
        self.until("the share of the first class grows", lambda: share() > first)
        self.assertIn("floor 10%", self.text("#budget-1 tbody tr .share"))

    def rate(self, name):
        rows = driver.execute_script("return [...document.querySelectorAll('#budget-1 tbody tr')].map((row) => [row.querySelector('.class').innerText.trim(), row.querySelector('.now').innerText])")
        return float(dict(rows)[name].removesuffix("/s"))

    def test_a_screen_reader_hears_alarms_and_not_every_second(self):
        self.first_budget()
        self.until_shown("#said", "All is well")
        driver.execute_script("window.told = 0; new MutationObserver(() => told++).observe(said, {childList: true, characterData: true, subtree: true})")
        time.sleep(5)
        self.assertEqual(driver.execute_script("return told"), 0)
        self.fake.world["budgets"]["kis-real"].update(fenced_for_us=4_000_000)
        self.until_shown("#said", "keeps a quiet moment")
        self.until_shown("#said", "All is well")
        self.assertEqual(driver.execute_script("return told"), 2)

    def test_a_class_under_its_floor_is_marked_when_it_has_waited_long(self):
        self.first_budget()
        classes = self.fake.world["budgets"]["kis-real"]["classes"]
        classes["index"].update(rate=0, queue=3)
        classes["index"]["floor_ppm"] = 900_000
        self.until_shown("#budget-1 tbody tr:nth-child(3) .share", "floor 90%")
        self.assertNotIn("under", self.text("#budget-1 tbody"))
        driver.execute_script("const now = performance.now.bind(performance); performance.now = () => now() + 70000")
        self.until_shown("#budget-1 tbody tr:nth-child(3) .share", "under its floor")


@needs_fake
class StoreOut(PageTest):
    scene = "store-out"

    def test_a_store_out_of_reach_is_said_with_its_age_and_ends(self):
        self.until_shown("#headline-title", "nothing is sent")
        self.until_shown("#headline-detail", "refused the connection")
        self.assertEqual(self.attribute("html", "data-stale"), "true")
        age = lambda: int(re.search(r"(\d+) s old", self.text("#stale"))[1])
        first = age()
        self.assertGreaterEqual(first, 13)
        self.until("its age counts up", lambda: age() >= first + 2)
        self.fake.reachable, self.fake.why = True, None
        self.until_shown("#headline-title", "All is well")
        self.assertEqual(self.attribute("html", "data-stale"), "false")
        self.until("the hole stays to be seen", lambda: driver.find_elements(By.CSS_SELECTOR, "#budget-1 .gaps rect"))


@needs_fake
class Lost(PageTest):
    console_may_say = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY")

    def test_a_lost_connection_is_said_greyed_and_found_again(self):
        self.first_budget()
        self.fake.stop()
        self.until_shown("#headline-title", "Connection to this service lost")
        self.until_shown("#link", "reconnecting")
        self.assertEqual(self.attribute("#headline", "data-level"), "bad")
        self.until("greyed", lambda: self.attribute("html", "data-stale") == "true")
        self.until_shown("#stale", "s old")
        self.fake.start()
        self.until_shown("#headline-title", "All is well")
        self.assertEqual(self.attribute("#link", "data-link"), "live")

    def test_a_service_that_says_nothing_more_is_lost_too(self):
        self.first_budget()
        self.fake.silent = True
        self.until_shown("#headline-title", "Connection to this service lost")
        self.fake.silent = False
        self.until_shown("#headline-title", "All is well")


@needs_fake
class Tokens(PageTest):
    look_token = "not-a-real-caller-token"
    console_may_say = ("401",)

    def test_looking_asks_for_a_token_where_the_service_wants_one(self):
        self.until("the question", lambda: self.find("#ask").is_displayed())
        self.assertFalse(self.find("#ask-failed").is_displayed())
        self.press("a-wrong-one", Keys.ENTER)
        self.until("the refusal", lambda: self.find("#ask").is_displayed() and self.find("#ask-failed").is_displayed())
        self.press(Keys.ESCAPE)
        self.until_shown("#headline-title", "who is looking")
        self.find("#look").click()
        self.press(self.look_token, Keys.ENTER)
        self.first_budget()
        self.assertNotIn(self.look_token, driver.execute_script("return JSON.stringify({...localStorage}) + location.href"))
        driver.refresh()
        self.first_budget()


@needs_fake
class Morning(PageTest):
    scene = "alarms"

    def test_the_worst_comes_first_and_the_rest_is_said_too(self):
        self.until_shown("#headline-title", "kis-real is paused")
        self.until_shown("#headline-detail", "09:10까지")
        titles = driver.execute_script("return [...document.querySelectorAll('#others strong')].map((node) => node.textContent)")
        self.assertEqual(
            titles,
            [
                "Breaker kis/real/quote is open",
                "kis-paper is pushed back",
                "krx-data keeps a quiet moment",
                "Breaker yahoo/quote is probing",
                'credential "desk-2" at kis/real is held',
            ],
        )

    def test_breakers_show_state_episode_holds_and_whose_they_are(self):
        self.until_shown("#breaker-list", "kis/real/quote")
        shown = self.text("#breaker-list")
        for words in ("this service", "minute-worker 3f9c1d20", "a probe failed", "reopened 1×", "rung 1", "811 refused", "held: credential", "says what was"):
            self.assertIn(words, shown)
        self.until_shown("#breakers-closed", "kis/real/order")
        stale = self.text("#breaker-list [data-stale=true]")
        self.assertIn("order-book", stale)
        self.assertNotIn("dart/filing", self.text("#headline"), "what was told long ago is no alarm")
        retry = lambda: float(re.search(r"minute-worker.*?next change in ([\d.]+) s", self.text("#breaker-list"), re.S)[1])
        first = retry()
        self.until("it counts down", lambda: retry() < first)

    def test_durability_that_is_off_stands_out(self):
        self.until_shown("#server", "fsync")
        self.assertEqual(driver.execute_script("return [...document.querySelectorAll('#server dd[data-level=warn]')].map((node) => node.textContent)"), ["off"])

    def test_alarms_are_readable_and_fit_a_phone(self):
        for scheme in ("light", "dark"):
            prefer(driver, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            self.until_shown("#breaker-list", "kis/real/quote")
            time.sleep(0.5)
            self.assertEqual(driver.execute_script(PALE_TEXTS), [], scheme)
        Looking.never_wider_than(self, 360, 320)


@needs_fake
class Hostile(PageTest):
    scene = "hostile"

    def test_names_are_text_whatever_they_say(self):
        self.until("six budgets", lambda: len(driver.find_elements(By.CSS_SELECTOR, ".card")) == 6)
        self.until_shown("#breaker-list", HOSTILE)
        self.assertIsNone(driver.execute_script("return window.harmed"))
        self.assertEqual(driver.find_elements(By.CSS_SELECTOR, "body img, body script, [onerror]"), [])
        names = driver.execute_script("return [...document.querySelectorAll('.card .name')].map((node) => [node.textContent, node.title])")
        for name in (HOSTILE, LONG, HANGUL, "__proto__", "constructor"):
            self.assertIn([name, name], names)
        rates = driver.execute_script("return [...document.querySelectorAll('.card tbody .share-figure')].map((node) => node.textContent)")
        self.assertEqual({rate for rate in rates if not 30 <= int(rate.removesuffix("%")) <= 37}, set())
        Looking.never_wider_than(self, 360, 320, 1280)

    def test_a_budget_with_such_a_name_can_be_resumed(self):
        name = self.first_budget()
        self.do("resume", token=TOKEN)
        self.until("the service has it", lambda: not self.at_service(name)["paused"])


@needs_fake
class Off(PageTest):
    scene = "off"

    def test_the_switch_that_is_off_is_said_and_no_store_is_missed(self):
        self.until_shown("#headline-title", "The switch is off")
        self.until_shown("#no-budget", "while the switch is off")
        self.assertNotIn("out of reach", self.text("#headline"))
        self.assertEqual(self.attribute("html", "data-stale"), "false")

    def test_without_an_admin_token_there_is_nothing_to_press(self):
        self.fake.scene("well")
        self.fake.world["admin"] = False
        self.until_shown("#look-only", "changes nothing")
        self.first_budget()
        self.assertFalse(self.find("#budget-1 .deeds").is_displayed())


@needs_fake
class Parts(PageTest):
    def test_slots_in_a_hole_are_not_made_up(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               for (const s of [0, 1, 2, 10, 11, 12]) samples.add(s * 1000, { a: s * 4 });
               return samples.seconds(12000, 12).map((second) => second && second.a);"""
        )
        self.assertEqual(seconds, [4, 4] + [None] * 8 + [4, 4])

    def test_a_sample_between_two_seconds_is_counted_in_proportion_and_none_twice(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               [0, 900, 2100, 3000, 4300].forEach((at, n) => samples.add(at, { a: n * 3 }));
               return samples.seconds(4300, 4).map((second) => second.a);"""
        )
        # 0 at 0, 3 at 0.9 s, 6 at 2.1 s, 9 at 3 s, 12 at 4.3 s
        for seen, expected in zip(seconds, [3.25, 2.5, 3.25, 3 / 1.3]):
            self.assertAlmostEqual(seen, expected, places=6)

    def test_counts_that_began_anew_are_no_slots(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               [900, 905, 2, 6].forEach((count, s) => samples.add(s * 1000, { a: count }));
               return samples.seconds(3000, 3).map((second) => second.a);"""
        )
        self.assertEqual(seconds, [5, 0, 4])

    def test_events_are_read_as_the_standard_says(self):
        read = self.run_module(
            "const { parse } = await import('/page/stream.js'); return ['event: a\\ndata: 1\\ndata: 2', ': nothing', 'data:x'].map(parse);"
        )
        self.assertEqual(read, [{"name": "a", "data": "1\n2"}, {"name": "message", "data": ""}, {"name": "message", "data": "x"}])

    def test_every_text_is_there_in_both_languages_and_used(self):
        table = (FILES / "words.js").read_text(encoding="utf-8").split("const LIBRARY")[0]
        keys = re.findall(r"^  (\w+): \[", table, re.M)
        self.assertEqual(len(keys), len(set(keys)))
        entries = re.findall(r'^  \w+: \[\s*("(?:[^"\\]|\\.)+"), ?\s*("(?:[^"\\]|\\.)+"),?\s*\]', table, re.M)
        self.assertEqual(len(entries), len(keys), "each has two texts")
        for english, korean in entries:
            self.assertEqual(set(re.findall(r"\{\w+\}", english)), set(re.findall(r"\{\w+\}", korean)), english)
        code = "\n".join(file.read_text(encoding="utf-8") for file in FILES.iterdir() if file.name != "words.js")
        used = set(re.findall(r'"(\w+)"', code)) | set(re.findall(r'data-(?:text|label)="(\w+)"', code))
        named = {f"{stem}{end}" for stem in ("ask_", "did_") for end in ("pause", "resume", "pushback", "pause_what", "resume_what", "pushback_what")}
        named |= {f"state_{state}" for state in ("open", "probe_due", "probing", "held", "forced_open", "bypass", "observe")}
        self.assertEqual([key for key in keys if key not in used | named], [])
        asked = set(re.findall(r'\bsay\("(\w+)"', code)) | set(re.findall(r'data-(?:text|label)="(\w+)"', code))
        self.assertEqual([key for key in asked if key not in keys], [])

    def run_module(self, body):
        wrapped = f"const done = arguments[arguments.length - 1]; (async () => {{ {body} }})().then(done, (error) => done(String(error)));"
        return driver.execute_async_script(wrapped)


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


if __name__ == "__main__":
    unittest.main()
