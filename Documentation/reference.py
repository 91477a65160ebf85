# SPDX-License-Identifier: GPL-2.0
"""Directives of the reference, which is made of what the sources say of themselves.

.. kernel-doc:: FILE    comments of C, by the kernel's own script. The kernel has a directive of
                        that name, so that pages that use it can be moved there
.. openapi:: FILE       a description of HTTP
.. sql-functions:: FILE functions of a schema that ROLE may call, with the comments before them

Paths are those of the repository. Manual pages are rendered beside the others, so that the
role :manpage: has something to lead to.
"""
import json
import os
import pathlib
import re
import subprocess

from docutils import nodes, statemachine
from docutils.parsers.rst import Directive, directives
from sphinx.util.docutils import switch_source_input
from sphinx.errors import ExtensionError

TREE = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    """What a command writes. It may not complain."""
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise ExtensionError(f"{' '.join(command)}: {done.stderr or done.returncode}")
    return done.stdout


class Generated(Directive):
    """Is replaced by the reStructuredText that text() makes of the file of the argument."""
    required_arguments = 1

    def run(self):
        path = TREE / self.arguments[0]
        self.state.document.settings.env.note_dependency(str(path))
        lines = statemachine.StringList()
        for number, line in enumerate(self.text(path).expandtabs().splitlines()):
            lines.append(line, self.arguments[0], number)
        node = nodes.section()
        with switch_source_input(self.state, lines):
            self.state.nested_parse(lines, 0, node, match_titles=True)
        if not node.children:
            raise self.error(f"{path} has nothing for the reference")
        return node.children


class KernelDoc(Generated):
    script = ""

    def text(self, path):
        if not self.script:
            source = os.environ.get("KERNEL_SOURCE") or run("tools/vm/fetch", "source").strip()
            KernelDoc.script = f"{source}/scripts/kernel-doc"
        return run(self.script, "-rst", str(path.relative_to(TREE)))


class OpenApi(Generated):
    """Requests and their answers, then the objects that are in them."""

    def text(self, path):
        self.api = json.loads(path.read_text())
        out = [self.api["info"]["description"], ""]
        for where, methods in self.api["paths"].items():
            common = methods.get("parameters", [])
            for method, request in methods.items():
                if method != "parameters":
                    out += self.request(where, method, request, common)
        out += ["Objects", "-------", ""]
        for name, schema in self.api["components"]["schemas"].items():
            out += [f".. _http-{name}:", "", name, "~" * len(name), "", self.told(schema), ""]
            out += self.fields(schema)
        return "\n".join(out)

    def request(self, where, method, request, common):
        title = f"{method.upper()} {where}"
        out = [title, "-" * len(title), "", request["summary"] + ".", ""]
        out += [request.get("description", ""), ""]
        if "x-roles" in request:
            out += [f"Roles: {', '.join(request['x-roles']) or 'none is needed'}.", ""]
        rows = [(p["name"], p["in"], self.type(p["schema"]),
                 p.get("description", "") + (" Required." if p.get("required") else ""),
                 self.told(p["schema"])) for p in common + request.get("parameters", [])]
        for name, place, kind, *told in rows:
            out += [f"``{name}`` ({place}, {kind})", f"   {' '.join(filter(None, told)) or '-'}", ""]
        for kind, body in request.get("requestBody", {}).get("content", {}).items():
            out += [f"Body: ``{kind}``: {self.type(body['schema'])}.", ""]
        out += [".. list-table::", "   :widths: 8 46 46", ""]
        for code, answer in request["responses"].items():
            answer = self.resolved(answer)
            codes = ", ".join(f"``{c}``" for c in answer.get("x-codes", []))
            bodies = [self.type(b.get("schema", {})) for b in answer.get("content", {}).values()]
            out += [f"   * - {code}",
                    f"     - {answer['description']}{' Code: ' + codes + '.' if codes else ''}",
                    f"     - {'; '.join(bodies)}"]
        return out + [""]

    def resolved(self, what):
        for part in what.get("$ref", "#").split("/")[1:]:
            what = (self.api if what.get("$ref", "").startswith("#") else what)[part]
        return what

    def fields(self, schema):
        out = []
        for part in schema.get("allOf", []) + schema.get("oneOf", []):
            out += [self.type(part), ""] if "$ref" in part else self.fields(part)
        for name, field in schema.get("properties", {}).items():
            needed = ", required" if name in schema.get("required", []) else ""
            out += [f"``{name}`` ({self.type(field)}{needed})", f"   {self.told(field) or '-'}", ""]
        return out

    def type(self, schema):
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1]
            return f":ref:`{name} <http-{name}>`"
        for several in ("oneOf", "anyOf", "allOf"):
            if several in schema:
                return " or ".join(self.type(s) for s in schema[several])
        kind = schema.get("type", "anything")
        if kind == "array":
            return f"array of {self.type(schema['items'])}"
        if kind == "object" and schema.get("properties"):
            inner = (f"{n}: {self.type(s)}" for n, s in schema["properties"].items())
            return f"object of {', '.join(inner)}"
        return " or ".join(kind) if isinstance(kind, list) else kind

    @staticmethod
    def told(schema):
        """The description, and what a value may be."""
        out = [schema.get("description", "")]
        if "enum" in schema:
            out.append("One of " + ", ".join(f"``{v}``" for v in schema["enum"]) + ".")
        for key, words in (("minimum", "At least"), ("maximum", "At most"),
                           ("minLength", "Characters at least:"),
                           ("maxLength", "Characters at most:"), ("default", "Default:")):
            if key in schema:
                out.append(f"{words} ``{json.dumps(schema[key])}``.")
        return " ".join(filter(None, out))


