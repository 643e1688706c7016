"""``sphinx-build -W -n docs docs/_build``: executes the gallery, and needs no network."""

import os
import re
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)

from docutils import nodes  # noqa: E402

import gpflow_aaci  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "_tools"))
from from_classes import with_entries, with_rest  # noqa: E402
from links import LinkCode, link_back, link_elsewhere  # noqa: E402
from thumbnails import write_thumbnails  # noqa: E402

project = "gpflow_aaci"
author = copyright = "The gpflow_aaci authors"
release = version = gpflow_aaci.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "gallery/README.rst", "gallery/*.py"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autoclass_content = "both"
autosummary_generate = False  # the tables link to the entries of their page
nitpick_ignore_regex = [
    (r"py:.*", r"(?!gpflow_aaci).*"),  # of others, whose pages are elsewhere
    (r"py:.*", r"gpflow_aaci\.(criticism|inference|validation|models)\..*"),  # not public
    (r"py:.*", r"gpflow_aaci\.likelihoods\.outputwise\..*"),
]

html_theme = "furo"
html_title = f"gpflow_aaci {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",  # execute all
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "nested_sections": False,
    "capture_repr": (),
    "min_reported_time": float("inf"),  # none is shown
    "backreferences_dir": "examples/backreferences",
    "doc_module": ("gpflow_aaci",),
    "reference_url": {"gpflow_aaci": None},
    "write_computation_times": False,
}


EXPONENT = r"\^\{([^{}]*)\}"


def as_rst(app, what, name, obj, options, lines) -> None:
    """|x| is a modulus here, and no substitution; e^{x} is written e^(x)."""
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        for j in range(0, len(parts), 2):
            while re.search(EXPONENT, parts[j]):
                parts[j] = re.sub(EXPONENT, r"^(\1)", parts[j])
            parts[j] = parts[j].replace("|", r"\|")
        lines[i] = "".join(parts)


LONG = r"ndarray|Callable|Unpack|Dataset|AugmentedLikelihood"
SHORT = (
    (r"~[\w.]*\.", ""),  # the modules of types
    (r"ndarray\[Any, Any\] \| Tensor \| Variable \| Parameter", "array"),
    (r"Tuple\[array, array\]", "(array, array)"),
    (r"\bDatasetV2\b", "tf.data.Dataset"),  # its name in older TensorFlow
    (r"Callable\[.*\]", "function"),
    (r"Unpack\[(.*)\]", r"\1"),
    (r"^AugmentedLikelihood$", "Likelihood"),  # any is taken, and converted
)


def shorten_fields(app, domain, objtype, content) -> None:
    """Types of parameters in few words, none where they say nothing; lists of one entry as text."""
    for field in list(content.findall(nodes.field)):
        name, body = field.children
        if name.astext().startswith(("type ", "rtype")):
            text = body.astext()
            # Other types keep their links.
            for pattern, short in SHORT if re.search(LONG, text) else ():
                text = re.sub(pattern, short, text)
            if text in ("Any", "~typing.Any"):
                field.parent.remove(field)
            elif text != body.astext():
                body.children = [nodes.paragraph("", text)]
        elif [type(child) for child in body.children] == [nodes.bullet_list]:
            body.children = [part for item in body.children[0] for part in item.children]


ENTRY = re.compile(r"^\.\. (module|currentmodule|autoclass|autofunction):: (\S+)$", re.MULTILINE)


OUTPUT = re.compile(r"^ \.\. code-block:: none\n(?:\n|  .*\n)+", re.MULTILINE)


def without_seconds(app, docname, source) -> None:
    """Hide how long the machine of the build took, and all thumbnails but the groups of them."""
    if docname.startswith("examples/"):
        source[0] = OUTPUT.sub(
            lambda output: re.sub(r"(?<![\w.])[\d.,]+ (m?s)\b", r"… \1", output.group()), source[0]
        )
    if docname == "examples/index":
        source[0] = re.sub(
            r"\.\. thumbnail-parent-div-open.*\.\. thumbnail-parent-div-close",
            "",
            source[0],
            flags=re.DOTALL,
        )


def crop_thumbnails(app) -> None:
    write_thumbnails(Path(app.srcdir) / "examples" / "images")


def add_classes(app, docname, source) -> None:
    """What pages say about likelihoods is made from the classes."""
    is_of_readme = docname == "which_likelihood"
    readme = (Path(app.srcdir).parent / "README.md").read_text() if is_of_readme else ""
    source[0] = with_rest(with_entries(source[0]), readme)


PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text()
(REPOSITORY,) = re.findall(r'^repository = "(.*)"$', PROJECT, re.MULTILINE)


def link_repository(app, docname, source) -> None:
    """Links to pages of kept runs, which are not in the site, are to the repository."""
    source[0] = re.sub(
        r"\]\(\.\./(benchmarks/[^)]*\.md)", rf"]({REPOSITORY}/blob/v{release}/\1", source[0]
    )


def add_summary(app, docname, source) -> None:
    """Put a table of the names in each section of a page of the reference above its sections."""
    if not docname.startswith("reference/"):
        return
    module, tables = "", []
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE):
        names = []
        for directive, name in ENTRY.findall(section):
            if directive.endswith("module"):
                module = name
            else:
                names.append(f"   ~{module}.{name}")
        if names:
            title = "" if section.startswith("# ") else f"**{section.splitlines()[0]}**\n\n"
            table = "\n".join([".. autosummary::", "   :nosignatures:", "", *names])
            tables.append(f"{title}```{{eval-rst}}\n{table}\n```\n")
    first = re.search(r"^(## |```\{eval-rst\})", source[0], re.MULTILINE)
    if first:
        before, after = source[0][: first.start()], source[0][first.start() :]
        source[0] = "\n".join([before, *tables, after])


def setup(app) -> None:
    app.add_post_transform(LinkCode)
    app.connect("missing-reference", link_elsewhere)
    app.connect("html-page-context", link_back)
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("object-description-transform", shorten_fields, priority=600)
    app.connect("source-read", add_classes)  # before the next, which counts the entries
    app.connect("source-read", add_summary)
    app.connect("source-read", link_repository)
    app.connect("source-read", without_seconds)
    app.connect("builder-inited", crop_thumbnails, priority=900)  # when the gallery has run
