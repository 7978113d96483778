"""A headless Chromium that talks to this machine alone."""

import shutil

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

# Refusals of the policy are events of the document, and not all of them reach the console.
WATCH = "window.violations = []; addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));"


def open_browser(language="en-US"):
    options = Options()
    options.binary_location = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    for switch in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "disable-gpu",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "disable-default-apps",
        "disable-domain-reliability",
        "no-first-run",
        "no-pings",
        "no-proxy-server",
        "host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
        f"lang={language}",
        f"accept-lang={language}",
        "window-size=1280,900",
    ):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(20)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.execute_cdp_cmd("Emulation.setLocaleOverride", {"locale": language})
    return driver


def shape(driver, width, height, scale=1, phone=False):
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(driver, **features):
    """prefer(driver, prefers_color_scheme="dark")"""
    named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})
