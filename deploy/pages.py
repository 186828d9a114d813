"""A hook of MkDocs that makes links work in the site as they do in the repository.

Every file of the site is named by its place in the repository, so that `../examples/worker.py` in a page of docs is that file.
Must not know any page.
"""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK: Final = re.compile(r"\]\(([^)\s#:]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages of the root and of docs, all files that they link to, and those of the theme."""
    docs = Path(config.docs_dir)
    root = docs.parent
    left = [*root.glob("*.md"), *(docs / file.src_uri for file in files if file.src_dir == config.docs_dir)]
    found = {file.src_uri: file for file in files if file.src_dir != config.docs_dir}
    while left:
        path = left.pop()
        name = path.relative_to(root).as_posix()
        if name not in found:
            found[name] = File(name, str(root), config.site_dir, config.use_directory_urls)
            if path.suffix == ".md":
                linked = ((path.parent / target).resolve() for target in LINK.findall(path.read_text()))
                left += [each for each in linked if each.is_file() and each.is_relative_to(root)]
    return Files(found.values())