class SqlFunctions(Generated):
    """Those that the grants give to a role, in the order of the file."""
    option_spec = {"role": directives.unchanged_required}
    function = re.compile(
        r"((?:^--[^\n]*\n)*)^create function (twheel\.(\w+)\(.*?\))\s*(returns .*?)\s*"
        r"(?:language\b|set\b|as\b|security\b)", re.M | re.S)

    def text(self, path):
        sql = path.read_text()
        grants = re.findall(r"^grant execute on functions? (.*?)\s+to\s+(.*?);", sql, re.M | re.S)
        granted = {name for names, roles in grants if self.options["role"] in roles
                   for name in re.findall(r"twheel\.(\w+)", names)}
        out = []
        for comment, call, name, returns in self.function.findall(sql):
            if name not in granted:
                continue
            granted.discard(name)
            told = re.sub(r"^--\s?", "", comment, flags=re.M).strip()
            title = f"twheel.{name}()"
            out += [title, "-" * len(title), "", ".. code-block:: sql", "",
                    *("    " + line for line in f"{call}\n{returns}".splitlines()), "",
                    re.sub(r'"(\w+)"', r"``\1``", told), ""]
        if granted:
            raise self.error(f"{path} has no function {granted}")
        return "\n".join(out)


def names(page):
    """What a manual page is about: the names before the dash."""
    told = re.search(r"^\.SH NAME\n(.*?)\\-", page.read_text(), re.M | re.S)
    return [name.strip() for name in told[1].split(",")]


def manual_pages(app):
    """Renders the manual pages; those that they name and that are here become links."""
    if app.builder.format != "html":
        return
    to = pathlib.Path(app.outdir) / "man"
    to.mkdir(parents=True, exist_ok=True)
    pages = sorted(page for folder in ("Documentation", "jobs/man", "lib/man")
                   for page in (TREE / folder).glob("*.[1-8]"))
    here = {f"{name}({page.suffix[1:]})": page.name
            for page in pages for name in names(page)}
    style = (TREE / "Documentation/static/man.css").read_text()
    for page in pages:
        html = run("mandoc", "-Thtml", str(page))
        html = re.sub(r"<b>([\w.]+)</b>(\(\d\))", lambda m: f'<a href="{here[m[1] + m[2]]}.html">'
                      f"{m[1]}{m[2]}</a>" if m[1] + m[2] in here else m[0], html)
        html = html.replace("</head>", f"<style>{style}</style></head>", 1)
        html = html.replace("<body>", '<body><p><a href="../index.html">twheel</a></p>', 1)
        (to / f"{page.name}.html").write_text(html)


def setup(app):
    app.add_directive("kernel-doc", KernelDoc)
    app.add_directive("openapi", OpenApi)
    app.add_directive("sql-functions", SqlFunctions)
    app.connect("builder-inited", manual_pages)
    return {"parallel_read_safe": True}
