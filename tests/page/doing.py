"""Pause, resume and pushback: behind the token, and judged at the service."""

import re

from selenium.webdriver.common.keys import Keys

from page import PageTest, TOKEN


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
        self.until_shown("#act-failed", "Wrong admin token (401)")
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
        self.assertIn("paused", self.driver.title)
        self.assertFalse(self.find("#act").is_displayed())

        kept = self.driver.execute_script("return JSON.stringify({...localStorage}) + location.href + document.documentElement.outerHTML + act.querySelector('#act-token').value")
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
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "act-reason")
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
        self.driver.refresh()
        self.first_budget()
        self.tab_to(lambda node: node.get_attribute("data-act") == "pause")
        outline = self.driver.execute_script("const style = getComputedStyle(document.activeElement); return [style.outlineStyle, style.outlineWidth]")
        self.assertEqual(outline[0], "solid")
        self.assertGreaterEqual(float(outline[1].removesuffix("px")), 2)

        self.press(Keys.ENTER, "given up", Keys.ESCAPE)
        self.assertFalse(self.find("#act").is_displayed())
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("data-act"), "pause", "the focus is back where it was")
        self.assertFalse(self.at_service(name)["paused"])

        self.press(Keys.ENTER, "no mouse here")
        if self.asks_token():
            self.press(Keys.TAB, TOKEN)
        self.press(Keys.ENTER)
        self.until("the service has it", lambda: self.at_service(name)["paused"])
        self.until_shown("#budget-1 .chip.state", "paused")
        self.tab_to(lambda node: node.get_attribute("data-act") == "resume")
        self.press(Keys.SPACE)
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "act-go")
        self.press(Keys.ENTER)
        self.until("the service has it", lambda: not self.at_service(name)["paused"])

    def tab_to(self, wanted):
        for _ in range(40):
            self.press(Keys.TAB)
            if wanted(self.driver.switch_to.active_element):
                return
        self.fail("Tab does not lead there")
