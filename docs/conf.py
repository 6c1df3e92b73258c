"""The documentation site: `make docs` builds it, offline, into docs/_build/html."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

logging.getLogger("jax").setLevel(logging.WARNING)  # a library of the theme shows what all log

project = "resonax"
author = "the resonax developers"
project_copyright = f"2026, {author}"
version = release = installed("resonax")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "navigation",
    "notebooks",
]
exclude_patterns = ["_build", "extensions", "gallery/*.rst", "pictures"]
nitpick_ignore_regex = [("py:.*", r".*")]  # types of other libraries have no pages here

myst_enable_extensions = ["colon_fence", "dollarmath", "smartquotes"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
# They take a fifth of the time of the site to import, for two base classes and two types.
autodoc_mock_imports = ["accelerate", "lightning", "pytorch_lightning", "torch", "transformers"]
for module in ("lightning.pytorch.callbacks", "transformers.trainer_callback"):  # nor its source
    ModuleAnalyzer.cache["module", module] = PycodeError(f"{module} is not imported")
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["auto_gallery"],
    "filename_pattern": r"\.py$",
    "image_scrapers": ("scraper.scrape_figures",),
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "reset_modules": (),
    "capture_repr": (),  # what is worth reading is printed
    "abort_on_example_error": True,
    "parallel": False,  # the tests run beside it
}

html_theme = "furo"
html_title = f"resonax {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
