"""formgrader: the names in Formgrader's pages are text, and the links lead to whom they name.

A student's id is the name of a folder, which the student may have chosen. nbgrader writes it into its pages as if it
were HTML, into their scripts as if it had no quotes, and into addresses as if it had no `?`, `#` or backslash; its
pages may do whatever the instructor may. Here all three are made right, in nbgrader's own templates and scripts, when
they are read. nbgrader_config.py asks for it in a server that has Formgrader.
"""
import html
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from nbconvert.preprocessors import Preprocessor
from nbgrader.server_extensions.formgrader import base, handlers
from tornado import web

NAMES = ("assignment_id", "notebook_id", "student", "last_name", "first_name", "notebook_path")  # in a notebook's page
SCRIPTS = Path(handlers.static_path, "js")


def mend() -> None:
    """Has Formgrader make its pages our way. To be called before it is set up; a second time does nothing."""
    if base.BaseHandler.render is not _render:
        base.BaseHandler.render = _render
        handlers.default_handlers.insert(0, (r"/formgrader/static/js/(.*)", Script, {"path": str(SCRIPTS)}))


class _Templates(FileSystemLoader):
    def get_source(self, environment, template):
        source, *rest = super().get_source(environment, template)
        return template_mended(source), *rest


def template_mended(source: str) -> str:
    """A template that writes a value into a script as JavaScript has it, and into an address as a part of one.

    >>> template_mended('var a = "{{ a_id }}"; <a href="x/{{ a_id }}">{{ a_id }}</a>')
    'var a = {{ a_id | tojson }}; <a href="x/{{ a_id | urlencode }}">{{ a_id }}</a>'
    """
    source = re.sub(r'= "\{\{ ([\w.]+) \}\}";', r"= {{ \1 | tojson }};", source)
    return re.sub(r"(?<=/)\{\{ ([\w.]+) \}\}", r"{{ \1 | urlencode }}", source)


_environment = Environment(loader=_Templates([handlers.template_path]), autoescape=True)


def _render(self, name: str, **names) -> str:
    return _environment.get_template(name).render(**names)


class Script(web.StaticFileHandler):
    """A script of nbgrader's own, mended."""

    @classmethod
    def get_content(cls, abspath, start=None, end=None):
        return script_mended(Path(abspath).read_text(encoding="utf-8")).encode()[start:end]

    def get_content_size(self):
        return len(self.get_content(self.absolute_path))


def script_mended(source: str) -> str:
    """A script that writes a name into an address as it has to be, and a name into the page as text.

    >>> script_mended('$.post(base_url + "/x/" + student + "/y")')
    '$.post(base_url + "/x/" + encodeURIComponent(student) + "/y")'
    """
    part = re.compile(r"""\+ ([a-z][\w.]*(?:\("\w+"\))?)""")
    lines = [part.sub(r"+ encodeURIComponent(\1)", line) if re.search(r"\bbase_url \+", line) else line
             for line in source.splitlines(keepends=True)]
    whole = "".join(lines).replace(".append(name +", ".text(name +")
    return whole.replace("prefix + path)", 'prefix + path.split("/").map(encodeURIComponent).join("/"))')


class NamesAsText(Preprocessor):
    """The page of one notebook is made by nbconvert, whose templates escape nothing: it gets names that are escaped."""

    def preprocess(self, nb, resources):
        resources.update({name: html.escape(value) for name in NAMES if isinstance(value := resources.get(name), str)})
        return nb, resources
