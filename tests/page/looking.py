"""What whoever looks may count on, whatever the service has to tell."""

import time

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import prefer
from page import LUMINANCE_OF_BODY, PALE_TEXTS, PageTest


class Looking(PageTest):
    def test_it_loads_with_nothing_in_the_console_and_asks_nobody_else(self):
        self.until_live()
        self.until("a title", lambda: "call-budget" in self.driver.title)
        # tearDown looks at the console, the policy and every request.

    def test_it_stays_live_while_nothing_happens(self):
        self.until_live()
        for _ in range(16):
            time.sleep(0.5)
            self.assertEqual(self.attribute("#link", "data-link"), "live")

    def test_it_has_landmarks_and_every_control_has_a_name(self):
        self.until_live()
        for landmark in ("header", "main", "nav[aria-label]", "footer", "section[aria-label], section[aria-labelledby]"):
            self.assertTrue(self.driver.find_elements(By.CSS_SELECTOR, landmark), landmark)
        nameless = self.driver.execute_script(
            """return [...document.querySelectorAll('button, input, dialog, section, [role=img]')].filter((node) => !(
                 node.getAttribute('aria-label') || node.innerText?.trim() || node.textContent.trim() || node.labels?.length ||
                 document.getElementById(node.getAttribute('aria-labelledby') ?? ''))).map((node) => node.outerHTML)"""
        )
        self.assertEqual(nameless, [])

    def test_dark_and_light_are_two_and_both_are_readable(self):
        self.until_live()
        grounds = []
        for scheme in ("light", "dark"):
            prefer(self.driver, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            time.sleep(0.5)
            grounds.append(self.driver.execute_script(LUMINANCE_OF_BODY))
            self.assertEqual(self.driver.execute_script(PALE_TEXTS), [], scheme)
        self.assertGreater(grounds[0], 0.8)
        self.assertLess(grounds[1], 0.05)

    def test_a_phone_needs_no_sideways_scrolling(self):
        for language in ("en", "ko"):
            self.open(language)
            self.until_live()
            self.never_wider_than(360, 320)

    def test_nothing_moves_for_who_wants_no_motion(self):
        self.first_budget()
        moving = "return [...document.querySelectorAll('*')].filter((node) => parseFloat(getComputedStyle(node).transitionDuration) > 0 || getComputedStyle(node).animationName !== 'none').length"
        self.assertGreater(self.driver.execute_script(moving), 0)
        prefer(self.driver, prefers_reduced_motion="reduce")
        self.until("nothing moves", lambda: self.driver.execute_script(moving) == 0)

    def test_korean_is_shown_and_said_so(self):
        self.until_live()
        self.assertEqual(self.attribute("html", "lang"), "en")
        self.find("#language").click()
        self.assertEqual(self.attribute("html", "lang"), "ko")
        self.until_shown("#breakers-title", "서킷 브레이커")
        self.until_shown("#link", "실시간")
        self.driver.refresh()
        self.until_live()
        self.assertEqual(self.attribute("html", "lang"), "ko")

    def test_a_korean_browser_gets_korean_without_asking(self):
        self.driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "test", "acceptLanguage": "ko-KR,ko"})
        try:
            self.driver.execute_script("localStorage.clear()")
            self.driver.get(self.url)
            self.until_live()
            self.assertEqual(self.attribute("html", "lang"), "ko")
        finally:
            self.driver.execute_cdp_cmd("Emulation.setUserAgentOverride", {"userAgent": "", "acceptLanguage": "en-US"})

    def test_single_keys_work_and_can_be_turned_off(self):
        self.first_budget()
        self.press("?")
        self.until("the list of keys", lambda: self.find("#help").is_displayed())
        self.press(Keys.ESCAPE)
        self.assertFalse(self.find("#help").is_displayed())
        self.press("1")
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "budget-1")
        self.press("b")
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "breakers")
        self.press("l")
        self.assertEqual(self.attribute("html", "lang"), "ko")
        self.find("#keys").click()
        self.find("#single-keys").click()
        self.find("#help-close").click()
        self.press("l")
        self.assertEqual(self.attribute("html", "lang"), "ko")
