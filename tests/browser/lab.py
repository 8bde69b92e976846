"""lab: a JupyterLab server as `make lab` starts it, and a browser in which one works as a learner does."""
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180  # seconds: the first cell imports jax, and the machine may be busy
FLAGS = ("--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --force-device-scale-factor=1 --window-size=1400,1000").split()


def write_notebook(path: Path, cells: list[str]) -> int:
    """Writes a notebook of these code cells; returns how many there are."""
    kernel = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    made = [nbformat.v4.new_code_cell(text) for text in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=kernel), path)
    return len(cells)


@contextlib.contextmanager
def server(root: Path, home: Path, theme: str, *configs: Path):
    """Yields the address of a JupyterLab on `root`. Settings, kernels' files and history stay in `home`.

    `configs`: folders of settings that come before those that everybody has.
    """
    settings = home / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"theme": f"JupyterLab {theme}"}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token, log = secrets.token_hex(16), home / "server.log"
    config = filter(None, [*map(str, configs), str(ROOT / "autograder"), os.environ.get("JUPYTER_CONFIG_PATH")])
    environment = os.environ | {
        "JUPYTER_TOKEN": token, "JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_CONFIG_PATH": os.pathsep.join(config),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"), "IPYTHONDIR": str(home / "ipython"), "JAX_PLATFORMS": "cpu",
        "PALLAS_LITE_STATE": str(home / "state"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.root_dir={root}",
               "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=out, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None and time.monotonic() < until, f"JupyterLab did not start:\n{log.read_text()}"
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).read()
                break
            time.sleep(0.3)
        yield lambda path: f"{address}/lab/tree/{path}?reset&token={token}"
    finally:
        print(f"--- JupyterLab's log\n{log.read_text(errors='replace')[-8000:]}")  # pytest shows it if the test fails
        process.terminate()  # it shuts its kernels down
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def browser(chromium: tuple[str, str], profile: Path):
    """A headless chromium with a fresh profile. Debian's own driver: selenium downloads nothing."""
    options = webdriver.ChromeOptions()
    options.binary_location = chromium[0]
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=chromium[1]))
    driver.set_script_timeout(PATIENCE)
    try:
        yield driver
    finally:
        with contextlib.suppress(Exception):
            print("--- browser console")
            print("\n".join(entry["message"][:300] for entry in driver.get_log("browser")[-20:]))
        driver.quit()


class Notebook:
    """One notebook open in JupyterLab."""

    def __init__(self, driver, shots: Path):
        self.driver, self.shots = driver, shots

    # -- looking

    def wait(self, condition, what: str):
        """The first true value of `condition()`. The page may redraw under it."""
        waiting = WebDriverWait(self.driver, PATIENCE, 0.2, ignored_exceptions=[StaleElementReferenceException])
        return waiting.until(lambda _: condition(), f"waited {PATIENCE} s, in vain, for: {what}")

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.wait(lambda: self.all(css), css)[0]

    def cell(self, text: str) -> WebElement:
        """The code cell whose source, as it is shown, has this text."""
        def found():
            shown = self.all(".jp-NotebookPanel .jp-CodeCell .jp-InputArea")
            return next((x for x in shown if text in x.get_attribute("textContent")), None)

        inputs = self.wait(found, f"a cell with {text!r}")
        return inputs.find_element(By.XPATH, "./ancestor::*[contains(@class, 'jp-CodeCell')]")

    def see(self, element: WebElement) -> WebElement:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        time.sleep(0.3)  # JupyterLab moves on its own once more
        return element

    def shot(self, name: str) -> None:
        self.driver.save_screenshot(str(self.shots / f"{name}.png"))

    # -- doing

    def rest_on(self, element: WebElement) -> None:
        """The mouse stands still over an element."""
        ActionChains(self.driver).move_to_element(element).perform()

    def theme(self, name: str) -> None:
        """Choose a theme in the menu, and wait for it."""
        next(x for x in self.all(".lm-MenuBar-itemLabel") if x.text == "Settings").click()
        self.wait(lambda: [x for x in self.all(".lm-Menu-itemLabel") if x.text == "Theme"], "the menu")[0].click()
        self.wait(lambda: [x for x in self.all(".lm-Menu-itemLabel") if x.text == name], name)[0].click()
        light = "false" if "Dark" in name else "true"
        self.wait(lambda: self.all(f'body[data-jp-theme-light="{light}"]'), "the theme")

    def open(self, address: str, cells: int) -> None:
        """Open a notebook with this many code cells, and wait until the kernel has started.

        JupyterLab adds the cells that are out of sight when it has nothing else to do, or when they run.
        """
        self.address, self.cells = address, cells
        self.driver.get(address)
        self.wait(lambda: self.all(".jp-NotebookPanel .jp-Cell"), "the first cells")
        self.idle()
        self.wait(lambda: not self.all("#jupyterlab-splash"), "the end of the splash screen")

    def idle(self) -> None:
        self.wait(lambda: "| Idle" in self.one("#jp-main-statusbar").text, "an idle kernel")

    def open_tomorrow(self) -> None:
        """Save, end the kernel, and open the notebook again."""
        self.keys("s", hold=(Keys.CONTROL,))
        self.wait(lambda: not self.all(".lm-TabBar-tab.jp-mod-current.jp-mod-dirty"), "the notebook to be saved")
        self.menu("Kernel", "kernelmenu:shutdown")
        self.wait(lambda: "No Kernel" in self.one("#jp-main-statusbar").text, "the end of the kernel")
        self.open(self.address, self.cells)

    def menu(self, title: str, command: str) -> None:
        next(x for x in self.all(".lm-MenuBar-itemLabel") if x.text == title).click()
        self.one(f'.lm-Menu-item[data-command="{command}"]').click()

    def keys(self, *keys: str, hold: tuple[str, ...] = ()) -> None:
        chain = ActionChains(self.driver)
        for key in hold:
            chain.key_down(key)
        for key in keys:
            chain.send_keys(key)
        for key in hold:
            chain.key_up(key)
        chain.perform()

    def prompts(self) -> list[str]:
        return [x.get_attribute("textContent") for x in self.all(".jp-CodeCell .jp-InputPrompt")]

    def run_all(self) -> None:
        self.menu("Run", "runmenu:run-all")
        folded = len(self.all(".jp-InputPlaceholder"))  # the first cell: a folded cell shows no number
        self.wait(lambda: sum(p.strip("[]: ").isdigit() for p in self.prompts()) + folded == self.cells,
                  "each code cell to run")
        self.idle()

    def errors(self) -> list[str]:
        """What cells raised or wrote to stderr."""
        kinds = ", ".join(f'[data-mime-type="application/vnd.jupyter.{kind}"]' for kind in ("error", "stderr"))
        return [x.get_attribute("textContent") for x in self.all(kinds)]

    def replace_last_line(self, cell: WebElement, new: str) -> None:
        """Type over the last line of a cell."""
        self.see(cell.find_element(By.CSS_SELECTOR, ".cm-content")).click()
        self.keys(Keys.END, hold=(Keys.CONTROL,))
        self.keys(Keys.HOME, hold=(Keys.SHIFT,))  # from the end of the line to its first letter
        self.keys(new)

    def run_here(self) -> None:
        """Shift+Enter: run the cell with the cursor, and go on to the next one."""
        self.keys(Keys.ENTER, hold=(Keys.SHIFT,))
