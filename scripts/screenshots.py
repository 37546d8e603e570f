"""Takes the pictures of the web page that the documentation shows.

    .venv/bin/python scripts/screenshots.py [URL] [FOLDER]

of a server that runs into docs/: such as that of `make demo`, or of `headrace storm ui`, at http://127.0.0.1:8788.
Pictures of tabs that the page has not are left as they are. It needs Chromium.
"""

import sys

from playwright.sync_api import sync_playwright

# File, tab, dark or light, height, what is there once the panel has its numbers
PICTURES = (
    ("page-overview.png", "Overview", "light", 800, ".hr-drawing svg"),
    ("page-overview-dark.png", "Overview", "dark", 800, ".hr-drawing svg"),
    ("page-views.png", "Views", "light", 800, "[data-name=rows] tbody tr"),
    ("page-batch.png", "Batch", "dark", 800, ".hr-card"),
    ("page-topologies.png", "Topologies", "light", 1100, ".hr-drawing svg"),
)


def main(url: str = "http://127.0.0.1:8787", folder: str = "docs") -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        for name, tab, scheme, height, there in PICTURES:
            page = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme=scheme)
            page.goto(f"{url}/?tab={tab.lower()}")
            page.get_by_role("tab").first.wait_for(timeout=60_000)
            if page.get_by_role("tab", name=tab).count() == 0:
                page.close()
                continue
            page.locator(there).first.wait_for(timeout=60_000)
            page.wait_for_function("document.fonts.status == 'loaded'")
            page.wait_for_timeout(2_500)  # two looks, so that charts have been drawn with what is there now
            page.screenshot(path=f"{folder}/{name}")
            print(f"{folder}/{name}")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
