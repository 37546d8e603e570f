"""Takes the pictures of the web page that the documentation shows.

    .venv/bin/python scripts/screenshots.py [URL] [FOLDER]

of a server that runs, such as that of `make demo`, into docs/. It needs Chromium.
"""

import sys

from playwright.sync_api import sync_playwright

# File, tab, dark or light, what is there once the panel has its numbers
PICTURES = (
    ("page-overview.png", "overview", "light", ".hr-drawing svg"),
    ("page-overview-dark.png", "overview", "dark", ".hr-drawing svg"),
    ("page-views.png", "views", "light", "[data-name=rows] tbody tr"),
    ("page-batch.png", "batch", "dark", ".hr-card"),
)


def main(url: str = "http://127.0.0.1:8787", folder: str = "docs") -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for name, tab, scheme, there in PICTURES:
            page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            page.goto(f"{url}/?tab={tab}")
            page.locator(there).first.wait_for(timeout=60_000)
            page.wait_for_function("document.fonts.status == 'loaded'")
            page.wait_for_timeout(2_500)  # two looks, so that charts have been drawn with what is there now
            page.screenshot(path=f"{folder}/{name}")
            print(f"{folder}/{name}")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
