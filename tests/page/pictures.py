"""Makes the pictures of docs/ (and with --all every scene) from the fake service.

    scripts/page-test --screenshots docs
"""

import argparse
import base64
import socket
import time
from pathlib import Path

from browser import open_browser, prefer, shape
from fake import Fake
from scenes import SCENES


def picture(driver, fake, file, scene="well", scheme="light", language="en", width=1280, phone=False, whole=True):
    fake.scene(scene)
    shape(driver, width, 800, 1.5 if phone else 1, phone)
    prefer(driver, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    driver.get(fake.url)
    driver.execute_script("localStorage.setItem('call-budget.language', arguments[0])", language)
    driver.get(fake.url)
    # A few seconds of figures of its own, so that the last bars are live ones.
    time.sleep(3)
    height = driver.execute_script("return document.documentElement.scrollHeight") if whole else 844
    shape(driver, width, height, 1.5 if phone else 1, phone)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": False})
    file.write_bytes(base64.b64decode(shot["data"]))
    print(f"{file} {file.stat().st_size // 1024} KiB")


def is_free(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=Path)
    arguments.add_argument("--all", action="store_true", help="every scene, light and dark, wide and narrow")
    given = arguments.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    fake = Fake()
    # The address that the service has by default, where it is free.
    fake.port = 8181 if is_free(8181) else 0
    fake.start()
    driver = open_browser()
    try:
        if given.all:
            for scene in SCENES:
                picture(driver, fake, given.directory / f"{scene}-light.png", scene)
                picture(driver, fake, given.directory / f"{scene}-dark-ko-phone.png", scene, "dark", "ko", 360, True)
            picture(driver, fake, given.directory / "black-hole-dark.png", "black-hole", "dark")
            picture(driver, fake, given.directory / "black-hole-ko.png", "black-hole", "light", "ko")
        else:
            picture(driver, fake, given.directory / "page-light.png")
            picture(driver, fake, given.directory / "page-dark-ko-phone.png", "black-hole", "dark", "ko", 390, True, whole=False)
    finally:
        driver.quit()
        fake.stop()


if __name__ == "__main__":
    main()
