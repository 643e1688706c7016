"""
Metadata that depend on the address of the repository: the project's links, and absolute links and
pictures in the long description, since the README's own are relative.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The target of a link or picture, in Markdown or HTML, that is neither absolute nor an anchor.
RELATIVE = re.compile(
    r"(?P<before>\]\(|src=\"|href=\")(?!https?://|mailto:|#)(?P<target>[^)\"\s]+)"
)


def with_absolute_links(text: str, repository: str, tag: str) -> str:
    """`text` with links to the files of `tag` in `repository` in place of relative links."""

    def absolute(match: re.Match[str]) -> str:
        target = match["target"]
        kind = "raw" if target.endswith((".png", ".svg", ".gif")) else "blob"
        return f"{match['before']}{repository}/{kind}/{tag}/{target}"

    return RELATIVE.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Sets `urls` and `readme` from `repository` in `[tool.hatch.metadata.hooks.custom]`."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"]
        tag = f"v{metadata['version']}"
        owner, name = repository.split("/")[-2:]
        metadata["urls"] = {
            "Documentation": f"https://{owner.lower()}.github.io/{name}",
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
            "Paper": "https://proceedings.mlr.press/v108/galy-fajou20a.html",
        }
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, repository, tag),
        }
